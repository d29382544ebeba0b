package process

import (
	"net"
	"strconv"
	"time"

	"github.com/podyard/podyard/pods"
)

// minReadyTime is how long a pod without ports must run to be healthy.
const minReadyTime = 100 * time.Millisecond

// healthy waits until x counts as healthy. It reports false when x has ended before.
func (r *Runtime) healthy(x *proc, ports []pods.PortMapping) bool {
	i := firstTCP(ports)
	if i < 0 {
		return x.runsFor(minReadyTime)
	}
	addr := net.JoinHostPort(ports[i].IP, strconv.Itoa(ports[i].Public))
	deadline := time.Now().Add(r.opts.ReadyTimeout)
	for pause := 5 * time.Millisecond; time.Now().Before(deadline); pause = min(2*pause, 100*time.Millisecond) {
		if accepts(addr) {
			return !x.Over()
		}
		if !x.runsFor(min(pause, time.Until(deadline))) {
			return false
		}
	}
	return !x.Over()
}

// runsFor waits for d and reports whether x still runs.
func (x *proc) runsFor(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-x.Ended:
		return false
	}
}

// accepts reports whether a program listens at addr.
func accepts(addr string) bool {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return false
	}
	// The system may choose the dialed port as the local one, and connect the socket to itself.
	self := c.LocalAddr().String() == c.RemoteAddr().String()
	return c.Close() == nil && !self
}
