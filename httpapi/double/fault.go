package double

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/faultplan"
)

// The faults by name. At most one fault of requests applies to a request: the first that was
// set.
const (
	FaultStatus          = "status"                // the answer is Status, 500 by default, and nothing happens
	FaultRateLimited     = "rate-limited"          // 429 with RetryAfter, and nothing happens
	FaultExpiredKey      = "expired-key"           // 401, as for a key that has expired
	FaultForbidden       = "forbidden"             // 403, as for a key without the scope
	FaultLatency         = "latency"               // the request waits for Delay, in virtual or wall time
	FaultGateway         = "gateway-error"         // the answer is Status, 502 by default, with an HTML page, and nothing happens
	FaultReset           = "connection-reset"      // the connection is reset before the request is looked at
	FaultEmpty           = "empty-answer"          // the connection is closed before the request is looked at
	FaultNoAnswer        = "no-answer"             // nothing happens for Delay, then the connection is closed
	FaultNoHTTP          = "garbage-answer"        // what arrives is not HTTP, and nothing happens
	FaultSlowBody        = "slow-body"             // the request has its effect, and the answer comes in parts of Bytes with Delay between
	FaultTruncated       = "truncated-body"        // the request has its effect, and Bytes of the answer arrive, by default half of it
	FaultGarbage         = "garbage-body"          // the request has its effect, and the answer is not JSON
	FaultLostAnswer      = "lost-acknowledgement"  // the request has its effect, and the answer is lost with the connection
	FaultStore           = "store-unavailable"     // every store fails: 503, as when the real one fails
	FaultNoCapacity      = "no-capacity"           // hosts in DataCenter are full; empty: all are
	FaultPull            = "pull-failure"          // a container of Image cannot be pulled
	FaultUnhealthy       = "never-healthy"         // a container of Image starts and never becomes healthy
	FaultCrash           = "pod-crash"             // a container of Image runs and ends with status 1 after a second
	FaultOOM             = "pod-out-of-memory"     // a container of Image runs and is killed for its memory after a second
	FaultWorkerDies      = "worker-dies"           // the worker that takes the job is lost after Chunks chunks
	FaultJobFails        = "job-fails"             // the result of a worker arrives as a failure
	FaultScheduleMissed  = "schedule-missed"       // an instant of a schedule passes as without a server
	FaultBalancedWorker  = "http-worker-down"      // the worker of a load-balancing endpoint closes the connection
	FaultBalancedHealth  = "http-worker-unhealthy" // a health check of the worker of a load-balancing endpoint has the answer Status, 500 by default
	FaultWebhookDown     = "webhook-down"          // the receiver of the webhook refuses the connection
	FaultWebhookStatus   = "webhook-status"        // the receiver of the webhook answers Status, 500 by default
	FaultWebhookLost     = "webhook-lost-answer"   // the receiver gets the webhook, its answer is lost, and the webhook is sent again
	faultsOfRequestsLast = FaultLostAnswer
)

// A FaultName is a name with its description.
type FaultName struct {
	Name string `json:"name"`
	Does string `json:"does"`
}

var faultNames = [...]FaultName{
	{FaultStatus, "the answer is status (500 by default), and nothing happens"},
	{FaultRateLimited, "the answer is 429 with retryAfter seconds (1 by default), and nothing happens"},
	{FaultExpiredKey, "the answer is 401, as for a key that has expired"},
	{FaultForbidden, "the answer is 403, as for a key without the scope"},
	{FaultLatency, "the request waits for delay of virtual or wall time, whichever passes first, and goes on"},
	{FaultGateway, "the answer is status (502 by default) with a page in HTML, and nothing happens"},
	{FaultReset, "the connection is reset, and nothing happens"},
	{FaultEmpty, "the connection is closed without an answer, and nothing happens"},
	{FaultNoAnswer, "the connection is closed without an answer after delay of virtual or wall time, and nothing happens"},
	{FaultNoHTTP, "what arrives is not HTTP, and nothing happens"},
	{FaultSlowBody, "it is done, and the body of the answer arrives in pieces of bytes (1 by default) with delay of virtual or wall time between them"},
	{FaultTruncated, "it is done, and bytes (half by default) of the body of the answer arrive"},
	{FaultGarbage, "it is done, and the body of the answer is not JSON"},
	{FaultLostAnswer, "it is done, and the connection is closed without an answer"},
	{FaultStore, "every store fails beneath the handler: 503, as when the real one fails"},
	{FaultNoCapacity, "the hosts in dataCenter (all by default) are full for whatever needs room: a pod that is made, started or reset (400), a worker"},
	{FaultPull, "containers of image (all by default) cannot be pulled: the pod ends in ERROR"},
	{FaultUnhealthy, "containers of image never become healthy: the pod stays STARTING"},
	{FaultCrash, "containers of image end with exit status 1 after a second of being up"},
	{FaultOOM, "containers of image are killed for their memory after a second of being up"},
	{FaultWorkerDies, "the worker that takes the job is lost once it has sent chunks chunks; a worker of an image that gets a request of a load-balancing endpoint ends at once: 502"},
	{FaultJobFails, "the worker reports a failure instead of its result: the job has its next attempt or fails for good, with a dead letter where its queue keeps them"},
	{FaultScheduleMissed, "schedules of the endpoint submit nothing for a minute and a second, as when no server runs: then catchUp decides"},
	{FaultBalancedWorker, "the worker of a load-balancing endpoint closes the connection of the request without an answer: 502"},
	{FaultBalancedHealth, "a health check of a worker of a load-balancing endpoint is answered with status (500 by default), so it gets no requests"},
	{FaultWebhookDown, "the receiver of the webhook refuses the connection"},
	{FaultWebhookStatus, "the receiver of the webhook answers status (500 by default)"},
	{FaultWebhookLost, "the receiver has the webhook, and its answer is lost: it comes again"},
}

// FaultNames returns all faults.
func FaultNames() []FaultName { return slices.Clone(faultNames[:]) }

// A Fault is a failure of everything that it matches. Fields that its name does not use are
// ignored.
type Fault struct {
	Name string
	// Count is how often it happens before it is removed. 0: until it is cleared. It counts
	// where it has an effect: FaultStore for a request that uses a store, FaultNoCapacity for
	// one that needs capacity.
	Count int
	// Probability that it happens where it matches, by the seed. 0 means always.
	Probability float64

	// What it matches. Empty fields match everything.
	Operation  string // of requests: the name of an httpapi.Operation
	Endpoint   string
	Key        string // of requests: their key
	DataCenter string // of FaultNoCapacity
	Image      string // of the faults of pods: a pattern in which '*' stands for any characters

	Status     int           // of FaultStatus, FaultGateway and FaultWebhookStatus
	RetryAfter int           // seconds
	Delay      time.Duration // of FaultLatency, FaultNoAnswer and FaultSlowBody, which need one
	Bytes      int           // of FaultSlowBody and FaultTruncated
	Chunks     int           // of FaultWorkerDies
}

// check returns an error for an invalid fault.
func (f *Fault) check() error {
	i := slices.IndexFunc(faultNames[:], func(n FaultName) bool { return n.Name == f.Name })
	switch {
	case i < 0:
		var names []string
		for _, n := range faultNames {
			names = append(names, n.Name)
		}
		return fmt.Errorf("double: fault %.100q: must be one of %s", f.Name, strings.Join(names, ", "))
	case f.Count < 0:
		return fmt.Errorf("double: fault %q: count must not be negative", f.Name)
	case f.Probability < 0 || f.Probability > 1:
		return fmt.Errorf("double: fault %q: probability must be from 0 to 1", f.Name)
	case f.Operation != "" && httpapi.Operations().Named(f.Operation) == nil:
		return fmt.Errorf("double: fault %q: there is no operation %.100q", f.Name, f.Operation)
	case f.Status != 0 && (f.Status < 200 || f.Status > 599):
		return fmt.Errorf("double: fault %q: status must be from 200 to 599", f.Name)
	case f.RetryAfter < 0 || f.Delay < 0 || f.Bytes < 0 || f.Chunks < 0:
		return fmt.Errorf("double: fault %q: retryAfter, delay, bytes and chunks must not be negative", f.Name)
	case (f.Name == FaultLatency || f.Name == FaultNoAnswer || f.Name == FaultSlowBody) && f.Delay == 0:
		return fmt.Errorf("double: fault %q: delay is required", f.Name)
	}
	return nil
}

// isOfRequest reports whether f is a fault of requests. Those come first in the table.
func (f *Fault) isOfRequest() bool {
	for _, n := range faultNames {
		if n.Name == f.Name {
			return true
		}
		if n.Name == faultsOfRequestsLast {
			return false
		}
	}
	return false
}

// An ActiveFault is a fault that was set and not cleared.
type ActiveFault struct {
	ID    int
	Fault Fault
	Hits  int // how often it happened
}

// faults are the faults of a server. backend/fault uses the same engine.
type faults struct{ plan *faultplan.Plan[Fault] }

func newFaults(seed uint64) *faults { return &faults{faultplan.New[Fault](seed)} }

func (f *faults) add(x Fault) (id int, err error) {
	if err := x.check(); err != nil {
		return 0, err
	}
	return f.plan.Add(faultplan.Rule[Fault]{Fault: x, Odds: x.Probability, Times: x.Count}), nil
}

// active returns the faults that are not used up.
func (f *faults) active() []ActiveFault {
	list := []ActiveFault{}
	for _, e := range f.plan.Entries() {
		if !e.Spent() {
			list = append(list, ActiveFault{e.ID, e.Rule.Fault, e.Hits})
		}
	}
	return list
}

// hit returns the first fault that is wanted and happens; nil: none.
func (f *faults) hit(wanted func(*Fault) bool) *Fault {
	return f.draw(func(_ int, x *Fault) bool { return wanted(x) })
}

func (f *faults) draw(wanted func(id int, f *Fault) bool) *Fault {
	x, ok := f.plan.Draw(wanted)
	if !ok {
		return nil
	}
	return &x
}

// of is hit for a name and an endpoint.
func (f *faults) of(name, endpoint string) *Fault {
	return f.hit(func(x *Fault) bool {
		return x.Name == name && (x.Endpoint == "" || x.Endpoint == endpoint)
	})
}

// matches reports whether the fault matches a request.
func (f *Fault) matches(x *exchange) bool {
	return (f.Operation == "" || f.Operation == x.name()) &&
		(f.Endpoint == "" || f.Endpoint == x.endpoint) && (f.Key == "" || f.Key == x.key)
}
