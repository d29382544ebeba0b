package memory

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// unlockAndEnter takes c into its present stage, now if that is due, and on from there. It is
// called with the lock and returns without: clocks call back.
func (r *Runtime) unlockAndEnter(c *simContainer, now bool) {
	for c.stage < len(c.script.Stages) {
		s := c.script.Stages[c.stage]
		if wait := r.delay(c, s); wait > 0 && !now {
			epoch := c.epoch
			at := r.clock.Now().Add(wait)
			r.mu.Unlock()
			stop := r.clock.AfterFunc(at, func() { r.reach(c, epoch) })
			r.mu.Lock()
			if c.epoch == epoch {
				c.stop = stop
			} else {
				stop()
			}
			break
		}
		now = false
		r.enter(c, s)
		c.stage++
		if c.state.Phase >= pods.Down {
			break
		}
	}
	r.mu.Unlock()
	r.deliver()
}

// reach is the timer of the next stage.
func (r *Runtime) reach(c *simContainer, epoch uint64) {
	r.mu.Lock()
	if c.epoch != epoch {
		r.mu.Unlock()
		return
	}
	c.cancel()
	r.unlockAndEnter(c, true)
}

// delay is how long c waits before stage s: the same for a seed, pod, generation and stage.
func (r *Runtime) delay(c *simContainer, s Stage) time.Duration {
	if s.Jitter <= 0 {
		return s.After
	}
	n := rand.New(rand.NewPCG(r.seed+uint64(c.stage), simMix(c.spec.PodID, c.spec.Gen)))
	return s.After + time.Duration(n.Int64N(int64(s.Jitter)+1))
}

// simMix is a number that differs between generations of pods and is the same in every
// process.
func simMix(id string, gen uint64) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(id) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return (h ^ gen) * 1099511628211
}

// enter makes c what stage s says.
func (r *Runtime) enter(c *simContainer, s Stage) {
	now := r.clock.Now()
	st := c.state
	st.Phase, st.At = s.Phase, now
	switch {
	case s.Phase >= pods.Down:
		st.ExitCode, st.OOM, st.Stopped, st.Reason = s.ExitCode, s.OOM, s.Stopped, s.Reason
		st.Ports, st.IP = nil, ""
	case s.Phase >= pods.Coming && c.state.Phase < pods.Coming:
		st.Started = now
	}
	if s.Phase == pods.Up && c.state.Phase != pods.Up {
		st.Ports = r.publish(c)
		if c.spec.GPUType != "" && !strings.HasPrefix(c.spec.GPUType, "AMD ") {
			st.CUDA = r.cuda
		}
		if c.spec.Network != "" {
			if c.ip == "" {
				c.ip = r.address()
			}
			st.IP = c.ip
		}
	}
	c.state = st
	for _, text := range s.Lines {
		c.log.add(now, text)
	}
	r.news = append(r.news, simCopy(st))
}

func simCopy(st pods.State) pods.State {
	st.Ports = slices.Clone(st.Ports)
	return st
}

// publish makes up addresses that nobody answers at, from the block for documentation. A
// port that c had before has the address that it had.
func (r *Runtime) publish(c *simContainer) []pods.PortMapping {
	var list []pods.PortMapping
	for _, p := range c.spec.Ports {
		if c.public[p] == 0 {
			if c.public == nil {
				c.public = make(map[pods.Port]int)
			}
			r.ports++
			c.public[p] = 10000 + r.ports%50000
		}
		list = append(list, pods.PortMapping{
			Private: p.Private, Protocol: p.Protocol,
			Public: c.public[p], IP: "192.0.2.1",
		})
	}
	return list
}
