package servers

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// DefaultLease is the default of Options.Lease.
const DefaultLease = 15 * time.Second

// slack is how long before its end a lease is not relied on any more: the clocks of servers may
// differ by as much.
const slack = time.Second

// askPause is the shortest time between two tries for a lease that another server has.
const askPause = time.Second

// Options configures a Server. Nil means all defaults.
type Options struct {
	// Clock is the source of time. The clocks of servers must not differ by more than a second.
	// Default: the system's.
	Clock Clock
	// Rand is the source of the id. Default: crypto/rand.
	Rand io.Reader
	// Lease is how long the others wait for a server that has died. It is renewed three times in
	// this time. Default DefaultLease.
	Lease time.Duration
	// Data is what the others read of this server, such as an address. Default: nothing.
	Data []byte
	// Logger gets failures that no caller sees. Default: nothing is logged.
	Logger *slog.Logger
}

// A Server is this process among the servers that share a store. It is safe for concurrent use.
// Run must run until the program ends; a program that moves time itself calls Renew instead.
type Server struct {
	store Store
	o     Options
	id    string
	epoch uint64

	mu    sync.Mutex
	data  []byte           // what the others read of this server
	live  int              // servers that live, this one included
	posts map[string]*post // by the name of the lease
}

// A post is what this server knows of a lease that it has or would like to have.
type post struct {
	lease Lease     // as it was seen last
	asked time.Time // when
}

// serverPrefix begins the names of the leases by which servers say that they live.
const serverPrefix = "server/"

// Join makes this process a server of store.
func Join(ctx context.Context, store Store, o *Options) (*Server, error) {
	s := &Server{store: store, posts: map[string]*post{}, live: 1}
	if o != nil {
		s.o = *o
	}
	if s.o.Clock == nil {
		s.o.Clock = clock.System{}
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	if s.o.Lease == 0 {
		s.o.Lease = DefaultLease
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	s.data = s.o.Data
	var err error
	if s.id, err = id.New(s.o.Rand); err != nil {
		return nil, fmt.Errorf("servers: make an id: %w", err)
	}
	l, err := s.take(ctx, s.o.Clock.Now(), serverPrefix+s.id, s.o.Data)
	if err != nil {
		return nil, fmt.Errorf("servers: join: %w", err)
	}
	s.epoch = l.Epoch
	return s, s.Renew(ctx)
}

// ID returns the id of this server, which no other one has or had.
func (s *Server) ID() string { return s.id }

// Epoch returns a number that no other server has or had, and that is greater for one that has
// joined later.
func (s *Server) Epoch() uint64 { return s.epoch }

// Store returns the store that Join got.
func (s *Server) Store() Store { return s.store }

// Live returns how many servers were alive at the last renewal, this one included.
func (s *Server) Live() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.live
}

// Others returns the leases of the servers that live, without this one.
func (s *Server) Others(ctx context.Context) ([]Lease, error) {
	list, err := s.store.Leases(ctx, s.o.Clock.Now(), serverPrefix)
	if err != nil {
		return nil, fmt.Errorf("servers: list: %w", err)
	}
	others := list[:0]
	for _, l := range list {
		if l.Name = strings.TrimPrefix(l.Name, serverPrefix); l.Holder != s.id {
			others = append(others, l)
		}
	}
	return others, nil
}

// Run renews the lease of this server until ctx ends, and then gives it back with those of Lead,
// so that the others need not wait. It returns nil. Call it once.
func (s *Server) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := s.Renew(ctx); err != nil && ctx.Err() == nil {
			s.o.Logger.Error("renewing the lease of this server failed", "err", err)
		}
		clock.Sleep(ctx, s.o.Clock, s.o.Clock.Now().Add(s.o.Lease/3), nil)
	}
	s.leave(context.WithoutCancel(ctx))
	return nil
}

// SetData changes Options.Data. The others read it from the next renewal on.
func (s *Server) SetData(data []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.data = data
}

func (s *Server) shown() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.data
}

// Renew says that this server lives, and counts the others.
func (s *Server) Renew(ctx context.Context) error {
	now := s.o.Clock.Now()
	if _, err := s.take(ctx, now, serverPrefix+s.id, s.shown()); err != nil {
		return fmt.Errorf("servers: renew: %w", err)
	}
	list, err := s.store.Leases(ctx, now, serverPrefix)
	if err != nil {
		return fmt.Errorf("servers: list: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.live = max(len(list), 1)
	return nil
}

func (s *Server) take(ctx context.Context, now time.Time, name string, data []byte) (Lease, error) {
	return s.store.Take(ctx, now, Lease{Name: name, Holder: s.id, Until: now.Add(s.o.Lease), Data: data})
}

// leave gives everything back.
func (s *Server) leave(ctx context.Context) {
	s.mu.Lock()
	list := []Lease{{Name: serverPrefix + s.id, Holder: s.id, Epoch: s.epoch}}
	for _, p := range s.posts {
		if p.lease.Holder == s.id {
			list = append(list, p.lease)
		}
	}
	clear(s.posts)
	s.mu.Unlock()
	for _, l := range list {
		if err := s.store.Release(ctx, l); err != nil {
			s.o.Logger.Warn("a lease of this server was not given back, and ends by itself", "lease", l.Name, "err", err)
		}
	}
}

// Lead reports whether this server has the lease name, with at least a second to go. It takes a
// lease that nobody has, and renews its own three times in Options.Lease, and at once when data
// has changed. Between that it asks the store for nothing. l is the lease as it was seen last,
// whoever has it. An error means that it is not known who has the lease: this server must act as
// if it had not.
func (s *Server) Lead(ctx context.Context, name string, data []byte) (l Lease, leads bool, err error) {
	now := s.o.Clock.Now()
	if l, leads, fresh := s.known(name, data, now); fresh {
		return l, leads, nil
	}
	l, err = s.take(ctx, now, name, data)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.posts[name]
	if p == nil {
		p = &post{}
		s.posts[name] = p
	}
	p.asked = now
	if err == nil {
		p.lease = l
	}
	leads = s.leads(&p.lease, s.o.Clock.Now())
	if err != nil && !leads { // while it leads, a later call renews the lease
		return p.lease, false, fmt.Errorf("servers: lease %q: %w", name, err)
	}
	return p.lease, leads, nil
}

// known returns what a Lead may answer without the store.
func (s *Server) known(name string, data []byte, now time.Time) (l Lease, leads, fresh bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.posts[name]
	if p == nil {
		return Lease{}, false, false
	}
	age := now.Sub(p.asked)
	leads = s.leads(&p.lease, now)
	if leads {
		fresh = age < s.o.Lease/3 && bytes.Equal(p.lease.Data, data)
	} else {
		fresh = age < askPause
	}
	return p.lease, leads, fresh && age >= 0
}

// leads reports whether l is a lease of this server that it may rely on.
func (s *Server) leads(l *Lease, now time.Time) bool {
	return l.Holder == s.id && now.Before(l.Until.Add(-min(slack, s.o.Lease/4)))
}

// Leads reports whether this server has the lease name, by what it knows. It does not block.
func (s *Server) Leads(name string) bool {
	now := s.o.Clock.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.posts[name]
	return p != nil && s.leads(&p.lease, now)
}

// Resign gives a lease of Lead back.
func (s *Server) Resign(ctx context.Context, name string) error {
	s.mu.Lock()
	p := s.posts[name]
	delete(s.posts, name)
	s.mu.Unlock()
	if p == nil || p.lease.Holder != s.id {
		return nil
	}
	return s.store.Release(ctx, p.lease)
}

// Secret returns the secret name, 32 bytes that all servers have and nobody else.
func (s *Server) Secret(ctx context.Context, name string) ([]byte, error) {
	fresh := make([]byte, 32)
	rand.Read(fresh) // it never fails
	b, err := s.store.Secret(ctx, name, fresh)
	if err != nil {
		return nil, fmt.Errorf("servers: secret %q: %w", name, err)
	}
	return b, nil
}
