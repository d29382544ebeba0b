package memory

import (
	"bytes"
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/workers"
)

// Servers is a servers.Store, for servers in one process. It is safe for concurrent use.
type Servers struct {
	mu      sync.Mutex
	epoch   uint64
	leases  map[string]servers.Lease
	counts  map[string]count
	secrets map[string][]byte
	records map[string]servers.Record
	version int64 // of the last record
}

// A count of Reserve.
type count struct {
	n     int64
	until time.Time
}

var (
	_ servers.Store   = (*Servers)(nil)
	_ servers.Records = (*Servers)(nil)
)

// NewServers returns an empty store.
func NewServers() *Servers {
	return &Servers{leases: map[string]servers.Lease{}, counts: map[string]count{}, secrets: map[string][]byte{}, records: map[string]servers.Record{}}
}

// Take implements servers.Leases.
func (s *Servers) Take(_ context.Context, now time.Time, l servers.Lease) (servers.Lease, error) {
	if err := l.Check(); err != nil {
		return servers.Lease{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch old, ok := s.leases[l.Name]; {
	case !ok || !now.Before(old.Until):
		s.epoch++
		l.Epoch = s.epoch
	case old.Holder != l.Holder:
		return cloneLease(old), nil
	default:
		l.Epoch = old.Epoch
	}
	s.leases[l.Name] = cloneLease(l)
	return l, nil
}

// cloneLease returns a copy with an instant as stores keep them.
func cloneLease(l servers.Lease) servers.Lease {
	l.Data = bytes.Clone(l.Data)
	l.Until = l.Until.UTC().Truncate(time.Millisecond)
	return l
}

// Release implements servers.Leases.
func (s *Servers) Release(_ context.Context, l servers.Lease) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := s.leases[l.Name]; old.Holder == l.Holder && old.Epoch == l.Epoch {
		delete(s.leases, l.Name)
	}
	return nil
}

// Leases implements servers.Leases.
func (s *Servers) Leases(_ context.Context, now time.Time, prefix string) (list []servers.Lease, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, l := range s.leases {
		if strings.HasPrefix(name, prefix) && now.Before(l.Until) {
			list = append(list, cloneLease(l))
		}
	}
	slices.SortFunc(list, func(a, b servers.Lease) int { return strings.Compare(a.Name, b.Name) })
	return list, nil
}

// Put implements servers.Records.
func (s *Servers) Put(_ context.Context, r servers.Record) (int64, error) {
	if err := r.Check(); err != nil {
		return 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.records[r.Key].Version != r.Version {
		return 0, servers.ErrChanged
	}
	s.version++
	r.Version, r.Data = s.version, bytes.Clone(r.Data)
	s.records[r.Key] = r
	return r.Version, nil
}

// Changes implements servers.Records.
func (s *Servers) Changes(_ context.Context, after int64, limit int) (list []servers.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after >= s.version {
		return nil, nil
	}
	for _, r := range s.records {
		if r.Version > after {
			r.Data = bytes.Clone(r.Data)
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b servers.Record) int { return cmp.Compare(a.Version, b.Version) })
	return list[:min(limit, len(list))], nil
}

// Reserve implements servers.Store.
func (s *Servers) Reserve(_ context.Context, now, until time.Time, key string, n, limit int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c, ok := s.counts[key]
	if !ok || !now.Before(c.until) {
		s.dropCounts(now)
		c = count{until: until}
	}
	added := max(min(n, limit-c.n), min(0, max(n, -c.n)))
	c.n += added
	s.counts[key] = c
	return added, nil
}

// dropCounts removes the counts that are over.
func (s *Servers) dropCounts(now time.Time) {
	for key, c := range s.counts {
		if !now.Before(c.until) {
			delete(s.counts, key)
		}
	}
}

// Secret implements servers.Store.
func (s *Servers) Secret(_ context.Context, name string, fresh []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.secrets[name] == nil {
		s.secrets[name] = bytes.Clone(fresh)
	}
	return bytes.Clone(s.secrets[name]), nil
}

// Presence is a workers.Presence, for servers in one process. It is safe for concurrent use.
type Presence struct {
	mu   sync.Mutex
	rows map[presenceKey]workers.Row
}

type presenceKey struct {
	workers.Key
	server string
}

var _ workers.Presence = (*Presence)(nil)

// NewPresence returns an empty store.
func NewPresence() *Presence { return &Presence{rows: map[presenceKey]workers.Row{}} }

// Put implements workers.Presence.
func (p *Presence) Put(_ context.Context, now queue.Instant, rows []workers.Row) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, r := range p.rows {
		if r.AliveUntil <= now {
			delete(p.rows, k)
		}
	}
	for _, r := range rows {
		r.Stops = slices.Clone(r.Stops)
		p.rows[presenceKey{r.Key, r.Server}] = r
	}
	return nil
}

// Remove implements workers.Presence.
func (p *Presence) Remove(_ context.Context, keys []workers.Key) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k := range p.rows {
		if slices.Contains(keys, k.Key) {
			delete(p.rows, k)
		}
	}
	return nil
}

// List implements workers.Presence.
func (p *Presence) List(_ context.Context, now queue.Instant) (list []workers.Row, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.rows {
		if r.AliveUntil > now {
			r.Stops = slices.Clone(r.Stops)
			list = append(list, r)
		}
	}
	slices.SortFunc(list, func(a, b workers.Row) int {
		return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Server, b.Server))
	})
	return list, nil
}
