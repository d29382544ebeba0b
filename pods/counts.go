package pods

import (
	"sync"
	"time"

	"github.com/podyard/podyard/pods/telemetry"
)

// calls has the counts of each host.
type calls struct {
	mu sync.Mutex
	of map[string]*telemetry.CallCounts
}

func (c *calls) update(host string, fn func(*telemetry.CallCounts)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := c.of[host]
	if n == nil {
		if c.of == nil {
			c.of = map[string]*telemetry.CallCounts{}
		}
		n = &telemetry.CallCounts{}
		c.of[host] = n
	}
	fn(n)
}

func (c *calls) add(host, call string, at time.Time, err error) {
	c.update(host, func(n *telemetry.CallCounts) {
		n.Calls++
		if err != nil {
			n.Failed++
			failed(n, call, at, err)
		}
	})
}

func (c *calls) watchRestarted(host string, at time.Time, err error) {
	c.update(host, func(n *telemetry.CallCounts) {
		n.WatchRestarts++
		if err != nil {
			failed(n, "watch", at, err)
		}
	})
}

func failed(n *telemetry.CallCounts, call string, at time.Time, err error) {
	n.Last = telemetry.CallFailure{At: at, Call: call, Error: firstBytes(err.Error(), maxFailure)}
}

func (c *calls) read(host string) telemetry.CallCounts {
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := c.of[host]; n != nil {
		return *n
	}
	return telemetry.CallCounts{}
}
