package pods_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/servers"
)

// A cluster is what several servers share.
type cluster struct {
	t      *testing.T
	store  pods.PodStore
	leases *memory.Servers
}

func newCluster(t *testing.T) *cluster {
	return &cluster{t, memory.NewPods(), memory.NewServers()}
}

// A node is a server of a cluster with one host.
type node struct {
	*testEnv
	server *servers.Server
	end    func() // in order, so that its leases are free at once
	die    func() // so that its leases are over in a while
}

// start makes a server whose host has a number of vCPUs. With rt it is one that returns.
func (c *cluster) start(name, host string, vcpus int, rt *memory.Runtime, set func(*pods.Options)) *node {
	c.t.Helper()
	if rt == nil {
		rt = memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts()})
	}
	return c.startOn(name, host, vcpus, rt, rt, set)
}

// startOn is start with a runtime that wraps rt.
func (c *cluster) startOn(name, host string, vcpus int, rt *memory.Runtime, wrapped pods.Runtime, set func(*pods.Options)) *node {
	c.t.Helper()
	return c.startWith(name, catalog.Sample(), pods.Host{ID: host, DataCenter: "US-TX-3", Runtime: wrapped, VCPU: map[string]int{"cpu3c": vcpus}}, rt, set)
}

// startWith is startOn with a catalog and a host.
func (c *cluster) startWith(name string, offered catalog.Catalog, h pods.Host, rt *memory.Runtime, set func(*pods.Options)) *node {
	c.t.Helper()
	joined, err := servers.Join(c.t.Context(), c.leases, nil)
	if err != nil {
		c.t.Fatal(err)
	}
	o := &pods.Options{Server: joined, ServerName: name, Address: "http://" + name, Overcommit: 1}
	if set != nil {
		set(o)
	}
	s, err := pods.New(c.store, offered, []pods.Host{h}, o)
	if err != nil {
		c.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(c.t.Context())
	leave, left := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	running.Go(func() { _ = s.Run(ctx) })
	running.Go(func() {
		for ctx.Err() == nil {
			if err := joined.Renew(ctx); err != nil && ctx.Err() == nil {
				c.t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(servers.DefaultLease / 3):
			}
		}
	})
	n := &node{testEnv: &testEnv{Service: s, t: c.t, runtime: rt}, server: joined}
	n.die = func() { cancel(); running.Wait() }
	n.end = func() { n.die(); left(); _ = joined.Run(leave) }
	c.t.Cleanup(n.die)
	c.t.Cleanup(left)
	time.Sleep(3 * time.Second)
	return n
}

func sized(vcpus int) pods.CreateRequest {
	r := cpuPod()
	r.CPU.VCPU = vcpus
	return r
}

func (n *node) containers() int {
	n.t.Helper()
	list, err := n.runtime.List(n.t.Context())
	if err != nil {
		n.t.Fatal(err)
	}
	return len(list)
}

func TestPodOfAnyServerIsActedOnByTheServerOfItsHost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.start("a", "host-a", 2, nil, nil), c.start("b", "host-b", 8, nil, nil)
		time.Sleep(3 * time.Second)
		p := a.create(sized(8))
		if p.Placement.Host != "host-b" {
			t.Fatalf("placed on %q, want the host with room, of the other server", p.Placement.Host)
		}
		for _, step := range []struct {
			by     *node
			action pods.Action
			want   pods.Status
		}{{a, "", pods.Running}, {a, pods.Stop, pods.Exited}, {b, pods.Start, pods.Running}, {a, pods.Restart, pods.Running}, {b, pods.Stop, pods.Exited}, {a, pods.Start, pods.Running}} {
			if step.action != "" {
				step.by.act(p.ID, step.action)
			}
			time.Sleep(time.Minute)
			a.want(p.ID, step.want)
			b.want(p.ID, step.want)
		}
		if a.containers() != 0 || b.containers() != 1 {
			t.Errorf("%d and %d containers, want one at the server of the host", a.containers(), b.containers())
		}
		if err := a.Terminate(t.Context(), alice, p.ID); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if _, err := c.store.Get(t.Context(), p.ID); !errors.Is(err, pods.ErrNotFound) || b.containers() != 0 {
			t.Errorf("after the end: %v, %d containers", err, b.containers())
		}
	})
}

func TestCapacityCountsTheHostsOfAllServersThatLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.start("a", "host-a", 2, nil, nil), c.start("b", "host-b", 8, nil, nil)
		time.Sleep(3 * time.Second)
		free := func() (n int) {
			list, err := a.Capacity(t.Context(), pods.Requirements{CPU: "cpu3c", VCPU: 2})
			if err != nil {
				t.Fatal(err)
			}
			for _, h := range list {
				n += h.Free
			}
			return n
		}
		all := free()
		b.create(sized(8))
		if got := free(); got != all-4 {
			t.Errorf("%d more after a pod of 8 vCPUs, want 4 fewer than %d", got, all)
		}
		b.end()
		time.Sleep(3 * time.Second)
		list, err := a.HostStates(t.Context())
		if err != nil || len(list) != 1 || list[0].ID != "host-a" {
			t.Errorf("hosts = %v, %v after the end of the other server", list, err)
		}
	})
}

// A server knows the GPUs of its own machine. Users of any server can rent those of all.
func TestAGPUThatOnlyAnotherServerHasCanBeRentedHere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		rt := memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts()})
		gpu := catalog.GPUType{ID: rtx4090, Name: "RTX 4090", Manufacturer: catalog.NVIDIA, Memory: 24, Secure: true, Price: catalog.GPUPrice{Secure: 2}, MaxCount: catalog.MaxCount{Secure: 1}}
		with := func(types ...catalog.GPUType) catalog.Catalog { return catalog.Local(4, 8, types...) }
		place, flavor := with().DataCenters[0].ID, with().CPUs[0].ID
		a := c.startWith("a", with(), pods.Host{ID: "host-a", DataCenter: place, Runtime: rt, VCPU: map[string]int{flavor: 4}}, rt, nil)
		request := pods.CreateRequest{Name: "p", Image: "img", GPU: &pods.GPURequest{ID: rtx4090}}
		if _, err := a.Create(t.Context(), "alice", request); problem.KindOf(err) != problem.Invalid {
			t.Errorf("before a server has such a GPU: %v, want that the type is unknown", err)
		}
		b := c.startWith("b", with(gpu), pods.Host{ID: "host-b", DataCenter: place, Runtime: rt, GPUs: []pods.HostGPUs{{Type: rtx4090, Count: 1}}}, rt, nil)
		if got, ok := a.Catalog().GPU(rtx4090); !ok || got != gpu {
			t.Errorf("the catalog has %+v, want what the other server offers", got)
		}
		p, err := a.Create(t.Context(), "alice", request)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		p, err = a.Get(t.Context(), "alice", p.ID)
		if err != nil || p.Status() != pods.Running || p.Placement.Host != "host-b" || p.Placement.Price != 2 {
			t.Errorf("the pod is %s at %q for %v, %v, want RUNNING at host-b for the price of its server", p.Status(), p.Placement.Host, p.Placement.Price, err)
		}
		if _, err := a.Create(t.Context(), "alice", request); !errors.Is(err, pods.ErrNoCapacity) {
			t.Errorf("a second one: %v, want no capacity", err)
		}
		b.end()
		time.Sleep(5 * time.Second)
		if _, ok := a.Catalog().GPU(rtx4090); !ok {
			t.Error("the type is not known any more when its server has gone, and its pod still is")
		}
	})
}

func TestPodsOfADeadServerWaitForItsReturn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a, b := c.start("a", "host-a", 2, nil, nil), c.start("b", "host-b", 8, nil, nil)
		time.Sleep(3 * time.Second)
		up, down := a.create(sized(4)), a.create(sized(4))
		time.Sleep(time.Minute)
		a.act(down.ID, pods.Stop)
		time.Sleep(time.Minute)
		a.want(down.ID, pods.Exited)
		b.die()
		time.Sleep(20 * time.Second)
		a.want(up.ID, pods.Running)
		if _, err := a.Create(t.Context(), alice, sized(4)); !errors.Is(err, pods.ErrNoCapacity) {
			t.Errorf("Create on the host of a dead server = %v, want ErrNoCapacity", err)
		}
		if _, err := a.Act(t.Context(), alice, down.ID, pods.Start); !errors.Is(err, pods.ErrHostAway) {
			t.Errorf("start = %v, want ErrHostAway", err)
		}
		a.act(up.ID, pods.Stop)
		time.Sleep(time.Minute)
		if p := a.get(up.ID); p.Status() != pods.Running || b.containers() != 2 {
			t.Errorf("status %s with %d containers, want a stop that waits for the server", p.Status(), b.containers())
		}
		b = c.start("b", "host-b", 8, b.runtime, nil)
		time.Sleep(3 * time.Second)
		a.want(up.ID, pods.Exited)
		a.act(down.ID, pods.Start)
		time.Sleep(time.Minute)
		b.want(down.ID, pods.Running)
	})
}

func TestServerThatWasKilledHasItsHostAtOnceWhenItReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		instance := func(o *pods.Options) { o.ServerInstance = "one" }
		b := c.start("b", "host-b", 8, nil, instance)
		p := b.create(sized(4))
		time.Sleep(time.Minute)
		first := b.want(p.ID, pods.Running).Seen.Epoch
		b.die()
		b = c.start("b", "host-b", 8, b.runtime, instance)
		b.act(p.ID, pods.Stop)
		time.Sleep(3 * time.Second)
		if p := b.want(p.ID, pods.Exited); p.Seen.Epoch <= first {
			t.Errorf("epoch %d after %d, want a later one", p.Seen.Epoch, first)
		}
	})
}

// A server answers requests before it has looked at the hosts of the others for the first time.
func TestAServerThatHasJustStartedReadsLogsAtTheHostsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		p := c.start("b", "host-b", 8, nil, nil).create(sized(4))
		time.Sleep(time.Minute)
		joined, err := servers.Join(t.Context(), c.leases, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, at := range []struct {
			host string
			want error
		}{{p.Placement.Host, nil}, {"host-c", pods.ErrHostAway}} {
			a, err := pods.New(c.store, catalog.Sample(), nil, &pods.Options{Server: joined, ServerName: "a"})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := c.store.Update(t.Context(), p.ID, func(p *pods.Pod) error { p.Placement.Host = at.host; return nil }); err != nil {
				t.Fatal(err)
			}
			if _, err := a.Logs(t.Context(), alice, p.ID, pods.ContainerLog, pods.LogQuery{Tail: -1}); !errors.Is(err, at.want) {
				t.Errorf("Logs of a pod on %s = %v, want %v", at.host, err, at.want)
			}
		}
	})
}

func TestHostOfTwoServersIsActedOnByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		first := c.start("same", "host", 8, nil, nil)
		second := c.start("same", "host", 8, nil, nil)
		p := second.create(sized(4))
		time.Sleep(time.Minute)
		second.want(p.ID, pods.Running)
		if first.containers() != 1 || second.containers() != 0 {
			t.Fatalf("%d and %d containers, want one at the first", first.containers(), second.containers())
		}
		first.end()
		time.Sleep(10 * time.Second)
		if got := second.want(p.ID, pods.Exited); got.Seen.Reason != "the container was gone from its host" {
			t.Errorf("reason %q after the second has got the host", got.Seen.Reason)
		}
		second.act(p.ID, pods.Start)
		time.Sleep(time.Minute)
		second.want(p.ID, pods.Running)
		if second.containers() != 1 {
			t.Errorf("%d containers at the second", second.containers())
		}
	})
}

func TestServerWhoseHostWasTakenWritesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		a := c.start("a", "host-a", 8, nil, nil)
		ends := sized(4)
		ends.Image = "slow/one"
		p := a.create(ends)
		time.Sleep(time.Second)
		was, err := c.store.Update(t.Context(), p.ID, func(p *pods.Pod) error {
			p.Seen.Epoch += 1000 // a later server has written
			return nil
		})
		if err != nil || was.Seen.Epoch <= 1000 {
			t.Fatalf("epoch %d, %v, want that of a lease and 1000", was.Seen.Epoch, err)
		}
		time.Sleep(10 * time.Minute)
		if got := a.get(p.ID); got.Seen.Phase != was.Seen.Phase || got.Seen.Epoch != was.Seen.Epoch {
			t.Errorf("phase %d, was %d: a server with a smaller epoch has written", got.Seen.Phase, was.Seen.Phase)
		}
	})
}

// A slowRemoval is a runtime whose Remove calls a function before it returns.
type slowRemoval struct {
	*memory.Runtime
	removed func()
}

func (r *slowRemoval) Remove(ctx context.Context, id string, grace time.Duration) error {
	err := r.Runtime.Remove(ctx, id, grace)
	r.removed()
	return err
}

func TestServerWhoseHostWasTakenDeletesNothing(t *testing.T) {
	for _, row := range []struct {
		name   string
		epochs uint64 // that a server is later which writes between the removal and the delete
		want   error
	}{
		{"it still has the host", 0, pods.ErrNotFound},
		{"another one has it", 1000, nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCluster(t)
				rt := &slowRemoval{Runtime: memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts()})}
				a := c.startOn("a", "host-a", 8, rt.Runtime, rt, nil)
				p := a.create(sized(4))
				time.Sleep(time.Minute)
				rt.removed = func() {
					if _, err := c.store.Update(t.Context(), p.ID, func(p *pods.Pod) error { p.Seen.Epoch += row.epochs; return nil }); err != nil {
						t.Error(err)
					}
				}
				if err := a.Terminate(t.Context(), alice, p.ID); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				if _, err := c.store.Get(t.Context(), p.ID); !errors.Is(err, row.want) {
					t.Errorf("Get = %v, want %v", err, row.want)
				}
			})
		})
	}
}

// deaf is a store whose hints are all lost.
type deaf struct{ pods.PodStore }

func (deaf) Watch(ctx context.Context, _ func([]string)) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestServerFindsWhatOthersAskWithoutHints(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		c.store = deaf{c.store}
		a, b := c.start("a", "host-a", 2, nil, nil), c.start("b", "host-b", 8, nil, nil)
		time.Sleep(3 * time.Second)
		p := a.create(sized(8))
		time.Sleep(10 * time.Second)
		b.want(p.ID, pods.Running)
		a.act(p.ID, pods.Stop)
		time.Sleep(10 * time.Second)
		b.want(p.ID, pods.Exited)
	})
}

func TestUseOfAPodIsRecordedByTheServerOfItsHostAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t)
		var ofA, ofB usageRecorder
		a := c.start("a", "host-a", 2, nil, func(o *pods.Options) { o.Meter = &ofA })
		b := c.start("b", "host-b", 8, nil, func(o *pods.Options) { o.Meter = &ofB })
		time.Sleep(3 * time.Second)
		p := a.create(sized(8))
		for _, action := range []pods.Action{pods.Stop, pods.Start, pods.Stop} {
			time.Sleep(time.Hour)
			a.act(p.ID, action)
		}
		time.Sleep(time.Minute)
		b.want(p.ID, pods.Exited)
		synctest.Wait()
		if len(ofA.uses) != 0 || len(ofB.uses) != 2 {
			t.Errorf("%d and %d uses, want both runs at the server of the host", len(ofA.uses), len(ofB.uses))
		}
		if used := a.get(p.ID).Used; len(used) != 0 {
			t.Errorf("%v are left in the record", used)
		}
	})
}
