package disk

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// The pauses of Run between attempts to recover.
const (
	minBackoff = time.Second
	maxBackoff = 10 * time.Second
	// restorePause is how often the reserve is looked at after a part of it was given up.
	restorePause = 5 * time.Second
)

// Recover opens the directory again after a failure. It returns nil if the store works.
// Acknowledged changes are there; unacknowledged changes may be there or not. Watchers are
// notified that they may have missed changes.
func (s *Store) Recover(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	old := s.current.Load()
	if old.err() == nil {
		s.space.reserve.restore()
		return nil
	}
	if err := old.stop(); err != nil {
		return fmt.Errorf("disk: give %q up: %w", s.dir, err)
	}
	e, err := s.start(ctx)
	if err != nil {
		return fmt.Errorf("disk: recover %q: %w", s.dir, err)
	}
	s.current.Store(e)
	s.space.reserve.restore()
	s.opts.Logger.Info("the store works again", "dir", s.dir)
	s.podHub.Notify(nil)
	s.jobHub.Notify([]queue.Event{{Kind: queue.EventGap}})
	return nil
}

// Run recovers the store after every failure, with growing pauses from 1 to 10 seconds, until
// ctx ends or the store is closed. It returns nil.
//
// While Run runs, what finds no room on the disk waits for it, and the store goes on to be read.
// Without Run that is a failure.
func (s *Store) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var tidying sync.WaitGroup
	defer tidying.Wait()
	defer cancel()
	tidying.Go(func() { s.tidyLoop(ctx) })
	tidying.Go(func() { s.restoreLoop(ctx) })
	s.running.Add(1)
	defer s.running.Add(-1)
	pause := minBackoff
	for {
		if s.Err() == nil {
			select {
			case <-ctx.Done():
				return nil
			case <-s.failed:
				pause = minBackoff
			}
		}
		err := s.Recover(ctx)
		if err == nil {
			continue
		}
		if errors.Is(err, ErrClosed) {
			return nil
		}
		s.opts.Logger.Error("the store is not back", "dir", s.dir, "err", err)
		if s.pause(ctx, pause); ctx.Err() != nil {
			return nil
		}
		pause = min(2*pause, maxBackoff)
	}
}

// restoreLoop makes the reserve again when there is room.
func (s *Store) restoreLoop(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.space.reserve.given:
		}
		for !s.space.reserve.restore() && ctx.Err() == nil {
			s.pause(ctx, restorePause)
		}
	}
}
