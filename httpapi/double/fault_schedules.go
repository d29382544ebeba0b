package double

import (
	"context"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/schedules"
)

var errNoServer = problem.New(problem.Unavailable, "no server: a fault of the test double")

// outages are the endpoints whose schedules submit nothing for a while.
type outages struct {
	mu    sync.Mutex
	until map[string]time.Time
}

// mayRun is asked when an instant of a schedule has come. It fails until the instant is missed,
// where there is a fault.
func (w *instance) mayRun(ctx context.Context, user, endpoint string) (bool, error) {
	if w.outages.over(endpoint, w.clock.Now(), func() bool { return w.faults.of(FaultScheduleMissed, endpoint) != nil }) {
		return httpapi.MayRun(ctx, w.auth, user, endpoint)
	}
	return false, errNoServer
}

// over reports whether there is no outage of an endpoint. begins says that one begins now.
func (o *outages) over(endpoint string, now time.Time, begins func() bool) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	switch {
	case now.Before(o.until[endpoint]):
		return false
	case !begins():
		return true
	case o.until == nil:
		o.until = map[string]time.Time{}
	}
	o.until[endpoint] = now.Add(schedules.Grace + time.Second)
	return false
}
