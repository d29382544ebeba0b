package pods

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Source is where log lines come from.
type Source string

// The sources.
const (
	Container Source = "container" // what the container writes
	System    Source = "system"    // what happened to the pod, and why
)

// Logs yields lines of a pod of owner, as [Logs.Logs] does. With q.Follow it ends when the
// pod is terminated or ctx ends. An error of the call itself is ErrNotFound or the
// store's.
func (s *Service) Logs(ctx context.Context, owner, id string, src Source, q LogQuery) (iter.Seq2[Line, error], error) {
	p, err := s.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	switch src {
	case System:
		return s.system(ctx, owner, p, q), nil
	case Container:
		return s.container(ctx, owner, p, q), nil
	}
	return nil, problem.Newf(problem.Invalid, "unknown log source %q", string(src))
}

// system yields the journal of p.
func (s *Service) system(ctx context.Context, owner string, p *Pod, q LogQuery) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		changes, stop := s.followers.add(p.ID)
		defer stop()
		lines := after(p.Journal, q.After, q.AfterSeq)
		if q.Tail >= 0 && len(lines) > q.Tail {
			lines = lines[len(lines)-q.Tail:]
		}
		last := uint64(0)
		if n := len(p.Journal); n > 0 {
			last = p.Journal[n-1].Seq
		}
		for {
			for _, line := range lines {
				if !yield(line, nil) {
					return
				}
			}
			if !q.Follow {
				return
			}
			p, ok := s.next(ctx, owner, p.ID, changes, yield, func(p *Pod) bool {
				n := len(p.Journal)
				return n > 0 && p.Journal[n-1].Seq > last
			})
			if !ok {
				return
			}
			lines = newer(p.Journal, last)
			last = lines[len(lines)-1].Seq
		}
	}
}

// after returns the lines that come after an instant and sequence.
func after(list []Line, at time.Time, seq uint64) []Line {
	for i, l := range list {
		if l.At.After(at) || l.At.Equal(at) && l.Seq > seq {
			return list[i:]
		}
	}
	return nil
}

func newer(list []Line, seq uint64) []Line {
	for i, l := range list {
		if l.Seq > seq {
			return list[i:]
		}
	}
	return nil
}

// container yields what the container of p writes, once there is one.
func (s *Service) container(ctx context.Context, owner string, p *Pod, q LogQuery) iter.Seq2[Line, error] {
	return func(yield func(Line, error) bool) {
		changes, stop := s.followers.add(p.ID)
		defer stop()
		if q.Follow {
			ready := func(p *Pod) bool { return p.Seen.Gen != 0 }
			var ok bool
			if p, ok = s.next(ctx, owner, p.ID, changes, yield, ready); !ok {
				return
			}
		}
		h, ours := s.hosts[p.Placement.Host]
		if !ours {
			return
		}
		logs, ok := As[Logs](h.Runtime)
		if !ok {
			return
		}
		for line, err := range logs.Logs(ctx, p.ID, q) {
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// next waits until the pod is as wanted; ok is false when there is nothing to wait for
// any more.
func (s *Service) next(ctx context.Context, owner, id string, changes <-chan struct{}, yield func(Line, error) bool, wanted func(*Pod) bool) (p *Pod, ok bool) {
	for {
		p, err := s.Get(ctx, owner, id)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrNotFound):
			return nil, false
		case err != nil:
			yield(Line{}, err)
			return nil, false
		case wanted(p):
			return p, true
		}
		select {
		case <-changes:
		case <-ctx.Done():
			return nil, false
		}
	}
}

// followers are who wants to know of changes of a pod.
type followers struct {
	mu   sync.Mutex
	list map[string]map[chan struct{}]bool
}

// add returns a channel that holds a token after each change of the pod.
func (f *followers) add(id string) (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = make(map[string]map[chan struct{}]bool)
	}
	if f.list[id] == nil {
		f.list[id] = make(map[chan struct{}]bool)
	}
	f.list[id][ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.list[id], ch)
		if len(f.list[id]) == 0 {
			delete(f.list, id)
		}
	}
}

func (f *followers) notify(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for ch := range f.list[id] {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// changed wakes whoever cares for a pod: the loop and the followers of its log.
func (s *Service) changed(ids ...string) {
	for _, id := range ids {
		s.loop.push(id, nil)
		s.followers.notify(id)
	}
}
