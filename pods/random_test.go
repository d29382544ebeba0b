package pods_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

// TestWhateverHappensPodsAndHostsAgreeInTheEnd makes random requests, hosts that refuse calls,
// services that crash and hosts that lose everything. Run the subtest of a seed to repeat it.
func TestWhateverHappensPodsAndHostsAgreeInTheEnd(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			c := newRandomTest(t, seed)
			for range 150 {
				c.step()
			}
			c.spy.refuse = false
			c.advance(20 * time.Minute)
			c.check()
		})
	}
}

// randomTest is the state of a random test.
type randomTest struct {
	*testEnv
	t     *testing.T
	rand  *rand.Rand
	spy   *recorder
	setup *envConfig
	ids   []string
}

func newRandomTest(t *testing.T, seed uint64) *randomTest {
	c := &randomTest{t: t, rand: rand.New(rand.NewPCG(seed, 1)), spy: &recorder{}}
	c.testEnv = newTestEnv(t, func(s *envConfig) {
		twoGPUs(s)
		s.options.WaitForCapacity = seed%2 == 0
		hosts := s.hosts
		s.hosts = func(rt pods.Runtime) []pods.Host {
			c.spy.Runtime = rt
			if seed%3 == 0 {
				c.spy.Runtime = struct{ pods.Runtime }{rt}
			}
			return hosts(c.spy)
		}
		c.setup = s
	})
	return c
}

var images = []string{"img", "img", "img", "slow/img", "ends/well", "ends/badly", "ends/unpulled", "ends/orderly"}

func (c *randomTest) step() {
	c.t.Helper()
	switch n := c.rand.IntN(20); {
	case n < 3:
		r := gpuPod()
		if c.rand.IntN(2) == 0 {
			r.GPU, r.CPU = nil, &pods.CPURequest{ID: "host", VCPU: 8}
		}
		r.Image = images[c.rand.IntN(len(images))]
		p, err := c.Create(c.t.Context(), alice, r)
		if err == nil {
			c.ids = append(c.ids, p.ID)
		}
		c.ok("create", err)
	case n < 12 && len(c.ids) > 0:
		a := actions[c.rand.IntN(len(actions))]
		_, err := c.Act(c.t.Context(), alice, c.ids[c.rand.IntN(len(c.ids))], a)
		c.ok(string(a), err)
	case n < 13 && len(c.ids) > 0:
		image := images[c.rand.IntN(len(images))]
		_, err := c.Update(c.t.Context(), alice, c.ids[c.rand.IntN(len(c.ids))], pods.UpdateRequest{Image: &image})
		c.ok("update", err)
	case n < 14:
		c.spy.refuse = !c.spy.refuse
	case n < 15:
		c.crash(c.rand.IntN(4) == 0)
	default:
		c.advance(time.Duration(c.rand.IntN(3000)) * time.Millisecond)
	}
}

// ok accepts errors that a request may return at any time.
func (c *randomTest) ok(what string, err error) {
	c.t.Helper()
	for _, allowed := range []error{nil, pods.ErrNoCapacity, pods.ErrInvalidStatus, pods.ErrNotFound} {
		if errors.Is(err, allowed) {
			return
		}
	}
	c.t.Errorf("%s = %v", what, err)
}

// crash replaces the service by another one on the same store, perhaps with an empty host.
func (c *randomTest) crash(lost bool) {
	c.t.Helper()
	if lost {
		c.runtime = memory.NewRuntime(&c.setup.runtime)
	}
	s, err := pods.New(c.store, c.setup.catalog, c.setup.hosts(c.runtime), &c.setup.options)
	if err != nil {
		c.t.Fatal(err)
	}
	c.testEnv = &testEnv{s, c.t, c.clock, c.store, c.runtime}
}

// check compares the pods, the claims and the containers when no work is left.
func (c *randomTest) check() {
	c.t.Helper()
	ctx := context.WithoutCancel(c.t.Context())
	containers := make(map[string]pods.ContainerState)
	list, err := c.runtime.List(ctx)
	if err != nil {
		c.t.Fatal(err)
	}
	for _, st := range list {
		containers[st.PodID] = st
	}
	claims := make(map[string]int64)
	for p, err := range c.store.List(ctx, pods.Filter{}) {
		if err != nil {
			c.t.Fatal(err)
		}
		for _, cl := range p.Placement.Claims {
			claims[cl.Resource] += cl.Units
		}
		st, there := containers[p.ID]
		delete(containers, p.ID)
		alive := there && st.Phase < pods.PhaseExited
		switch s := p.Status(); {
		case s == pods.Running && (st.Phase != pods.PhaseHealthy || st.Gen != p.Want.Gen || len(p.Placement.Claims) == 0):
			c.t.Errorf("pod is RUNNING with claims %v and container %+v; journal:\n%s", p.Placement.Claims, st, journal(p))
		case (s == pods.Exited || s == pods.Errored) && (alive || len(p.Placement.Claims) > 0):
			c.t.Errorf("pod is %s with claims %v and container %+v; journal:\n%s", s, p.Placement.Claims, st, journal(p))
		case s == pods.Provisioning && (p.Placement.Host != "" || alive):
			c.t.Errorf("pod is PROVISIONING on host %q with container %+v; journal:\n%s", p.Placement.Host, st, journal(p))
		case s == pods.Starting || s == pods.Terminated:
			c.t.Errorf("pod rests at %s; journal:\n%s", s, journal(p))
		}
	}
	for id, st := range containers {
		c.t.Errorf("container of no pod: %s %+v", id, st)
	}
	for resource, n := range claims {
		if used, err := c.store.Claimed(ctx, resource); err != nil || used != n {
			c.t.Errorf("%d of %s are in use, the pods claim %d (%v)", used, resource, n, err)
		}
	}
	if c.spy.overlapping {
		c.t.Error("a runtime was called twice at once for one pod")
	}
}
