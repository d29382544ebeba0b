package podfleet_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// listing is a catalog of two GPU types in one pool, a flavor and two data centers.
var listing = catalog.Catalog{
	GPUs: []catalog.GPUType{
		{ID: "Small", Pool: "POOL"}, {ID: "Large", Pool: "POOL"}, {ID: "Odd"},
	},
	CPUs:        []catalog.CPUFlavor{{ID: "cpu", VCPU: catalog.Range{Min: 1, Max: 8}, RAMPerVCPU: 2}},
	DataCenters: []catalog.DataCenter{{ID: "EU"}, {ID: "US"}},
}

// recorder records the calls of a Runtime, and fails them if set to.
type recorder struct {
	*memory.Runtime
	mu     sync.Mutex
	specs  map[string]pods.Spec
	refuse bool
}

var errRefused = errors.New("the host is away")

func (r *recorder) away(is bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse = is
}

func (r *recorder) refused() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.refuse {
		return errRefused
	}
	return nil
}

func (r *recorder) Ensure(ctx context.Context, s pods.Spec) error {
	if err := r.refused(); err != nil {
		return err
	}
	r.mu.Lock()
	r.specs[s.PodID] = s
	r.mu.Unlock()
	return r.Runtime.Ensure(ctx, s)
}

func (r *recorder) Remove(ctx context.Context, podID string, grace time.Duration) error {
	if err := r.refused(); err != nil {
		return err
	}
	return r.Runtime.Remove(ctx, podID, grace)
}

func (r *recorder) List(ctx context.Context) ([]pods.ContainerState, error) {
	if err := r.refused(); err != nil {
		return nil, err
	}
	return r.Runtime.List(ctx)
}

func (r *recorder) Unwrap() pods.Runtime { return r.Runtime }

func newRecorder(scripts ...memory.Script) *recorder {
	return &recorder{Runtime: memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts}), specs: map[string]pods.Spec{}}
}

func cpuHost(rt pods.Runtime) pods.Host {
	return pods.Host{ID: "h", DataCenter: "EU", Runtime: rt, VCPU: map[string]int{"cpu": 4}, Memory: 16}
}

func worker(id string) fleet.WorkerSpec {
	return fleet.WorkerSpec{
		Endpoint: "ep", Owner: "alice", ID: queue.WorkerID(id), Release: 3,
		Container: endpoints.Container{Image: "img", Disk: 5},
		CPU:       []endpoints.CPU{{ID: "cpu", VCPU: 2, Memory: 4}},
	}
}

// newFleet returns a fleet with its own store.
func newFleet(t *testing.T, hosts []pods.Host, o *podfleet.Options) *podfleet.Fleet {
	t.Helper()
	return fleetOn(t, memory.NewPods(), hosts, o)
}

func fleetOn(t *testing.T, s pods.PodStore, hosts []pods.Host, o *podfleet.Options) *podfleet.Fleet {
	t.Helper()
	f, err := podfleet.New(s, listing, hosts, o)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// volumes are two of alice's network volumes, in two data centers.
type volumes struct{}

func (volumes) Volume(_ context.Context, owner, id string) (dataCenter string, err error) {
	dc := map[string]string{"vol1": "EU", "vol2": "US"}[id]
	if owner != "alice" || dc == "" {
		return "", problem.New(problem.NotFound, "network volume not found")
	}
	return dc, nil
}

type secrets struct{}

func (secrets) PullSecret(_ context.Context, owner, id string) (registry, username, password string, err error) {
	if owner != "alice" || id != "cred" {
		return "", "", "", problem.New(problem.NotFound, "registry credential not found")
	}
	return "registry.example", "alice", "s3cret", nil
}

func TestIdsOfWorkersAreToldFromThoseOfPods(t *testing.T) {
	if id := podfleet.PodID("my-ep_1", "w1"); id != "worker.my-ep_1.w1" || !podfleet.IsWorker(id) {
		t.Errorf("PodID = %q, want worker.my-ep_1.w1, a worker", id)
	}
	for _, id := range []string{"", "a1b2c3d4e5f6g7", "worker", "worker.", "worker.ep", "worker.ep.", "worker..w", "xworker.ep.w"} {
		if podfleet.IsWorker(id) {
			t.Errorf("%q is taken for a worker", id)
		}
	}
}

func TestWorkerIsAContainerWithAllThatItsEndpointSays(t *testing.T) {
	rt := newRecorder()
	f := newFleet(t, []pods.Host{cpuHost(rt)}, &podfleet.Options{Secrets: secrets{}, Volumes: volumes{}})
	w := worker("w1")
	w.Container = endpoints.Container{
		Image: "img", Args: `python -u 'my handler.py'`, Disk: 5, Ports: []string{"8000/http", "22/tcp"},
		Env: map[string]string{"MODEL": "small", "RUNPOD_POD_ID": "mine"}, Registry: "cred",
	}
	w.NetworkVolumes = []string{"vol2", "vol1"}
	w.Env = map[string]string{"RUNPOD_POD_ID": "w1"}
	if err := f.Start(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	want := pods.Spec{
		PodID: "worker.ep.w1", Owner: "alice", Gen: 3, Run: 1, Image: "img", Disk: 5,
		Args:  []string{"python", "-u", "my handler.py"},
		Ports: []pods.Port{{Private: 8000, Protocol: "http"}, {Private: 22, Protocol: "tcp"}},
		Env: map[string]string{
			"MODEL": "small", "RUNPOD_POD_ID": "w1", "RUNPOD_DC_ID": "EU", "RUNPOD_CPU_COUNT": "2", "RUNPOD_VOLUME_ID": "vol1",
		},
		PlatformEnv: []string{"RUNPOD_CPU_COUNT", "RUNPOD_DC_ID", "RUNPOD_POD_ID", "RUNPOD_VOLUME_ID"},
		Mounts:      []pods.Mount{{VolumeID: "vol1", Path: "/runpod-volume"}},
		VCPU:        2, Memory: 4,
		LocalPorts: true,
		Credential: pods.Credential{Registry: "registry.example", Username: "alice", Password: "s3cret"},
	}
	if diff := cmp.Diff(want, rt.specs["worker.ep.w1"]); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
}

func TestLifeOfAWorkerShowsInWatchAndWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		rt := newRecorder(memory.Script{Image: "bad", Stages: []memory.Stage{
			{Phase: pods.PhaseStarting, Lines: []string{"boom"}},
			{Phase: pods.PhaseExited, After: time.Second, ExitCode: 3},
		}})
		f := newFleet(t, []pods.Host{cpuHost(rt)}, nil)
		var mu sync.Mutex
		var seen []fleet.InstanceState
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			done <- f.Watch(ctx, func(w fleet.Instance) {
				mu.Lock()
				defer mu.Unlock()
				if w.ID == "w1" && (len(seen) == 0 || seen[len(seen)-1] != w.State) {
					seen = append(seen, w.State)
				}
			})
		}()
		synctest.Wait()
		if err := rt.Ensure(t.Context(), pods.Spec{PodID: "apod", Gen: 1, Run: 1, Image: "img"}); err != nil {
			t.Fatal(err)
		}
		bad := worker("w2")
		bad.Container.Image = "bad"
		for _, w := range []fleet.WorkerSpec{worker("w1"), bad, worker("w1")} {
			if err := f.Start(t.Context(), w); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(5 * time.Second)
		list, err := f.Workers(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range list {
			list[i].Started = time.Time{}
		}
		want := []fleet.Instance{
			{Endpoint: "ep", ID: "w1", Release: 3, Image: "img", State: fleet.InstanceRunning, DataCenter: "EU", CPU: "cpu", VCPUs: 2},
			{Endpoint: "ep", ID: "w2", Release: 3, Image: "bad", State: fleet.InstanceEnded, Exit: "exit code 3", DataCenter: "EU", CPU: "cpu", VCPUs: 2},
		}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Errorf("Workers (-want +got):\n%s", diff)
		}
		var lines []string
		for line, err := range f.WorkerLogs(t.Context(), "ep", "w2", fleet.LogQuery{Tail: -1}) {
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line.Text)
		}
		if diff := cmp.Diff([]string{"boom"}, lines); diff != "" {
			t.Errorf("log (-want +got):\n%s", diff)
		}
		for range 2 {
			if err := f.Stop(t.Context(), "ep", "w1", time.Second); err != nil {
				t.Fatal(err)
			}
		}
		if list, err := f.Workers(t.Context()); err != nil || len(list) != 1 {
			t.Errorf("Workers = %+v, %v after Stop, want w2 alone", list, err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("Watch = %v, want the context's error", err)
		}
		states := []fleet.InstanceState{fleet.InstanceStarting, fleet.InstanceRunning, fleet.InstanceEnded}
		if diff := cmp.Diff(states, seen); diff != "" {
			t.Errorf("states of w1 (-want +got):\n%s", diff)
		}
	})
}

func TestHostThatIsFullHasNoRoomUntilAWorkerStops(t *testing.T) {
	f := newFleet(t, []pods.Host{cpuHost(newRecorder())}, &podfleet.Options{Overcommit: 1})
	for _, id := range []string{"a", "b"} {
		if err := f.Start(t.Context(), worker(id)); err != nil {
			t.Fatal(err)
		}
	}
	if err := f.Start(t.Context(), worker("c")); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start on a full host = %v, want ErrNoRoom", err)
	}
	if err := f.Start(t.Context(), worker("a")); err != nil {
		t.Errorf("Start of a worker that is there = %v, want nil", err)
	}
	if err := f.Stop(t.Context(), "ep", "a", 0); err != nil {
		t.Fatal(err)
	}
	if err := f.Start(t.Context(), worker("c")); err != nil {
		t.Errorf("Start in the place of another = %v, want nil", err)
	}
}

func TestWorkerGetsTheFirstMachineThatFits(t *testing.T) {
	rt := newRecorder()
	f := newFleet(t, []pods.Host{cpuHost(rt)}, &podfleet.Options{Overcommit: 1})
	w := worker("w")
	w.CPU = []endpoints.CPU{{ID: "cpu", VCPU: 8, Memory: 16}, {ID: "other", VCPU: 1, Memory: 1}, {ID: "cpu", VCPU: 4, Memory: 8}, {ID: "cpu", VCPU: 1, Memory: 2}}
	if err := f.Start(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	if s := rt.specs["worker.ep.w"]; s.VCPU != 4 || s.Memory != 8 {
		t.Errorf("machine = %d vCPUs, %d GB, want 4 and 8", s.VCPU, s.Memory)
	}
}

func TestEveryGPUHasOneWorkerAndPreferredPlacesComeFirst(t *testing.T) {
	eu, us := newRecorder(), newRecorder()
	f := newFleet(t, []pods.Host{
		{ID: "1", DataCenter: "EU", Runtime: eu, GPUs: []pods.HostGPUs{{Type: "Small", Devices: []string{"g0", "g1", "g2"}}}},
		{ID: "2", DataCenter: "US", Runtime: us, GPUs: []pods.HostGPUs{{Type: "Large", Count: 2}, {Type: "Small", Count: 2}}},
	}, nil)
	start := func(id string, count int, excluded, places []string) error {
		w := worker(id)
		w.CPU, w.GPU = nil, &endpoints.GPU{Pools: []string{"NONE", "POOL"}, Count: count, ExcludedTypes: excluded}
		w.DataCenterIDs = places
		return f.Start(t.Context(), w)
	}
	for _, err := range []error{start("a", 2, nil, nil), start("b", 1, nil, nil), start("c", 2, []string{"Large"}, []string{"US"}), start("d", 2, nil, []string{"EU"})} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := start("e", 1, nil, nil); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start without a free GPU = %v, want ErrNoRoom", err)
	}
	a, b := eu.specs["worker.ep.a"], eu.specs["worker.ep.b"]
	if got := slices.Concat(a.Devices, b.Devices); !slices.Equal(got, []string{"g0", "g1", "g2"}) {
		t.Errorf("devices = %q, want each once", got)
	}
	if c, d := us.specs["worker.ep.c"], us.specs["worker.ep.d"]; c.GPUType != "Small" || c.GPUs != 2 || d.GPUType != "Large" || d.GPUs != 2 {
		t.Errorf("c has %d of %q and d %d of %q, want 2 of Small and 2 of Large", c.GPUs, c.GPUType, d.GPUs, d.GPUType)
	}
	if env := us.specs["worker.ep.d"].Env; env["RUNPOD_GPU_COUNT"] != "2" || env["RUNPOD_DC_ID"] != "US" {
		t.Errorf("environment = %v", env)
	}
}

func TestWorkerOfWhichSomethingIsGoneDoesNotStartAndTakesNoPlace(t *testing.T) {
	f := newFleet(t, []pods.Host{cpuHost(newRecorder())}, &podfleet.Options{Secrets: secrets{}, Volumes: volumes{}, Overcommit: 0.5})
	credential, volume := worker("w"), worker("w")
	credential.Container.Registry, volume.NetworkVolumes = "gone", []string{"vol1", "gone"}
	for what, w := range map[string]fleet.WorkerSpec{"credential": credential, "volume": volume} {
		if err := f.Start(t.Context(), w); problem.KindOf(err) != problem.NotFound {
			t.Errorf("Start = %v, want that the %s is not found", err, what)
		}
	}
	if err := f.Start(t.Context(), worker("x")); err != nil {
		t.Errorf("Start of another = %v, want nil", err)
	}
}

// settled are volumes whose contents are at servers.
type settled map[string]string

func (settled) Volume(context.Context, string, string) (dataCenter string, err error) {
	return "EU", nil
}

func (v settled) VolumeServer(_ context.Context, id string) (string, error) { return v[id], nil }

func (v settled) SettleVolume(_ context.Context, id, server string) (string, error) {
	if v[id] == "" {
		v[id] = server
	}
	return v[id], nil
}

func TestAWorkerMountsOnlyAVolumeWhoseContentsAreAtItsServer(t *testing.T) {
	at := settled{"far": "b", "near": "a"}
	rt := newRecorder()
	f := newFleet(t, []pods.Host{cpuHost(rt)}, &podfleet.Options{Volumes: at, Server: "a", Overcommit: 4})
	for _, row := range []struct {
		volumes []string
		mounts  string // empty: another server has to start the worker
	}{
		{[]string{"far", "near"}, "near"},
		{[]string{"new"}, "new"},
		{[]string{"far"}, ""},
	} {
		away, err := f.Elsewhere(t.Context(), row.volumes)
		if err != nil || away != (row.mounts == "") {
			t.Errorf("Elsewhere of %v = %t, %v", row.volumes, away, err)
		}
		w := worker(row.volumes[0])
		w.NetworkVolumes = row.volumes
		if err := f.Start(t.Context(), w); (err != nil) != away {
			t.Errorf("Start with %v = %v", row.volumes, err)
		}
		if got := rt.specs["worker.ep."+row.volumes[0]].Mounts; !away && got[0].VolumeID != row.mounts {
			t.Errorf("a worker of %v mounts %v, want %s", row.volumes, got, row.mounts)
		}
	}
	if at["new"] != "a" {
		t.Errorf("the new volume is at %q, want a", at["new"])
	}
}

func TestWorkerGoesWhereOneOfItsVolumesIs(t *testing.T) {
	eu, us := newRecorder(), newRecorder()
	far := cpuHost(us)
	far.ID, far.DataCenter = "far", "US"
	store := memory.NewPods()
	f := fleetOn(t, store, []pods.Host{cpuHost(eu), far}, &podfleet.Options{Volumes: volumes{}, Overcommit: 0.5})
	start := func(id string, volumes ...string) error {
		w := worker(id)
		w.DataCenterIDs, w.NetworkVolumes = []string{"US", "EU"}, volumes
		return f.Start(t.Context(), w)
	}
	if err := errors.Join(start("a", "vol1", "vol2"), start("b", "vol1", "vol2")); err != nil {
		t.Fatal(err)
	}
	a, b := us.specs["worker.ep.a"], eu.specs["worker.ep.b"]
	if diff := cmp.Diff([][]pods.Mount{{{VolumeID: "vol2", Path: "/runpod-volume"}}, {{VolumeID: "vol1", Path: "/runpod-volume"}}}, [][]pods.Mount{a.Mounts, b.Mounts}); diff != "" {
		t.Errorf("mounts in the first data center and in the second (-want +got):\n%s", diff)
	}
	if a.Env["RUNPOD_VOLUME_ID"] != "vol2" || b.Env["RUNPOD_VOLUME_ID"] != "vol1" {
		t.Errorf("RUNPOD_VOLUME_ID = %q and %q, want that of each", a.Env["RUNPOD_VOLUME_ID"], b.Env["RUNPOD_VOLUME_ID"])
	}
	used := pods.References{Pods: store}
	inUse := func(want bool) {
		t.Helper()
		if got, err := used.VolumeInUse(t.Context(), "alice", "vol2"); err != nil || got != want {
			t.Errorf("VolumeInUse of what the worker in US mounts = %t, %v, want %t", got, err, want)
		}
	}
	inUse(true)
	if err := f.Stop(t.Context(), "ep", "a", 0); err != nil {
		t.Fatal(err)
	}
	inUse(false)
	if err := start("c", "vol1"); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start where the volume is not = %v, want ErrNoRoom", err)
	}
}

func TestGPUsAreThoseOfADriverThatTheEndpointAccepts(t *testing.T) {
	rt := newRecorder()
	host := func(id, cuda string) pods.Host {
		return pods.Host{ID: id, DataCenter: "EU", Runtime: rt, CUDA: cuda, GPUs: []pods.HostGPUs{{Type: "Small", Devices: []string{"gpu of " + id}}}}
	}
	f := newFleet(t, []pods.Host{host("old", "12.4"), host("new", "12.8")}, nil)
	start := func(id string, g endpoints.GPU) error {
		w := worker(id)
		g.Pools, g.Count = []string{"POOL"}, 1
		w.CPU, w.GPU = nil, &g
		return f.Start(t.Context(), w)
	}
	if err := start("a", endpoints.GPU{MinCUDAVersion: "12.5"}); err != nil {
		t.Fatal(err)
	}
	if err := start("b", endpoints.GPU{AllowedCUDAVersions: []string{"12.8"}}); !errors.Is(err, fleet.ErrNoCapacity) {
		t.Errorf("Start with a version that is taken = %v, want ErrNoRoom", err)
	}
	if got := rt.specs["worker.ep.a"].Devices; !slices.Equal(got, []string{"gpu of new"}) {
		t.Errorf("devices = %q, want those of the driver that is new enough", got)
	}
}

func TestCatalogOfPodsAnswersForEndpoints(t *testing.T) {
	c := podfleet.Catalog(listing)
	type flavor struct {
		Memory int
		OK     bool
	}
	for vcpus, want := range map[int]flavor{0: {0, true}, 1: {2, true}, 8: {16, true}, 9: {0, true}} {
		m, ok := c.Flavor("cpu", vcpus)
		if got := (flavor{m, ok}); got != want {
			t.Errorf("Flavor(cpu, %d) = %+v, want %+v", vcpus, got, want)
		}
	}
	if _, ok := c.Flavor("none", 1); ok {
		t.Error("an unknown flavor is there")
	}
	if diff := cmp.Diff([]string{"Small", "Large"}, c.Pool("POOL")); diff != "" {
		t.Errorf("Pool (-want +got):\n%s", diff)
	}
	if got := c.Pool(""); got != nil {
		t.Errorf("Pool without a name = %q, want none: Odd is in no pool", got)
	}
	if !c.DataCenter("EU") || c.DataCenter("XX") {
		t.Error("EU is a data center and XX is none")
	}
}
