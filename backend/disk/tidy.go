package disk

import (
	"context"
	"time"
)

const (
	// tidyFrom is how many bytes must have been deleted before their space is won back at once, and
	// tidyLater how many are worth it after a while without more.
	tidyFrom  = 32 << 20
	tidyLater = 1 << 20
	tidyIdle  = 20 * time.Second
	// tidyRest is how many times longer than the last one the next compaction waits, and tidyMost is
	// the longest wait.
	tidyRest = 10
	tidyMost = 10 * time.Second
	// tidyAfter is how long compactions go on when the disk has room again.
	tidyAfter = time.Minute
	// deadFrom is how many bytes may be dead before payloads are compacted, if that is more than half
	// of those that are not.
	deadFrom = 8 << 20
)

// deleted counts bytes of payloads that were deleted. The database keeps their space until it
// drops the tables that have them.
func (p *space) deleted(n int64) {
	if n > 0 && p.gone.Add(n) >= tidyFrom {
		p.wakeTidy()
	}
}

func (p *space) wakeTidy() {
	select {
	case p.tidy <- struct{}{}:
	default:
	}
}

// tidyLoop wins the space back that deleted payloads had. The database drops the table of a large
// payload without a compaction when the table with its deletion is written, so that is done from
// time to time. Other payloads share tables. They are compacted when much of what is kept is dead,
// or while the disk is nearly full. The latter goes on for a while after that: a compaction may end
// the shortage while somebody still deletes, and what was deleted behind it would keep its space.
func (s *Store) tidyLoop(ctx context.Context) {
	for last := (time.Time{}); ctx.Err() == nil; {
		s.awaitTidy(ctx)
		s.space.budget.Store(0)
		now := s.opts.Clock.Now()
		if s.space.short() {
			last = now
		}
		short := now.Sub(last) <= tidyAfter && s.space.gone.Load() >= tidyLater
		e, err := s.engine()
		if err != nil || ctx.Err() != nil {
			continue
		}
		if s.space.gone.Load() >= tidyLater {
			s.space.gone.Store(0)
			err = e.db.Flush()
		}
		if err == nil && (short || e.muchIsDead()) {
			from, to := prefixRange([]byte{keyBody})
			err = e.db.Compact(ctx, from, to, false)
		}
		if err != nil && ctx.Err() == nil {
			s.opts.Logger.Warn("no space was won from what was deleted", "dir", s.dir, "err", err)
		}
		s.pause(ctx, min(tidyRest*s.opts.Clock.Now().Sub(now), tidyMost))
	}
}

// awaitTidy waits until there is something to do for tidyLoop, or until it is worth a look.
func (s *Store) awaitTidy(ctx context.Context) {
	wake := make(chan struct{})
	stop := s.opts.Clock.AfterFunc(s.opts.Clock.Now().Add(tidyIdle), func() { close(wake) })
	defer stop()
	select {
	case <-ctx.Done():
	case <-wake:
	case <-s.space.tidy:
	}
}

// dead returns about how many bytes of the tables are of what was deleted, and how many are not.
func (e *engine) dead() (dead, live int64) {
	m := e.db.Metrics()
	dead = int64(m.Table.Garbage.PointDeletionsBytesEstimate + m.Table.Garbage.RangeDeletionsBytesEstimate)
	for _, level := range m.Levels {
		live += level.AggregateSize()
	}
	return dead, max(live-dead, 0)
}

func (e *engine) muchIsDead() bool {
	dead, live := e.dead()
	return dead > max(live/2, deadFrom)
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
