package webhook

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

// A nameserver answers each question for an address with the next list, and then with the last one.
type nameserver struct {
	mu    sync.Mutex
	lists [][]netip.Addr
	asked int
}

// serve answers on a socket until it is closed.
func (s *nameserver) serve(c net.PacketConn) {
	b := make([]byte, 1500)
	for {
		n, from, err := c.ReadFrom(b)
		if err != nil {
			return
		}
		_, _ = c.WriteTo(s.answer(b[:n]), from) // the resolver asks again
	}
}

// answer answers a message with one question (RFC 1035, 4): records of the family that it asks for.
func (s *nameserver) answer(question []byte) []byte {
	end := 12
	for question[end] != 0 {
		end += int(question[end]) + 1
	}
	kind := binary.BigEndian.Uint16(question[end+1:])
	out := append([]byte{}, question[:end+5]...)
	s.mu.Lock()
	list := s.lists[min(s.asked/2, len(s.lists)-1)] // a resolver asks for A and for AAAA
	s.asked++
	s.mu.Unlock()
	n := uint16(0)
	for _, a := range list {
		if is4 := kind == 1; a.Is4() != is4 || kind != 1 && kind != 28 {
			continue
		}
		n++
		out = append(out, 0xc0, 12) // the name of the question
		out = binary.BigEndian.AppendUint16(out, kind)
		out = append(out, 0, 1, 0, 0, 0, 0) // internet, and not to be kept
		out = binary.BigEndian.AppendUint16(out, uint16(a.BitLen()/8))
		out = append(out, a.AsSlice()...)
	}
	binary.BigEndian.PutUint16(out[2:], 0x8180)
	binary.BigEndian.PutUint16(out[6:], n)
	clear(out[8:12])
	return out
}

// connections returns the addresses to which a Sender would connect, one after the other, for a
// number of deliveries to one name. It connects to none.
func connections(t *testing.T, deliveries int, lists ...[]netip.Addr) (reached []netip.Addr, last error) {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	go (&nameserver{lists: lists}).serve(conn)
	g := &guard{dialer: net.Dialer{Timeout: 10 * time.Second, Resolver: &net.Resolver{
		PreferGo: true, Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "udp", conn.LocalAddr().String())
		},
	}}}
	var mu sync.Mutex
	g.dialer.Control = func(network, address string, raw syscall.RawConn) error {
		if err := g.control(network, address, raw); err != nil {
			return err
		}
		mu.Lock()
		defer mu.Unlock()
		reached = append(reached, netip.MustParseAddrPort(address).Addr())
		return errors.New("this is as far as the test goes")
	}
	s := &Sender{clock: clock.System{}, client: newClient(nil, g, 10*time.Second)}
	for range deliveries {
		_, last = s.Send(t.Context(), &queue.Delivery{Job: queue.Job{Webhook: "https://receiver.example/hook"}})
	}
	return reached, last
}

// The address that is compared is the one to which the connection goes, so it does not help to
// change a name after it was looked up, or to give it several addresses.
func TestANameThatChangesItsAddressIsComparedAtEachConnection(t *testing.T) {
	addrs := func(list ...string) (out []netip.Addr) {
		for _, s := range list {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	public := addrs("93.184.216.34")
	for _, private := range []string{"127.0.0.1", "169.254.169.254", "10.1.2.3", "::1", "fe80::1", "fd00:ec2::254", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::1"} {
		reached, err := connections(t, 2, public, addrs(private))
		if !slices.Equal(reached, public) || !errors.Is(err, errPrivate) {
			t.Errorf("public, then %s: reached %v, and the second delivery = %v; want %v and that it is not public", private, reached, err, public)
		}
		reached, _ = connections(t, 1, addrs("93.184.216.34", private))
		if !slices.Equal(reached, public) {
			t.Errorf("public and %s at once: reached %v, want %v", private, reached, public)
		}
	}
}
