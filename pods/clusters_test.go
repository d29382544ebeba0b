package pods_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// ofSize asks for a cluster of pods with one GPU each.
func ofSize(n int) pods.CreateClusterRequest {
	return pods.CreateClusterRequest{Name: "c", Type: pods.TrainingCluster, GPUType: rtx4090, GPUs: 1, Size: n, Pod: pods.CreateRequest{Image: "img"}}
}

// oneHost gives the service a machine with eight GPUs.
func oneHost(s *envConfig) { s.hosts = oneHostOf }

func oneHostOf(rt pods.Runtime) []pods.Host {
	return []pods.Host{{
		ID: "h", DataCenter: "US-TX-3", Runtime: rt, VCPU: map[string]int{"cpu3c": 4}, Memory: 1 << 20,
		GPUs: []pods.HostGPUs{{Type: rtx4090, Devices: []string{"0", "1", "2", "3", "4", "5", "6", "7"}}},
	}}
}

// again returns another service on the store and the host of w, as after a crash.
func (w *testEnv) again() *testEnv {
	w.t.Helper()
	s, err := pods.New(w.store, w.Catalog(), oneHostOf(w.runtime), &pods.Options{Clock: w.clock})
	if err != nil {
		w.t.Fatal(err)
	}
	return &testEnv{s, w.t, w.clock, w.store, w.runtime}
}

func (w *testEnv) cluster(r pods.CreateClusterRequest) *pods.Cluster {
	w.t.Helper()
	c, err := w.CreateCluster(w.t.Context(), alice, r)
	if err != nil {
		w.t.Fatalf("CreateCluster = %v", err)
	}
	return c
}

// wantFree fails the test if anything of the host is taken.
func (w *testEnv) wantFree() {
	w.t.Helper()
	for p, err := range w.store.List(w.t.Context(), pods.Filter{}) {
		w.t.Errorf("pod %v is there: %v", p, err)
	}
	names := []string{"memory/h", "vcpu/h/cpu3c"}
	for i := range 8 {
		names = append(names, fmt.Sprint("gpu/h/", i))
	}
	for _, name := range names {
		if n, err := w.store.Claimed(w.t.Context(), name); n != 0 || err != nil {
			w.t.Errorf("%d of %s are taken: %v", n, name, err)
		}
	}
}

func TestAClusterIsThereWithAllOfItsPodsAndGoesWithThem(t *testing.T) {
	w := newTestEnv(t, oneHost)
	c := w.cluster(ofSize(3))
	got, err := w.GetCluster(t.Context(), alice, c.ID)
	if err != nil || len(got.Members) != 3 || got.Size != 3 || got.Name != "c" || got.Members[0].ID != c.ID {
		t.Fatalf("GetCluster = %+v, %v", got, err)
	}
	w.advance(time.Minute)
	for i, p := range got.Members {
		p = w.want(p.ID, pods.Running)
		if p.Cluster.Rank != i || p.Name != fmt.Sprint("c-", i) || p.Seen.IP == "" {
			t.Errorf("member %d: %+v, name %s, address %q", i, p.Cluster, p.Name, p.Seen.IP)
		}
	}
	name := "renamed"
	if got, err = w.UpdateCluster(t.Context(), alice, c.ID, pods.UpdateClusterRequest{Name: &name}); err != nil || got.Name != name {
		t.Errorf("UpdateCluster = %+v, %v", got, err)
	}
	if err := w.DeleteCluster(t.Context(), alice, c.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := w.GetCluster(t.Context(), alice, c.ID); !errors.Is(err, pods.ErrNoCluster) {
		t.Errorf("GetCluster of a deleted one = %v", err)
	}
	if list, err := w.List(t.Context(), alice); len(list) != 0 || err != nil {
		t.Errorf("pods of a deleted cluster: %v, %v", list, err)
	}
	w.advance(time.Minute)
	w.wantFree()
}

func TestAMemberIsChangedThroughItsClusterOnly(t *testing.T) {
	w := newTestEnv(t, oneHost)
	c := w.cluster(ofSize(2))
	w.advance(time.Minute)
	for _, p := range c.Members {
		for _, a := range []pods.Action{pods.Start, pods.Stop, pods.Restart, pods.Reset, pods.Terminate} {
			if _, err := w.Act(t.Context(), alice, p.ID, a); !errors.Is(err, pods.ErrMember) || !strings.Contains(err.Error(), c.ID) {
				t.Errorf("%s of a member = %v, want ErrMember with the id of the cluster", a, err)
			}
		}
		name := "other"
		if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Name: &name}); !errors.Is(err, pods.ErrMember) || problem.KindOf(err) != problem.Conflict {
			t.Errorf("Update of a member = %v, want ErrMember", err)
		}
		if list := pods.Actions(w.get(p.ID)); len(list) > 0 {
			t.Errorf("actions of a member: %v, want none", list)
		}
	}
}

func TestAnotherUsersClusterAndAPodAreNoCluster(t *testing.T) {
	w := newTestEnv(t, oneHost)
	c, alone := w.cluster(ofSize(2)), w.create(cpuPod())
	name := "x"
	for what, who := range map[string][2]string{
		"another user's": {bob, c.ID}, "a pod": {alice, alone.ID}, "a member": {alice, c.Members[1].ID}, "nothing": {alice, "x"},
	} {
		_, get := w.GetCluster(t.Context(), who[0], who[1])
		_, update := w.UpdateCluster(t.Context(), who[0], who[1], pods.UpdateClusterRequest{Name: &name})
		del := w.DeleteCluster(t.Context(), who[0], who[1])
		for _, err := range []error{get, update, del} {
			if !errors.Is(err, pods.ErrNoCluster) {
				t.Errorf("%s: %v, want ErrNoCluster", what, err)
			}
		}
	}
	if list, err := w.Clusters(t.Context(), bob); len(list) != 0 || err != nil {
		t.Errorf("bob's clusters: %v, %v", list, err)
	}
	if owner, err := w.ClusterOwner(t.Context(), c.ID); owner != alice || err != nil {
		t.Errorf("ClusterOwner = %q, %v", owner, err)
	}
}

func TestCreationsAtOnceOnAFullHostGiveNothingTwiceAndNoPartOfACluster(t *testing.T) {
	w := newTestEnv(t, oneHost)
	var wg sync.WaitGroup
	for i := range 64 {
		wg.Go(func() {
			var err error
			switch i % 3 {
			case 0:
				_, err = w.Create(t.Context(), alice, gpuPod())
			case 1:
				_, err = w.Create(t.Context(), alice, cpuPod())
			default:
				_, err = w.CreateCluster(t.Context(), alice, ofSize(2+i%2))
			}
			if err != nil && !errors.Is(err, pods.ErrNoCapacity) {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	taken := map[string]string{}
	list, err := w.List(t.Context(), alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		for _, d := range p.Placement.Devices {
			if other, twice := taken[d]; twice {
				t.Errorf("device %s is of %s and %s", d, other, p.ID)
			}
			taken[d] = p.ID
		}
	}
	if len(taken) < 7 { // two clusters of three may have left two, which a pod then takes, or a cluster of two
		t.Errorf("%d of 8 devices are taken", len(taken))
	}
	clusters, err := w.Clusters(t.Context(), alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range clusters {
		if len(c.Members) != c.Size {
			t.Errorf("a cluster has %d of %d pods", len(c.Members), c.Size)
		}
		if err := w.DeleteCluster(t.Context(), alice, c.ID); err != nil {
			t.Error(err)
		}
	}
	for _, p := range list {
		if p.Cluster == nil {
			w.act(p.ID, pods.Terminate)
		}
	}
	w.advance(time.Minute)
	w.wantFree()
}

func TestAClusterIsInOneDataCenterWhereItsPodsReachEachOther(t *testing.T) {
	type host struct {
		dc   string
		gpus int
		own  bool // with a runtime of its own
	}
	for name, row := range map[string]struct {
		hosts []host
		want  string // data center; empty: no capacity
	}{
		"two hosts of one runtime":      {[]host{{"US-TX-3", 2, false}, {"US-TX-3", 2, false}}, "US-TX-3"},
		"two data centers":              {[]host{{"US-TX-3", 2, false}, {"US-KS-2", 2, false}}, ""},
		"the second data center":        {[]host{{"US-TX-3", 2, false}, {"US-KS-2", 4, false}}, "US-KS-2"},
		"hosts that do not share a net": {[]host{{"US-TX-3", 2, false}, {"US-TX-3", 2, true}}, ""},
	} {
		w := newTestEnv(t, func(s *envConfig) {
			s.hosts = func(rt pods.Runtime) (list []pods.Host) {
				for i, h := range row.hosts {
					on := rt
					if h.own {
						on = memory.NewRuntime(&s.runtime)
					}
					list = append(list, pods.Host{ID: fmt.Sprint("h", i), DataCenter: h.dc, Runtime: on, GPUs: []pods.HostGPUs{{Type: rtx4090, Count: h.gpus}}})
				}
				return list
			}
		})
		c, err := w.CreateCluster(t.Context(), alice, ofSize(3))
		if row.want == "" {
			wantNoCapacity(t, name, err, rtx4090, "3 pods")
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, p := range c.Members {
			if p.Placement.DataCenter != row.want {
				t.Errorf("%s: a member is in %s", name, p.Placement.DataCenter)
			}
		}
	}
}

func TestMembersFindEachOtherInTheirEnvironment(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, func(s *envConfig) {
		s.hosts = func(rt pods.Runtime) []pods.Host {
			spy.Runtime = rt
			return oneHostOf(spy)
		}
	})
	r := ofSize(2)
	r.GPUs, r.Pod.Env = 2, map[string]string{"NODE_RANK": "mine", "A": "b"}
	c := w.cluster(r)
	w.advance(time.Minute)
	for _, s := range spy.specs() {
		rank := "0"
		if s.PodID != c.ID {
			rank = "1"
		}
		at := c.ID + ".podyard.internal"
		want := map[string]string{
			"A": "b", "NODE_RANK": rank, "NODE_ADDR": s.PodID + ".podyard.internal", "NUM_NODES": "2", "NUM_TRAINERS": "2", "WORLD_SIZE": "4",
			"PRIMARY_ADDR": at, "MASTER_ADDR": at, "PRIMARY_PORT": "29400", "MASTER_PORT": "29400", "HOST_NODE_ADDR": at + ":29400",
			"RUNPOD_POD_ID": s.PodID, "RUNPOD_POD_HOSTNAME": s.PodID, "RUNPOD_DC_ID": "US-TX-3", "RUNPOD_GPU_COUNT": "2",
		}
		if diff := cmp.Diff(want, s.Env); diff != "" || s.NetworkAlias != s.PodID+".podyard.internal" {
			t.Errorf("member %s, alias %q (-want +got):\n%s", rank, s.NetworkAlias, diff)
		}
	}
	if n := len(spy.specs()); n != 2 {
		t.Errorf("%d containers", n)
	}
}

func TestACreationOfAClusterThatIsInterruptedLeavesAllOrNothing(t *testing.T) {
	for _, kind := range []fault.Kind{fault.CrashBefore, fault.CrashAfter} {
		w := newTestEnv(t, oneHost)
		p := fault.NewPlan(1, fault.Rule{Call: "pods.Create", Kind: kind, Times: 1})
		s, err := pods.New(fault.Pods(w.store, p), w.Catalog(), oneHostOf(w.runtime), &pods.Options{Clock: w.clock})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.CreateCluster(t.Context(), alice, ofSize(3)); err == nil {
			t.Fatal("CreateCluster of a service that crashed = nil")
		}
		w = w.again()
		list, err := w.Clusters(t.Context(), alice)
		if want := kind == fault.CrashAfter; err != nil || (len(list) == 1) != want || want && len(list[0].Members) != 3 {
			t.Errorf("%v: after a restart there is %+v, %v", kind, list, err)
		}
		for _, c := range list {
			if err := w.DeleteCluster(t.Context(), alice, c.ID); err != nil {
				t.Error(err)
			}
		}
		w.advance(time.Minute)
		w.wantFree()
	}
}

func TestNoMemberOutlivesItsCluster(t *testing.T) {
	for name, end := range map[string]func(w *testEnv, c *pods.Cluster) error{
		"a deletion that got no further than its first write": func(w *testEnv, c *pods.Cluster) error {
			_, err := w.store.Update(w.t.Context(), c.ID, func(p *pods.Pod) error { p.Want.Power = pods.PowerTerminated; return nil })
			return err
		},
		"a record that is gone": func(w *testEnv, c *pods.Cluster) error { return w.store.Delete(w.t.Context(), c.ID, nil) },
	} {
		t.Run(name, func(t *testing.T) {
			w := newTestEnv(t, oneHost)
			c := w.cluster(ofSize(3))
			w.advance(time.Minute)
			if err := end(w, c); err != nil {
				t.Fatal(err)
			}
			w = w.again()
			w.advance(time.Minute)
			w.wantFree()
		})
	}
}

func TestARequestForAClusterThatIsWrongSaysWhere(t *testing.T) {
	w := newTestEnv(t, oneHost)
	one := 1
	for want, set := range map[string]func(*pods.CreateClusterRequest){
		"/name: must not be empty":                                  func(r *pods.CreateClusterRequest) { r.Name = "" },
		"/type: must be TRAINING or APPLICATION":                    func(r *pods.CreateClusterRequest) { r.Type = "OTHER" },
		"/type: SLURM is not offered: TRAINING and APPLICATION are": func(r *pods.CreateClusterRequest) { r.Type = pods.SlurmCluster },
		"/type: RAY is not offered: TRAINING and APPLICATION are":   func(r *pods.CreateClusterRequest) { r.Type = pods.RayCluster },
		"/compute/podCount: must be 2 to 250":                       func(r *pods.CreateClusterRequest) { r.Size = 1 },
		"/compute/gpuCountPerPod: must be at least 1":               func(r *pods.CreateClusterRequest) { r.GPUs = 0 },
		"/compute/gpuTypeId: must not be empty":                     func(r *pods.CreateClusterRequest) { r.GPUType = "" },
		`/compute/gpuTypeId: unknown GPU type "x"`:                  func(r *pods.CreateClusterRequest) { r.GPUType = "x" },
		"/image: must not be empty":                                 func(r *pods.CreateClusterRequest) { r.Pod.Image = "" },
		`/dataCenterIds/0: unknown data center "x"`:                 func(r *pods.CreateClusterRequest) { r.Pod.DataCenterIDs = []string{"x"} },
		"/ports/0: ":                     func(r *pods.CreateClusterRequest) { r.Pod.Ports = []string{"0/tcp"} },
		"/disk: must be 1 to 1048576 GB": func(r *pods.CreateClusterRequest) { r.Pod.Disk = new(int) },
		"/mounts: persistent and network exclude each other": func(r *pods.CreateClusterRequest) {
			r.Pod.Mounts = pods.Mounts{Persistent: &pods.PersistentMount{Size: 10, Path: "/p"}, Network: []pods.NetworkMount{}}
		},
	} {
		r := ofSize(2)
		r.Pod.Disk = &one
		set(&r)
		_, err := w.CreateCluster(t.Context(), alice, r)
		if d := problem.Of(err); len(d.Errors) != 1 || !strings.HasPrefix(d.Errors[0], want) {
			t.Errorf("%+v, want %s", d, want)
		}
	}
	w.wantFree()
}

func TestAClusterIsMadeOnceForItsKey(t *testing.T) {
	w := newTestEnv(t, oneHost)
	r := ofSize(2)
	r.Idempotency = idempotency.NewRequest("key", nil)
	c := w.cluster(r)
	var again *idempotency.Repeated
	if _, err := w.CreateCluster(t.Context(), alice, r); !errors.As(err, &again) || again.ID != c.ID {
		t.Errorf("CreateCluster again = %v, want Repeated with %s", err, c.ID)
	}
}

func TestTheUsageOfAClusterIsThatOfItsPods(t *testing.T) {
	m := &usageRecorder{}
	w := newTestEnv(t, func(s *envConfig) { oneHost(s); s.options.Meter = m })
	c := w.cluster(ofSize(2))
	w.advance(time.Hour)
	uses, err := w.Usage(t.Context(), alice)
	if err != nil || len(uses) != 2 {
		t.Fatalf("Usage = %+v, %v", uses, err)
	}
	for i, u := range uses {
		if u.Kind != pods.ClusterUsage || u.ID != c.ID || u.Part == "" || u.GPU == 0 {
			t.Errorf("usage %d: %+v", i, u)
		}
	}
}
