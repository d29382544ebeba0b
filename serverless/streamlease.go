package serverless

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/servers"
)

const (
	// readerPause is how long a reader waits for one of another server.
	readerPause = 50 * time.Millisecond
	// readerLease is how long a reader keeps a stream without a renewal.
	readerLease = 15 * time.Second
)

// streamAmongServers writes a part under a lease that one reader of all servers has, so that no
// item goes to two. It reads the items again, because another reader may have had them. A reader
// whose turn does not come writes an empty part.
func (s *Service) streamAmongServers(ctx context.Context, j Job, q *StreamQuery, over <-chan struct{}, write func(StreamPart) error) error {
	name := "stream/" + j.Endpoint + "/" + string(j.ID)
	for {
		l, err := s.takeReader(ctx, name)
		if err != nil {
			return fmt.Errorf("serverless: stream of job %q: %w", j.ID, err)
		}
		if l.Holder == s.server.ID() {
			defer s.keepReader(ctx, l)()
			break
		}
		if !s.waitForReader(ctx, over) {
			return s.writeEmptyPart(ctx, j, write)
		}
	}
	part, err := s.items(ctx, j, q)
	if err != nil {
		return err
	}
	return s.writePart(ctx, part, write)
}

func (s *Service) takeReader(ctx context.Context, name string) (servers.Lease, error) {
	now := s.clock.Now()
	return s.server.Store().Take(context.WithoutCancel(ctx), now, servers.Lease{Name: name, Holder: s.server.ID(), Until: now.Add(readerLease)})
}

// waitForReader waits a little. It reports false if the time of a reader is over.
func (s *Service) waitForReader(ctx context.Context, over <-chan struct{}) bool {
	again := make(chan struct{})
	defer s.clock.AfterFunc(s.clock.Now().Add(readerPause), func() { close(again) })()
	select {
	case <-again:
		return true
	case <-over:
	case <-ctx.Done():
	}
	return false
}

// keepReader renews the lease of a reader while it writes, until stop is called, which gives the
// lease back.
func (s *Service) keepReader(ctx context.Context, l servers.Lease) (stop func()) {
	ctx = context.WithoutCancel(ctx)
	ended := make(chan struct{})
	var renewals sync.WaitGroup
	renewals.Go(func() {
		for {
			again := make(chan struct{})
			cancel := s.clock.AfterFunc(s.clock.Now().Add(readerLease/3), func() { close(again) })
			select {
			case <-again:
			case <-ended:
				cancel()
				return
			}
			if _, err := s.takeReader(ctx, l.Name); err != nil {
				s.log.Warn("the lease of a reader was not renewed", "lease", l.Name, "err", err)
			}
		}
	})
	return func() {
		close(ended)
		renewals.Wait()
		if err := s.server.Store().Release(ctx, l); err != nil {
			s.log.Warn("the lease of a reader was not given back", "lease", l.Name, "err", err)
		}
	}
}
