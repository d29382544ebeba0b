package postgrestest

import (
	"context"
	"net"
	"net/url"
	"sync"
	"testing"
)

// A Freezer passes connections on to a database, and can stand still: what is sent to it then is accepted,
// and nobody answers. So does a pooler that is stopped, or a proxy before a machine that is gone.
type Freezer struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	thawed map[net.Conn]chan struct{} // of connections that stand still; closed when they go on
	all    chan struct{}              // also new ones do; nil: they do not
	conns  map[net.Conn]bool          // of clients
	cut    map[net.Conn]bool          // of these
}

// NewFreezer returns a Freezer and the URL of the database through it. The end of the test ends it.
func NewFreezer(t testing.TB, database string) (f *Freezer, through string) {
	t.Helper()
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f = &Freezer{listener: l, to: u.Host, thawed: map[net.Conn]chan struct{}{}, conns: map[net.Conn]bool{}, cut: map[net.Conn]bool{}}
	ctx := context.WithoutCancel(t.Context()) // connections are closed at the end
	var running sync.WaitGroup
	running.Go(func() {
		for {
			client, err := f.listener.Accept()
			if err != nil {
				return
			}
			running.Go(func() { f.pass(ctx, client) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		f.Thaw()
		f.mu.Lock()
		for c := range f.conns {
			_ = c.Close()
		}
		f.mu.Unlock()
		running.Wait()
	})
	u.Host = l.Addr().String()
	return f, u.String()
}

func (f *Freezer) pass(ctx context.Context, client net.Conn) {
	server, err := (&net.Dialer{}).DialContext(ctx, "tcp", f.to)
	if err != nil {
		_ = client.Close()
		return
	}
	f.mu.Lock()
	f.conns[client] = true
	if f.all != nil {
		f.thawed[client] = f.all
	}
	f.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { f.copy(server, client, client); _ = server.Close() })
	both.Go(func() { f.copy(client, server, client); _ = client.Close() })
	both.Wait()
}

func (f *Freezer) copy(to, from, client net.Conn) {
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		f.mu.Lock()
		wait := f.thawed[client]
		f.mu.Unlock()
		if wait != nil {
			<-wait
			f.mu.Lock()
			cut := f.cut[client]
			f.mu.Unlock()
			if cut {
				return
			}
		}
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// Freeze stops the connections that there are, and new ones too if all is set.
func (f *Freezer) Freeze(all bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c := range f.conns {
		if f.thawed[c] == nil {
			f.thawed[c] = make(chan struct{})
		}
	}
	if all && f.all == nil {
		f.all = make(chan struct{})
	}
}

// Cut ends the connections that stand still, and what was sent to them is lost. New ones go on.
func (f *Freezer) Cut() {
	f.mu.Lock()
	for c := range f.thawed {
		_ = c.Close() // its goroutines wait, and end after Thaw
		f.cut[c] = true
	}
	f.mu.Unlock()
	f.Thaw()
}

// Thaw lets all go on.
func (f *Freezer) Thaw() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for c, thawed := range f.thawed {
		delete(f.thawed, c)
		if thawed != f.all {
			close(thawed)
		}
	}
	if f.all != nil {
		close(f.all)
		f.all = nil
	}
}
