package pods

import (
	"context"
	"errors"
	"iter"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// A LogSource is where log lines come from.
type LogSource string

// The sources.
const (
	ContainerLog LogSource = "container" // what the container writes
	SystemLog    LogSource = "system"    // what happened to the pod, and why
)

// Logs yields lines of a pod of owner, as [Logs.Logs] does. With q.Follow it ends when the
// pod is terminated or ctx ends. An error of the call itself is ErrNotFound,
// ErrHostAway where another server has the host and does not live, or the store's.
func (s *Service) Logs(ctx context.Context, owner, id string, src LogSource, q LogQuery) (iter.Seq2[LogLine, error], error) {
	p, err := s.Get(ctx, owner, id)
	if err != nil {
		return nil, err
	}
	switch src {
	case SystemLog:
		return s.systemLog(ctx, owner, p, q), nil
	case ContainerLog:
		if _, _, err := s.readers(ctx, p.Placement.Host); err != nil {
			return nil, err
		}
		return s.containerLog(ctx, owner, p, q), nil
	}
	return nil, problem.Newf(problem.Invalid, "unknown log source %q", string(src))
}

func (s *Service) systemLog(ctx context.Context, owner string, p *Pod, q LogQuery) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		changes, stop := s.subscribers.subscribe(p.ID)
		defer stop()
		lines := linesAfter(p.Journal, q.After, q.AfterSeq)
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
			p, ok := s.waitForPod(ctx, owner, p.ID, changes, yield, func(p *Pod) bool {
				n := len(p.Journal)
				return n > 0 && p.Journal[n-1].Seq > last
			})
			if !ok {
				return
			}
			lines = linesAfterSeq(p.Journal, last)
			last = lines[len(lines)-1].Seq
		}
	}
}

// linesAfter returns the lines that come after an instant and sequence.
func linesAfter(list []LogLine, at time.Time, seq uint64) []LogLine {
	for i, l := range list {
		if l.At.After(at) || l.At.Equal(at) && l.Seq > seq {
			return list[i:]
		}
	}
	return nil
}

func linesAfterSeq(list []LogLine, seq uint64) []LogLine {
	for i, l := range list {
		if l.Seq > seq {
			return list[i:]
		}
	}
	return nil
}

// containerLog yields the output of the container of p, once there is one.
func (s *Service) containerLog(ctx context.Context, owner string, p *Pod, q LogQuery) iter.Seq2[LogLine, error] {
	return func(yield func(LogLine, error) bool) {
		changes, stop := s.subscribers.subscribe(p.ID)
		defer stop()
		if q.Follow {
			ready := func(p *Pod) bool { return p.Seen.Gen != 0 }
			var ok bool
			if p, ok = s.waitForPod(ctx, owner, p.ID, changes, yield, ready); !ok {
				return
			}
		}
		logs, _, err := s.readers(ctx, p.Placement.Host)
		if err != nil {
			yield(LogLine{}, err)
			return
		}
		if logs == nil {
			return
		}
		for line, err := range logs.Logs(ctx, p.ID, q) {
			if !yield(line, err) || err != nil {
				return
			}
		}
	}
}

// waitForPod waits until wanted holds for the pod; ok is false when there is nothing to wait for
// any more.
func (s *Service) waitForPod(ctx context.Context, owner, id string, changes <-chan struct{}, yield func(LogLine, error) bool, wanted func(*Pod) bool) (p *Pod, ok bool) {
	for {
		p, err := s.Get(ctx, owner, id)
		switch {
		case ctx.Err() != nil || errors.Is(err, ErrNotFound):
			return nil, false
		case err != nil:
			yield(LogLine{}, err)
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

// subscribers are notified of changes of a pod.
type subscribers struct {
	mu       sync.Mutex
	channels map[string]map[chan struct{}]bool
}

// subscribe returns a channel that can be received from after each change of the pod.
func (f *subscribers) subscribe(id string) (changes <-chan struct{}, stop func()) {
	ch := make(chan struct{}, 1)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.channels == nil {
		f.channels = make(map[string]map[chan struct{}]bool)
	}
	if f.channels[id] == nil {
		f.channels[id] = make(map[chan struct{}]bool)
	}
	f.channels[id][ch] = true
	return ch, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.channels[id], ch)
		if len(f.channels[id]) == 0 {
			delete(f.channels, id)
		}
	}
}

func (f *subscribers) notify(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	wakeEach(f.channels[id])
}

// notifyAll is for when it is not known which pods have changed.
func (f *subscribers) notifyAll() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, channels := range f.channels {
		wakeEach(channels)
	}
}

func wakeEach(channels map[chan struct{}]bool) {
	for ch := range channels {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// notifyChanged wakes the loop and the followers of a pod's log.
func (s *Service) notifyChanged(ids ...string) {
	for _, id := range ids {
		s.loop.push(id, nil)
		s.subscribers.notify(id)
	}
}
