package disk

import (
	"context"
	"time"
)

const (
	// tidyFrom is how many bytes must have been deleted before their space is worth looking for.
	tidyFrom = 8 << 20
	// tidyRest is how many times longer than the last one the next compaction waits, and tidyMost is
	// the longest wait.
	tidyRest = 10
	tidyMost = 10 * time.Second
	// tidyAfter is how long compactions go on when the disk has room again.
	tidyAfter = time.Minute
)

// deleted counts bytes of payloads that were deleted. The database keeps their space until it
// compacts the tables that have them.
func (p *space) deleted(n int64) {
	if n > 0 {
		p.gone.Add(n)
		p.wakeTidy()
	}
}

func (p *space) wakeTidy() {
	if p.gone.Load() < tidyFrom {
		return
	}
	select {
	case p.tidy <- struct{}{}:
	default:
	}
}

// tidyLoop compacts payloads while the disk is nearly full, so that what was deleted makes room
// soon. It goes on for a while after that: a compaction may end the shortage while somebody still
// deletes, and what was deleted behind it would keep its space.
func (s *Store) tidyLoop(ctx context.Context) {
	for last := (time.Time{}); ; {
		select {
		case <-ctx.Done():
			return
		case <-s.space.tidy:
		}
		s.space.budget.Store(0)
		now := s.opts.Clock.Now()
		if s.space.short() {
			last = now
		}
		if now.Sub(last) > tidyAfter || s.space.gone.Load() < tidyFrom {
			continue
		}
		e, err := s.engine()
		if err != nil {
			continue
		}
		s.space.gone.Store(0)
		from, to := prefixRange([]byte{keyBody})
		if err := e.db.Compact(ctx, from, to, false); err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("no space was won from what was deleted", "dir", s.dir, "err", err)
		}
		s.pause(ctx, min(tidyRest*s.opts.Clock.Now().Sub(now), tidyMost))
	}
}

// pause waits for d, or until ctx ends.
func (s *Store) pause(ctx context.Context, d time.Duration) {
	wake := make(chan struct{})
	stop := s.opts.Clock.AfterFunc(s.opts.Clock.Now().Add(d), func() { close(wake) })
	select {
	case <-ctx.Done():
		stop()
	case <-wake:
	}
}
