package pods_test

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// twoGPUs is one host with two named GPUs, 8 vCPUs and 16 GB.
func twoGPUs(s *envConfig) {
	t, _ := s.catalog.GPU(rtx4090)
	s.catalog = catalog.Local(8, 16, t)
	s.hosts = func(rt pods.Runtime) []pods.Host {
		return []pods.Host{{
			ID: "local", DataCenter: catalog.LocalDataCenter, Runtime: rt,
			GPUs: []pods.HostGPUs{{Type: rtx4090, Devices: []string{"GPU-a", "GPU-b"}}},
			VCPU: map[string]int{catalog.HostFlavor: 8}, Memory: 16,
		}}
	}
}

func wantNoCapacity(t *testing.T, what string, err error, names ...string) {
	t.Helper()
	doc := problem.Of(err)
	if !errors.Is(err, pods.ErrNoCapacity) || doc.Status != 400 {
		t.Errorf("%s = %v (%d), want ErrNoRoom (400)", what, err, doc.Status)
	}
	for _, name := range names {
		if !strings.Contains(doc.Detail, name) {
			t.Errorf("%s: detail %q does not name %q", what, doc.Detail, name)
		}
	}
}

func TestADeviceGoesToOnePodAtATime(t *testing.T) {
	w := newTestEnv(t, twoGPUs)
	a, b := w.running(gpuPod()), w.running(gpuPod())
	if diff := cmp.Diff([][]string{{"GPU-a"}, {"GPU-b"}}, [][]string{a.Placement.Devices, b.Placement.Devices}); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	_, err := w.Create(t.Context(), alice, gpuPod())
	wantNoCapacity(t, "Create", err, "1 x "+rtx4090, "any data center", "SECURE")
	if list, _ := w.List(t.Context(), alice); len(list) != 2 {
		t.Errorf("%d pods after a refused one, want 2", len(list))
	}
	w.act(a.ID, pods.Stop)
	w.advance(0)
	if c := w.create(gpuPod()); !cmp.Equal(c.Placement.Devices, []string{"GPU-a"}) {
		t.Errorf("devices = %v, want the one that was freed", c.Placement.Devices)
	}
}

func TestStartWithoutCapacityIsRefusedAndChangesNothing(t *testing.T) {
	for _, a := range []pods.Action{pods.Start, pods.Reset} {
		w := newTestEnv(t, twoGPUs)
		r := gpuPod()
		r.GPU.Count = new(2)
		p := w.running(r)
		w.act(p.ID, pods.Stop)
		w.advance(0)
		other := w.running(gpuPod())
		before := w.want(p.ID, pods.Exited)
		_, err := w.Act(t.Context(), alice, p.ID, a)
		wantNoCapacity(t, string(a), err, "2 x "+rtx4090, "LOCAL-1")
		if diff := cmp.Diff(before, w.get(p.ID)); diff != "" {
			t.Errorf("refused %s changed the pod (-before +after):\n%s", a, diff)
		}
		if err := w.Terminate(t.Context(), alice, other.ID); err != nil {
			t.Fatal(err)
		}
		w.advance(0)
		w.act(p.ID, a)
		w.advance(time.Minute)
		w.want(p.ID, pods.Running)
	}
}

func TestCreatesAtOnceShareTheDevicesThereAre(t *testing.T) {
	w := newTestEnv(t, twoGPUs)
	var wg sync.WaitGroup
	var mu sync.Mutex
	devices := make(map[string]int)
	for range 16 {
		wg.Go(func() {
			p, err := w.Create(t.Context(), alice, gpuPod())
			if err != nil {
				if !errors.Is(err, pods.ErrNoCapacity) {
					t.Errorf("Create = %v", err)
				}
				return
			}
			mu.Lock()
			defer mu.Unlock()
			for _, d := range p.Placement.Devices {
				devices[d]++
			}
		})
	}
	wg.Wait()
	if diff := cmp.Diff(map[string]int{"GPU-a": 1, "GPU-b": 1}, devices); diff != "" {
		t.Errorf("pods for each device (-want +got):\n%s", diff)
	}
}

func TestCPUsAreOvercommittedAndMemoryIsNot(t *testing.T) {
	pod := pods.CreateRequest{Name: "c", Image: "img", CPU: &pods.CPURequest{ID: catalog.HostFlavor, VCPU: 8}}
	for _, tt := range []struct {
		name   string
		factor float64
		memory int
		want   int // pods of 8 vCPUs and 4 GB
	}{
		{"four times by default", 0, 1000, 4},
		{"not at all", 1, 1000, 1},
		{"twice", 2, 1000, 2},
		{"memory is the limit", 4, 8, 2},
		{"memory without a limit", 4, 0, 4},
	} {
		w := newTestEnv(t, func(s *envConfig) {
			twoGPUs(s)
			s.options.Overcommit = tt.factor
			hosts := s.hosts
			s.hosts = func(rt pods.Runtime) []pods.Host {
				list := hosts(rt)
				list[0].Memory = tt.memory
				return list
			}
		})
		n := 0
		for ; n < 10; n++ {
			if _, err := w.Create(t.Context(), alice, pod); err != nil {
				wantNoCapacity(t, tt.name, err, "8 vCPUs of host")
				break
			}
		}
		if n != tt.want {
			t.Errorf("%s: %d pods, want %d", tt.name, n, tt.want)
		}
	}
}

func TestWhereAPodGoes(t *testing.T) {
	tests := map[string]struct {
		change func(*pods.CreateRequest)
		want   string // host
	}{
		"the first host with the type":        {func(*pods.CreateRequest) {}, "ca-mtl-1-secure"},
		"the tier that was asked for":         {func(r *pods.CreateRequest) { r.Cloud = pods.Community }, "ca-mtl-1-community"},
		"the first preferred data center":     {func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"US-TX-3", "AP-JP-1"} }, "us-tx-3-secure"},
		"the next one without the type":       {func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"US-GA-1", "AP-JP-1"} }, "ap-jp-1-secure"},
		"where the volume is":                 {network("vol"), "eu-ro-1-secure"},
		"where global networking is":          {func(r *pods.CreateRequest) { r.GPU.ID, r.GlobalNetworking = "NVIDIA H200", true }, "us-ca-2-secure"},
		"where the type is, without networks": {func(r *pods.CreateRequest) { r.GPU.ID = "NVIDIA H200" }, "eu-fr-1-secure"},
		"an AMD type":                         {func(r *pods.CreateRequest) { r.GPU.ID = "AMD Instinct MI300X OAM" }, "eu-ro-1-secure"},
		"a CPU pod":                           {onCPU("cpu5m", 16), "ca-mtl-1-secure"},
	}
	for name, tt := range tests {
		w := newTestEnv(t, withDependencies)
		r := gpuPod()
		tt.change(&r)
		if got := w.create(r).Placement; got.Host != tt.want || !strings.HasPrefix(got.Host, strings.ToLower(got.DataCenter)) {
			t.Errorf("%s: the pod is on %s in %s, want %s", name, got.Host, got.DataCenter, tt.want)
		}
	}
}

func TestWhatNoHostHasIsNoCapacity(t *testing.T) {
	w := newTestEnv(t, withDependencies)
	for name, change := range map[string]func(*pods.CreateRequest){
		"more than the largest machine":      func(r *pods.CreateRequest) { r.GPU.Count = new(9) },
		"a type that the tier does not have": func(r *pods.CreateRequest) { r.GPU.ID, r.Cloud = "NVIDIA B200", pods.Community },
		"a place that does not have it":      func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"US-GA-1"} },
		"a volume's place without it":        network("far"),
		"CPUs on the community cloud":        func(r *pods.CreateRequest) { onCPU("cpu3c", 2)(r); r.Cloud = pods.Community },
	} {
		r := gpuPod()
		change(&r)
		_, err := w.Create(t.Context(), alice, r)
		wantNoCapacity(t, name, err)
	}
}

func TestPriceIsOfTheTierTimesTheCount(t *testing.T) {
	w := newTestEnv(t, nil)
	for name, tt := range map[string]struct {
		change func(*pods.CreateRequest)
		want   float64
	}{
		"secure":      {func(*pods.CreateRequest) {}, 0.69},
		"community":   {func(r *pods.CreateRequest) { r.Cloud, r.GPU.Count = pods.Community, new(3) }, 1.02},
		"eight":       {func(r *pods.CreateRequest) { r.GPU.Count = new(8) }, 5.52},
		"four vCPUs":  {onCPU("cpu5g", 4), 0.2},
		"eight vCPUs": {onCPU("cpu3c", 8), 0.24},
	} {
		r := gpuPod()
		tt.change(&r)
		if got := w.create(r).Cost(); got != tt.want {
			t.Errorf("%s: %v USD an hour, want %v", name, got, tt.want)
		}
	}
}

func withQueue(s *envConfig) {
	twoGPUs(s)
	s.options.WaitForCapacity = true
}

func TestAPodWaitsForCapacityWhenTheProgramChoosesSo(t *testing.T) {
	w := newTestEnv(t, withQueue)
	both := gpuPod()
	both.GPU.Count = new(2)
	first := w.running(both)
	var waiting []*pods.Pod
	for range 3 {
		waiting = append(waiting, w.create(gpuPod()))
		w.advance(time.Second)
	}
	for _, p := range waiting {
		p = w.want(p.ID, pods.Provisioning)
		if !strings.Contains(journal(p), "waiting for capacity: 1 x "+rtx4090) || p.Cost() != 0 || p.Placement.DataCenter != "" {
			t.Errorf("cost %v, data center %q; want a free pod without a place, and why in the journal:\n%s", p.Cost(), p.Placement.DataCenter, journal(p))
		}
	}
	w.act(first.ID, pods.Stop)
	w.advance(time.Minute)
	w.want(waiting[0].ID, pods.Running)
	w.want(waiting[1].ID, pods.Running)
	w.want(waiting[2].ID, pods.Provisioning)
	if err := w.Terminate(t.Context(), alice, waiting[0].ID); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.want(waiting[2].ID, pods.Running)
}

func TestALargeWaitingPodDoesNotHoldUpASmallOne(t *testing.T) {
	w := newTestEnv(t, withQueue)
	a, b := w.running(gpuPod()), w.running(gpuPod())
	both := gpuPod()
	both.GPU.Count = new(2)
	large, small := w.create(both), w.create(gpuPod())
	w.act(a.ID, pods.Stop)
	w.advance(time.Minute)
	w.want(large.ID, pods.Provisioning)
	w.want(small.ID, pods.Running)
	w.act(b.ID, pods.Stop)
	w.act(small.ID, pods.Stop)
	w.advance(time.Minute)
	w.want(large.ID, pods.Running)
}

func TestAWaitingPodCanBeStoppedStartedAndTerminated(t *testing.T) {
	w := newTestEnv(t, withQueue)
	a, b := w.running(gpuPod()), w.running(gpuPod())
	p := w.create(gpuPod())
	w.advance(0)
	w.act(p.ID, pods.Stop)
	w.advance(0)
	w.want(p.ID, pods.Exited)
	if err := w.Terminate(t.Context(), alice, a.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.want(p.ID, pods.Exited)
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
	q := w.create(gpuPod())
	w.advance(0)
	w.act(q.ID, pods.Stop)
	w.advance(0)
	if got := w.act(q.ID, pods.Start).Status(); got != pods.Provisioning {
		t.Errorf("a started pod that waits again is %s, want PROVISIONING", got)
	}
	w.advance(0)
	if err := w.Terminate(t.Context(), alice, q.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	if _, err := w.store.Get(t.Context(), q.ID); !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("a terminated pod that waited is still there: %v", err)
	}
	w.want(b.ID, pods.Running)
}

// noGPUsRuntime starts containers without the GPUs that they should have.
type noGPUsRuntime struct{ pods.Runtime }

func (noGPUsRuntime) Capabilities() pods.Capabilities { return pods.Capabilities{} }

func TestHostsThatDoNotFitTheCatalogAreRefused(t *testing.T) {
	w := newTestEnv(t, nil)
	good := pods.Host{ID: "h", DataCenter: "US-TX-3", Runtime: w.runtime, VCPU: map[string]int{"cpu3c": 8}}
	for name, change := range map[string]func(*pods.Host){
		"no id":                  func(h *pods.Host) { h.ID = "" },
		"no runtime":             func(h *pods.Host) { h.Runtime = nil },
		"an unknown data center": func(h *pods.Host) { h.DataCenter = "X" },
		"an unknown GPU type":    func(h *pods.Host) { h.GPUs = []pods.HostGPUs{{Type: "X", Count: 1}} },
		"an unknown flavor":      func(h *pods.Host) { h.VCPU = map[string]int{"X": 2} },
		"negative vCPUs":         func(h *pods.Host) { h.VCPU = map[string]int{"cpu3c": -1} },
		"negative memory":        func(h *pods.Host) { h.Memory = -1 },
		"a negative count":       func(h *pods.Host) { h.GPUs = []pods.HostGPUs{{Type: rtx4090, Count: -1}} },
		"a GPU type twice":       func(h *pods.Host) { h.GPUs = []pods.HostGPUs{{Type: rtx4090, Count: 1}, {Type: rtx4090, Count: 1}} },
		"a device twice": func(h *pods.Host) {
			h.GPUs = []pods.HostGPUs{{Type: rtx4090, Devices: []string{"GPU-a", "GPU-a"}}}
		},
		"devices that its runtime hands to nobody": func(h *pods.Host) {
			h.Runtime, h.GPUs = noGPUsRuntime{w.runtime}, []pods.HostGPUs{{Type: rtx4090, Devices: []string{"GPU-a"}}}
		},
	} {
		h := good
		change(&h)
		if _, err := pods.New(w.store, w.Catalog(), []pods.Host{h}, nil); err == nil {
			t.Errorf("New with a host with %s = nil, want an error", name)
		}
	}
	if _, err := pods.New(w.store, w.Catalog(), []pods.Host{good, good}, nil); err == nil {
		t.Error("New with an id twice = nil, want an error")
	}
}

func TestAHostThatNothingCouldRunOnIsRefusedAndOneThatTakesNoMorePodsIsNot(t *testing.T) {
	w := newTestEnv(t, nil)
	h := pods.Host{ID: "bare", DataCenter: "US-TX-3", Runtime: w.runtime, Memory: 64}
	_, err := pods.New(w.store, w.Catalog(), []pods.Host{h}, nil)
	if err == nil || !strings.Contains(err.Error(), `host "bare": GPUs and VCPU are empty`) {
		t.Errorf("New with a host without GPUs and vCPUs = %v, want an error that names the host and what it lacks", err)
	}
	for name, full := range map[string]func(*pods.Host){
		"0 vCPUs": func(h *pods.Host) { h.VCPU = map[string]int{"cpu3c": 0} },
		"0 GPUs":  func(h *pods.Host) { h.GPUs = []pods.HostGPUs{{Type: rtx4090}} },
	} {
		full(&h)
		if _, err := pods.New(w.store, w.Catalog(), []pods.Host{h}, nil); err != nil {
			t.Errorf("New with a host with %s = %v, want nil", name, err)
		}
	}
}
