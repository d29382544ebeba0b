package memory

import (
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/pods"
)

// unlockAndEnter moves c into its current stage, at once if it is due, and on from there. The
// caller holds the lock; unlockAndEnter releases it, because a clock may call back at once.
func (r *Runtime) unlockAndEnter(c *simContainer, now bool) {
	for c.stage < len(c.script.Stages) {
		s := c.script.Stages[c.stage]
		if wait := r.delay(c, s); wait > 0 && !now {
			epoch := c.epoch
			at := r.clock.Now().Add(wait)
			r.mu.Unlock()
			stop := r.clock.AfterFunc(at, func() { r.onStageTimer(c, epoch) })
			r.mu.Lock()
			if c.epoch == epoch {
				c.stop = stop
			} else {
				stop()
			}
			break
		}
		now = false
		r.enterStage(c, s)
		c.stage++
		if c.state.Phase >= pods.PhaseExited {
			break
		}
	}
	r.mu.Unlock()
	r.deliver()
}

// onStageTimer is called by the timer of the next stage.
func (r *Runtime) onStageTimer(c *simContainer, epoch uint64) {
	r.mu.Lock()
	if c.epoch != epoch {
		r.mu.Unlock()
		return
	}
	c.cancel()
	r.unlockAndEnter(c, true)
}

// delay returns how long c waits before stage s. It depends only on the seed, pod, generation
// and stage.
func (r *Runtime) delay(c *simContainer, s Stage) time.Duration {
	if s.Jitter <= 0 {
		return s.After
	}
	n := rand.New(rand.NewPCG(r.seed+uint64(c.stage), simHash(c.spec.PodID, c.spec.Gen)))
	return s.After + time.Duration(n.Int64N(int64(s.Jitter)+1))
}

// simHash returns a number that differs between pods and generations, and is the same in
// every process.
func simHash(id string, gen uint64) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(id) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return (h ^ gen) * 1099511628211
}

// enterStage applies stage s to c.
func (r *Runtime) enterStage(c *simContainer, s Stage) {
	now := r.clock.Now()
	st := c.state
	st.Phase, st.At, st.Reason = s.Phase, now, ""
	switch {
	case s.Phase == pods.PhasePulling:
		st.Reason = s.Reason
	case s.Phase >= pods.PhaseExited:
		st.ExitCode, st.OOM, st.Stopped, st.Reason = s.ExitCode, s.OOM, s.Stopped, s.Reason
		st.HostWent, st.Ports, st.IP = s.HostWent, nil, ""
	case s.Phase >= pods.PhaseStarting && c.state.Phase < pods.PhaseStarting:
		st.Started = now
	}
	if s.Phase == pods.PhaseHealthy && c.state.Phase != pods.PhaseHealthy {
		st.Ports = r.publish(c)
		if c.spec.GPUType != "" && !strings.HasPrefix(c.spec.GPUType, "AMD ") {
			st.CUDA = r.cuda
		}
		if c.spec.NetworkAlias != "" {
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
	r.undelivered = append(r.undelivered, simCopy(st))
}

func simCopy(st pods.ContainerState) pods.ContainerState {
	st.Ports = slices.Clone(st.Ports)
	return st
}

// publish returns addresses from the block for documentation, at which nothing answers. A
// port that c had before keeps its address.
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
