package fleet

import (
	"context"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A WorkerUse is a time span in which the fleet had a worker, and the resources of the
// worker. The span is from the start that the fleet accepted to the end of the worker.
type WorkerUse struct {
	Endpoint string
	Worker   queue.WorkerID
	Owner    string // of the endpoint; empty: shared, or no longer known
	From     time.Time
	To       time.Time // zero: the worker still runs
	GPUType  string
	GPUs     int
	CPU      string // flavor, for a worker without GPUs
	VCPUs    int
	Disk     int // GB
}

// A Meter records the use of resources by workers, for billing.
type Meter interface {
	// Observe reports the workers of the fleet at an instant. uses has all of them, and the
	// workers that have ended since the last call that returned nil. For an adopted worker of
	// an earlier process, From is the time of its adoption; prefer an earlier record of its
	// resources, start and owner. A worker that an earlier call had and this call lacks is
	// gone, at an unknown time.
	//
	// Calls do not overlap. There is one within a second of a change, one every minute while
	// there are workers (for a Deterministic scaler: one when Measure is called), and one
	// when the service ends. The first call comes after the first list of the fleet.
	Observe(ctx context.Context, at time.Time, uses []WorkerUse) error
}

const (
	meterPeriod = time.Minute // between two calls of the meter without a change
	meterPause  = time.Second // shortest time between two calls of the meter
)

// A ledger has what the next call of the meter reports.
type ledger struct {
	metered bool          // there is a meter
	ended   []WorkerUse   // workers that have ended and were not reported
	called  queue.Instant // time of the last call
	next    queue.Instant // time of the next call; 0: when a use begins or ends
}

// note records the use that begins or ends with a transition of w.
func (l *ledger) note(w *worker, do effect, now queue.Instant) {
	if do&doUseStart != 0 {
		w.startUse(now)
		l.changed()
	}
	if do&doUseEnd == 0 {
		return
	}
	if u, ok := w.endUse(now); ok && l.metered {
		l.ended = append(l.ended, u)
		l.changed()
	}
}

// changed schedules a call of the meter.
func (l *ledger) changed() {
	if l.metered {
		l.next = queue.Sooner(l.next, l.called.Add(meterPause))
	}
}

func (l *ledger) isDue(now queue.Instant, last bool) bool {
	return l.metered && (last || l.next != 0 && l.next <= now)
}
