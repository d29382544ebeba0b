package fleet

import (
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/telemetry"
)

// event adds what the observer gets of a transition. The caller holds the mutex of the table.
func (s *shared) event(w *worker, from State, e event, do effect, c cause, now queue.Instant) {
	x := telemetry.WorkerEvent{Endpoint: w.key.Endpoint, Worker: w.key.ID, At: now, Took: now.Sub(w.requested)}
	switch {
	case e == evAccepted:
		x.Change, x.Result = telemetry.WorkerStarted, telemetry.StartOK
	case e == evRefused:
		x.Change, x.Result = telemetry.WorkerStarted, telemetry.StartNoRoom
	case e == evStartFailed:
		x.Change, x.Result = telemetry.WorkerStarted, telemetry.StartFailed
	case do&doBlame != 0:
		x.Change, x.Reason = telemetry.WorkerLost, c.end
	case w.hasJoined(from):
		x.Change = telemetry.WorkerJoined
	default:
		return
	}
	s.events = append(s.events, x)
}

// hasJoined reports whether a worker that was in the state from has now asked for its first job.
func (w *worker) hasJoined(from State) bool {
	return from <= Starting && w.state >= Idle && w.state <= Draining && !w.adopted
}

// decided is event for a decision.
func (s *shared) decided(endpoint string, d *Decision) {
	s.events = append(s.events, telemetry.WorkerEvent{
		Change: telemetry.Scaled, Endpoint: endpoint, At: d.At, Want: d.Want,
		Start: d.Start, Stop: len(d.Stop), Drain: len(d.Drain), Reason: d.Reason,
	})
}

// takeEvents returns the events since the last call.
func (t *table) takeEvents() []telemetry.WorkerEvent {
	t.mu.Lock()
	defer t.mu.Unlock()
	list := t.shared.events
	t.shared.events = nil
	return list
}

func (s *Scaler) observeError(err error) {
	if s.o.Observer != nil {
		s.o.Observer.Loop(telemetry.LoopEvent{Loop: telemetry.LoopScaler, Err: err})
	}
}
