package httpapi_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// A verb is what a client does with a job over HTTP.
type verb string

const (
	submits    verb = "submit"
	looks      verb = "status"
	cancels    verb = "cancel"
	retries    verb = "retry"
	purges     verb = "purge"
	takes      verb = "take"     // as a worker, as are the next ones
	completes  verb = "complete" // with a value
	fails      verb = "fail"     // with a value as the error
	proceeds   verb = "progress" // with a value as the interim output
	inQueue         = "IN_QUEUE" // of a job
	inProgress      = "IN_PROGRESS"
	completed       = "COMPLETED"
	failed          = "FAILED"
	cancelled       = "CANCELLED"
)

// A deed is what was asked.
type deed struct {
	verb   verb
	worker string // of a worker's deed
	value  string // what it reports
}

func (d deed) String() string {
	return strings.TrimSpace(strings.Join([]string{string(d.verb), d.worker, d.value}, " "))
}

// A seen is how a job looks to a client. The zero value is a job that is not there.
type seen struct{ Status, Worker, Output, Error string }

// A reply is the answer to a deed. One that is not known is that of a call that failed: it
// may have had its effect, may have it yet, or never.
type reply struct {
	unknown bool
	job     seen   // of a status
	status  string // of a cancel
	done    bool   // of a retry, a take and a report: it was accepted
	removed int    // of a purge
}

func (r reply) String() string {
	if r.unknown {
		return "no answer"
	}
	switch {
	case r.job != (seen{}):
		return strings.TrimSpace(fmt.Sprintf("%s %s %s%s", r.job.Status, r.job.Worker, r.job.Output, r.job.Error))
	case r.status != "":
		return r.status
	case r.removed > 0:
		return fmt.Sprint("removed ", r.removed)
	case r.done:
		return "done"
	}
	return "no"
}

// after is the job after a deed, and what the deed is answered with. It is sections 3.2 and
// 4.2 for one job whose time does not pass.
func (j seen) after(d deed) (seen, reply) {
	held := j.Status == inProgress && j.Worker == d.worker
	switch d.verb {
	case submits:
		if j.Status == "" {
			return seen{Status: inQueue}, reply{done: true}
		}
	case looks:
		return j, reply{job: j}
	case cancels:
		if j.Status == inQueue || j.Status == inProgress {
			return seen{Status: cancelled, Worker: j.Worker}, reply{status: cancelled}
		}
		return j, reply{status: j.Status}
	case retries:
		if j.Status == failed {
			return seen{Status: inQueue}, reply{done: true}
		}
	case purges:
		if j.Status == inQueue {
			return seen{Status: cancelled}, reply{removed: 1}
		}
	case takes:
		if j.Status == inQueue {
			return seen{Status: inProgress, Worker: d.worker}, reply{done: true}
		}
	case completes:
		if held {
			return seen{Status: completed, Worker: d.worker, Output: d.value}, reply{done: true}
		}
	case fails:
		if held {
			return seen{Status: failed, Worker: d.worker, Error: d.value}, reply{done: true}
		}
	case proceeds:
		if held {
			return seen{Status: inProgress, Worker: d.worker, Output: d.value}, reply{done: true}
		}
	}
	return j, reply{}
}

// oneJob is the life of one job, one deed after the other.
func oneJob() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return seen{} },
		Step: func(state, input, output any) (bool, any) {
			next, want := state.(seen).after(input.(deed))
			got := output.(reply)
			return got.unknown || got == want, next
		},
	}
}

// A chronicle is all that was done with one job. Call and Return number what clients began
// and what they were answered, in one order for all.
type chronicle struct {
	endpoint string
	ops      []porcupine.Operation
}

// ever is the Return of a call that failed: what it does may happen at any time.
const ever = math.MaxInt64

// check reports whether the answers are those of one deed after the other, each between its
// call and its return.
func (c *chronicle) check(t *testing.T) bool {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(oneJob(), c.ops, time.Minute) {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		t.Errorf("whether this is one deed after the other was not found out in a minute:\n%s", c)
	}
	return false
}

func (c *chronicle) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the job of %s (call, return, client, deed, answer):\n", c.endpoint)
	ops := slices.Clone(c.ops)
	slices.SortFunc(ops, func(x, y porcupine.Operation) int { return int(x.Call - y.Call) })
	for _, op := range ops {
		end := fmt.Sprint(op.Return)
		if op.Return == ever {
			end = "?"
		}
		fmt.Fprintf(&b, "%5d %5s  %d: %v: %v\n", op.Call, end, op.ClientId, op.Input, op.Output)
	}
	return b.String()
}
