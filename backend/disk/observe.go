package disk

import (
	"context"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

var (
	_ queue.Reporter = (*Jobs)(nil)
	_ queue.Measurer = (*Jobs)(nil)
)

// Report implements queue.Reporter.
func (q *Jobs) Report(f func([]queue.Moved)) {
	q.s.moved = f
	if list := q.s.recovered; len(list) > 0 {
		q.s.recovered = nil
		f(list)
	}
}

// reportMoves reports moves that were committed.
func (s *Store) reportMoves(ms []move) {
	if s.moved == nil {
		return
	}
	var list []queue.Moved
	for k := range ms {
		if m := &ms[k]; m.eff != 0 {
			list = append(list, queue.Moved{Ref: m.ref, Kind: m.op.Kind, State: m.after, Effect: m.eff})
		}
	}
	if len(list) > 0 {
		s.moved(list)
	}
}

// reportResults is reportMoves for ops that the store has made itself. Those of the opening
// wait for Report.
func (s *Store) reportResults(ops []queue.Op, res []queue.Result) {
	var list []queue.Moved
	for k := range ops {
		if r := &res[k]; r.Effect != 0 {
			list = append(list, queue.Moved{Ref: ops[k].Ref, Kind: ops[k].Kind, State: r.State, Effect: r.Effect})
		}
	}
	switch {
	case len(list) == 0:
	case s.moved != nil:
		s.moved(list)
	default:
		s.recovered = append(s.recovered, list...)
	}
}

// commitBegins returns the time, if somebody wants to know how long commits take.
func (s *Store) commitBegins() (t time.Time) {
	if s.opts.Observer != nil {
		t = s.opts.Clock.Now()
	}
	return t
}

func (s *Store) commitEnds(g *group) {
	if s.opts.Observer != nil {
		s.opts.Observer.StoreCommitted(s.opts.Clock.Now().Sub(g.began), g.changes)
	}
}

// Damages returns how many records and files this process has found damaged.
func (s *Store) Damages() int64 { return s.damages.Load() }

// Size returns how many bytes the files of the database have, or 0 if the store has failed.
func (s *Store) Size() int64 {
	e, err := s.engine()
	if err != nil || e.err() != nil {
		return 0
	}
	return int64(e.db.Metrics().DiskSpaceUsage())
}

// Dead returns about how many bytes the files have of what was deleted. A store that runs wins them
// back (see [Store.Run]).
func (s *Store) Dead() int64 {
	e, err := s.engine()
	if err != nil {
		return 0
	}
	dead, _ := e.dead()
	return dead + s.space.gone.Load()
}

// Load implements queue.Measurer.
func (q *Jobs) Load(context.Context) (l queue.Load, err error) {
	e, err := q.s.engine()
	if err != nil {
		return l, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	l.Undrained, l.Deliveries = e.jobs.x.Undrained(), len(e.jobs.outbox.by)
	for _, n := range e.jobs.outbox.by {
		l.OldestDelivery = queue.Sooner(l.OldestDelivery, e.jobs.outbox.list[n].since)
	}
	return l, nil
}

// Priorities implements queue.Measurer.
func (q *Jobs) Priorities(_ context.Context, endpoint string) (n [queue.MaxPriority + 2]int64, err error) {
	e, err := q.s.engine()
	if err != nil {
		return n, err
	}
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.Priorities(endpoint), nil
}
