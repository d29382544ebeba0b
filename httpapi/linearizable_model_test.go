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

// A verb is an operation of a client on a job.
type verb string

const (
	submits    verb = "submit"
	looks      verb = "status"
	cancels    verb = "cancel"
	retries    verb = "retry"
	purges     verb = "purge"
	takes      verb = "take"     // by a worker, as are the next three
	completes  verb = "complete" // with a value
	fails      verb = "fail"     // with a value as the error
	proceeds   verb = "progress" // with a value as the interim output
	inQueue         = "IN_QUEUE" // of a job
	inProgress      = "IN_PROGRESS"
	completed       = "COMPLETED"
	failed          = "FAILED"
	cancelled       = "CANCELLED"
)

// A clientOp is an operation with its arguments.
type clientOp struct {
	verb   verb
	worker string // the worker, for worker operations
	value  string // the value in its report
}

func (d clientOp) String() string {
	return strings.TrimSpace(strings.Join([]string{string(d.verb), d.worker, d.value}, " "))
}

// A jobView is a job as a client sees it. The zero value is a job that does not exist.
type jobView struct{ Status, Worker, Output, Error string }

// An opResult is the answer to an operation. The result of a failed call is unknown: it may
// have taken effect, may do so later, or never.
type opResult struct {
	unknown bool
	job     jobView // of status
	status  string  // of cancel
	done    bool    // of retry, take and reports: it was accepted
	removed int     // of purge
}

func (r opResult) String() string {
	if r.unknown {
		return "no answer"
	}
	switch {
	case r.job != (jobView{}):
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

// after returns the job after an operation, and the operation's answer. It follows
// docs/interface.md 3.2 and 4.2 for one job, without the passing of time.
func (j jobView) after(d clientOp) (jobView, opResult) {
	held := j.Status == inProgress && j.Worker == d.worker
	switch d.verb {
	case submits:
		if j.Status == "" {
			return jobView{Status: inQueue}, opResult{done: true}
		}
	case looks:
		return j, opResult{job: j}
	case cancels:
		if j.Status == inQueue || j.Status == inProgress {
			return jobView{Status: cancelled, Worker: j.Worker}, opResult{status: cancelled}
		}
		return j, opResult{status: j.Status}
	case retries:
		if j.Status == failed {
			return jobView{Status: inQueue}, opResult{done: true}
		}
	case purges:
		if j.Status == inQueue {
			return jobView{Status: cancelled}, opResult{removed: 1}
		}
	case takes:
		if j.Status == inQueue {
			return jobView{Status: inProgress, Worker: d.worker}, opResult{done: true}
		}
	case completes:
		if held {
			return jobView{Status: completed, Worker: d.worker, Output: d.value}, opResult{done: true}
		}
	case fails:
		if held {
			return jobView{Status: failed, Worker: d.worker, Error: d.value}, opResult{done: true}
		}
	case proceeds:
		if held {
			return jobView{Status: inProgress, Worker: d.worker, Output: d.value}, opResult{done: true}
		}
	}
	return j, opResult{}
}

// oneJob models the operations on one job, one after the other.
func oneJob() porcupine.Model {
	return porcupine.Model{
		Init: func() any { return jobView{} },
		Step: func(state, input, output any) (bool, any) {
			next, want := state.(jobView).after(input.(clientOp))
			got := output.(opResult)
			return got.unknown || got == want, next
		},
	}
}

// A jobHistory is all operations on one job. Call and Return number the starts and answers
// of all clients in one order.
type jobHistory struct {
	endpoint string
	ops      []porcupine.Operation
}

// neverReturned is the Return of a failed call: its effect may happen at any later time.
const neverReturned = math.MaxInt64

// check reports whether the answers are linearizable: they are the answers of some sequence
// in which each operation takes effect between its call and its return.
func (c *jobHistory) check(t *testing.T) bool {
	t.Helper()
	switch porcupine.CheckOperationsTimeout(oneJob(), c.ops, time.Minute) {
	case porcupine.Ok:
		return true
	case porcupine.Unknown:
		t.Errorf("whether this is one deed after the other was not found out in a minute:\n%s", c)
	}
	return false
}

func (c *jobHistory) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "the job of %s (call, return, client, deed, answer):\n", c.endpoint)
	ops := slices.Clone(c.ops)
	slices.SortFunc(ops, func(x, y porcupine.Operation) int { return int(x.Call - y.Call) })
	for _, op := range ops {
		end := fmt.Sprint(op.Return)
		if op.Return == neverReturned {
			end = "?"
		}
		fmt.Fprintf(&b, "%5d %5s  %d: %v: %v\n", op.Call, end, op.ClientId, op.Input, op.Output)
	}
	return b.String()
}
