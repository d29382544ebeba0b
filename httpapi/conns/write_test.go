package conns_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi/conns"
)

// A pipeListener is a listener without a network, whose connections use the time of a bubble.
type pipeListener struct{ conns chan net.Conn }

func (p *pipeListener) Accept() (net.Conn, error) {
	c, ok := <-p.conns
	if !ok {
		return nil, net.ErrClosed
	}
	return c, nil
}

func (p *pipeListener) Close() error {
	close(p.conns)
	return nil
}

func (p *pipeListener) Addr() net.Addr { return &net.TCPAddr{} }

const mega = 1 << 20

// A reader reads what there is, so many bytes at a time with a pause before each.
type reader struct {
	step  int
	pause time.Duration
}

func TestAClientThatDoesNotReadIsCutOffAndASlowOrASilentOneIsNot(t *testing.T) {
	for _, row := range []struct {
		name, path, key string
		reader          reader
		want            int           // bytes of the body; 0: it is cut off
		after           time.Duration // the end, of one that is cut off
	}{
		{"without a key", "/", "", reader{1, time.Hour}, 0, 10 * time.Second},
		{"with a key", "/", "good", reader{1, time.Hour}, 0, time.Minute},
		{"too slow, without a key", "/", "", reader{64 << 10, 15 * time.Second}, 0, 10 * time.Second},
		{"slow, without a key", "/", "", reader{64 << 10, 9 * time.Second}, mega, 0},
		{"slow, with a key", "/", "good", reader{64 << 10, 50 * time.Second}, mega, 0},
		{"silent", "/silent", "good", reader{mega, 0}, mega, 0},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var cut time.Duration
				limit, begun := conns.New(nil), time.Now()
				l := &pipeListener{make(chan net.Conn)}
				srv := &http.Server{
					ReadHeaderTimeout: time.Minute, ConnContext: limit.ConnContext, ConnState: limit.ConnState,
					Handler: limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
						if who, ok := owners[r.Header.Get("Authorization")]; ok {
							_ = conns.Accept(r.Context(), who)
						}
						if r.URL.Path == "/silent" {
							time.Sleep(time.Hour)
						}
						if _, err := w.Write(make([]byte, mega)); err != nil {
							cut = time.Since(begun)
						}
					})),
				}
				ended := make(chan error)
				go func() { ended <- srv.Serve(limit.Listener(l)) }()
				client, server := net.Pipe()
				l.conns <- server
				fmt.Fprintf(client, "GET %s HTTP/1.0\r\nAuthorization: %s\r\n\r\n", row.path, row.key)
				body := row.reader.read(client)
				_ = srv.Close()
				<-ended
				if row.want > 0 && body != row.want || row.want == 0 && body >= mega {
					t.Errorf("the client got %d bytes, want %d (0: not all)", body, row.want)
				}
				if cut != row.after {
					t.Errorf("it was cut off after %v, want %v (0: not)", cut, row.after)
				}
			})
		})
	}
}

// read returns how many bytes the body of an answer has.
func (r reader) read(c net.Conn) (n int) {
	defer c.Close()
	b := bufio.NewReaderSize(c, 1)
	time.Sleep(r.pause)
	resp, err := http.ReadResponse(b, nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	for {
		m, err := io.CopyN(io.Discard, resp.Body, int64(r.step))
		if n += int(m); err != nil {
			return n
		}
		time.Sleep(r.pause)
	}
}

// The server's own time for idle connections is off. The limiter's must end with the wait.
func TestAnIdleConnectionEndsAfterItsTimeAndOneThatIsUsedAgainDoesNot(t *testing.T) {
	const rest, upload = time.Minute, time.Hour
	for _, row := range []struct {
		key  string
		rest time.Duration
	}{{"good", rest}, {"", 10 * time.Second}} {
		synctest.Test(t, func(t *testing.T) {
			limit := conns.New(&conns.Options{KeepAlive: rest})
			l := &pipeListener{make(chan net.Conn)}
			srv := &http.Server{
				ReadHeaderTimeout: time.Minute, IdleTimeout: -1, ConnContext: limit.ConnContext, ConnState: limit.ConnState,
				Handler: limit.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					if who, ok := owners[r.Header.Get("Authorization")]; ok {
						_ = conns.Accept(r.Context(), who)
					}
					_, _ = io.Copy(w, r.Body)
				})),
			}
			ended := make(chan error)
			go func() { ended <- srv.Serve(limit.Listener(l)) }()
			client, server := net.Pipe()
			l.conns <- server
			answers := bufio.NewReader(client)
			for range 3 {
				fmt.Fprintf(client, "POST / HTTP/1.1\r\nHost: a\r\nAuthorization: %s\r\nContent-Length: 2\r\n\r\n1", row.key)
				time.Sleep(upload)
				_, _ = client.Write([]byte("2"))
				resp, err := http.ReadResponse(answers, nil)
				if err != nil {
					t.Fatalf("key %q: %v", row.key, err)
				}
				if b, err := io.ReadAll(resp.Body); string(b) != "12" {
					t.Errorf("key %q: the answer is %q %v", row.key, b, err)
				}
				time.Sleep(row.rest - time.Second)
			}
			began := time.Now()
			_, err := answers.ReadByte()
			if waited := time.Since(began); err == nil || waited != time.Second {
				t.Errorf("key %q: the idle connection ends %v after it should, %v", row.key, waited-time.Second, err)
			}
			_ = srv.Close()
			<-ended
			_ = client.Close()
		})
	}
}
