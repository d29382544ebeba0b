package httpapi

import (
	"context"
	"errors"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
)

// waitContext returns the context of a request that a service holds for d by its own clock.
// If that clock is not the system's, the context ends after d of wall time at the latest,
// because a clock that stands still must not hold a client forever.
func (c *call) waitContext(d time.Duration) (context.Context, context.CancelFunc) {
	if c.clock == (clock.System{}) {
		return c.r.Context(), func() {}
	}
	return context.WithTimeout(c.r.Context(), d)
}

// clockWaitContext is waitContext for a service call that waits until its context ends.
func (c *call) clockWaitContext(d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := c.waitContext(d)
	ctx, stop := clock.WithDeadline(ctx, c.clock, c.clock.Now().Add(d))
	return ctx, func() { stop(); cancel() }
}

// refusalWait is how long an error is delayed if a stock worker would repeat the request at
// once (docs/decisions.md 34).
const refusalWait = 5 * time.Second

// slowDown delays an error that only time or another user can change. The delay ends early
// if the client disconnects or the server stops.
func (c *call) slowDown(err error) {
	switch kind := problem.KindOf(err); {
	case kind == problem.Unauthorized, kind == problem.Forbidden, kind == problem.NotFound, kind == problem.Unavailable, kind == problem.TooManyRequests, errors.Is(err, errBalanced):
		ctx, cancel := c.clockWaitContext(refusalWait)
		defer cancel()
		<-ctx.Done()
	}
}
