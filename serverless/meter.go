package serverless

import (
	"context"
	"slices"
	"time"
)

// A WorkerUse is a span of time in which the fleet had a worker, and what that took:
// from when the fleet accepted it to when it had ended, or was gone.
type WorkerUse struct {
	Endpoint string
	Worker   WorkerID
	Owner    string // of the endpoint; empty: shared, or not known any more
	From     time.Time
	To       time.Time // zero: it goes on
	GPUType  string
	GPUs     int
	CPU      string // flavor, of a worker without GPUs
	VCPUs    int
	Disk     int // GB
}

// A Meter keeps what workers take.
type Meter interface {
	// Observe is told which workers of the fleet there are at an instant: uses has all of
	// them, and those that ended since the last call that returned nil. Of a worker that an
	// earlier process started From is when this one found it: who knows it from an earlier
	// call knows better what it takes, since when and for whom. A worker that an earlier
	// call had and this one has not is gone, and nobody saw when.
	//
	// Calls come one after the other: within a second of a change, every minute while there
	// are workers (in lockstep when Measure is called instead), and when Run ends. The first one comes when the fleet has said what it
	// has.
	Observe(ctx context.Context, at time.Time, uses []WorkerUse) error
}

const (
	meterPeriod = time.Minute // how often the meter is told that nothing has changed
	meterPause  = time.Second // so often it is told at most
)

// belong notes whose worker h is, if that was not known: it was adopted.
func (h *hand) belong(e *Endpoint) {
	if h.use.Owner == "" {
		h.use.Owner, h.use.Disk = e.Owner, e.Container.Disk
	}
}

// measure notes what the fleet says that the worker takes.
func (f *workforce) measure(h *hand) {
	u, w := &h.use, &h.seen
	if u.Worker == "" {
		u.Endpoint, u.Worker = h.endpoint, h.id
		f.turn()
	}
	if w.GPUs != 0 || w.VCPUs != 0 {
		u.GPUType, u.GPUs, u.CPU, u.VCPUs = w.GPUType, w.GPUs, w.CPU, w.VCPUs
	}
}

// metered reports whether the meter is told of h: the fleet has it, and has said what it
// takes.
func (h *hand) metered() bool { return h.use.Worker != "" && !h.use.From.IsZero() }

// close ends the use of a worker, once.
func (f *workforce) close(h *hand, now Instant) {
	if f.meter == nil || !h.metered() || !h.use.To.IsZero() {
		return
	}
	h.use.To = now.Time()
	f.ended = append(f.ended, h.use)
	f.turn()
}

// turn has the meter told of what has begun or ended.
func (f *workforce) turn() {
	if f.meter != nil {
		f.meterAt = sooner(f.meterAt, f.told.Add(meterPause))
	}
}

// Measure tells the meter what there is now, beside what it is told of changes. It is for a
// program that calls Step with Options.Lockstep, between two of these calls.
func (s *Service) Measure(ctx context.Context) { s.tellMeter(ctx, true) }

// tellMeter tells the meter what there is, when it is time; at the end of the service in
// any case.
func (s *Service) tellMeter(ctx context.Context, last bool) {
	f := &s.force
	f.mu.Lock()
	now := s.now() // not before what has moved
	if f.meter == nil || !f.known || !last && (f.meterAt == 0 || f.meterAt > now) {
		f.mu.Unlock()
		return
	}
	ended := len(f.ended)
	uses := f.uses()
	f.told, f.meterAt = now, 0
	if len(uses) > ended {
		f.meterAt = f.patrol(now, meterPeriod)
	}
	f.mu.Unlock()
	err := f.meter.Observe(ctx, now.Time(), uses)
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil {
		f.turn()
		if ctx.Err() == nil {
			s.log.Error("metering workers failed", "err", err)
		}
		return
	}
	f.ended = f.ended[ended:]
}

// uses is what ended and the meter was not told of, and then what goes on.
func (f *workforce) uses() []WorkerUse {
	uses := slices.Clone(f.ended)
	for _, q := range f.squads {
		for _, h := range q.hands {
			if h.metered() && h.use.To.IsZero() {
				uses = append(uses, h.use)
			}
		}
	}
	return uses
}
