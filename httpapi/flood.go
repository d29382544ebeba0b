package httpapi

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// Refusals take as much work of the server as short answers. A client that repeats its requests at
// once, whatever it is answered, would take the time of others. So after freeRefusals in a second
// each refusal is delayed, longer the more there are, up to maxDelay (docs/decisions.md 37).
const (
	freeRefusals = 20
	delayStep    = 5 * time.Millisecond
	maxDelay     = time.Second
	// maxFlooders is how many users and addresses are known at once. With more, a second ends early.
	maxFlooders = 10_000
)

// floods counts the refusals of the present second by user, or by address without one. The zero
// value is ready. It is safe for concurrent use.
type floods struct {
	mu     sync.Mutex
	second int64
	counts map[string]int
}

// refused counts a refusal, and returns for how long to delay it.
func (f *floods) refused(who string, now time.Time) time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := now.Unix(); s != f.second || len(f.counts) >= maxFlooders {
		f.second, f.counts = s, map[string]int{}
	}
	f.counts[who]++
	return min(max(time.Duration(f.counts[who]-freeRefusals)*delayStep, 0), maxDelay)
}

// delayFlood delays a refusal, if the user has limits and there are many. What the request holds
// is given back before.
func (c *call) delayFlood(err error) {
	var who string
	switch kind := problem.KindOf(err); {
	case c.inFlight == nil || c.id.Exempt:
		return
	case kind == problem.Unauthorized && err != nil:
		from, err := netip.ParseAddrPort(c.r.RemoteAddr)
		if err != nil {
			return
		}
		who = " " + from.Addr().String() // no name of a user
	case kind == problem.TooManyRequests && c.inFlight.Of(c.id.User) != nil:
		who = c.id.User
	default:
		return
	}
	d := c.floods.refused(who, time.Now())
	if d == 0 {
		return
	}
	c.release()
	ctx, cancel := context.WithTimeout(c.r.Context(), d)
	defer cancel()
	<-ctx.Done()
}
