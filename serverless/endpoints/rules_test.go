package endpoints_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// testCatalog is a catalog with one of everything, and two pools.
type testCatalog struct{}

func (testCatalog) Flavor(id string, vcpus int) (int, bool) {
	if id != "cpu5c" {
		return 0, false
	}
	if vcpus > 8 {
		return 0, true
	}
	return 2 * vcpus, true
}

func (testCatalog) Pool(id string) []string {
	return map[string][]string{"ADA_24": {"RTX 4090"}, "ADA_48": {"L40", "L40S"}}[id]
}

func (testCatalog) DataCenter(id string) bool { return id == "US-1" }

// testRegistries has one credential of alice.
type testRegistries struct{}

func (testRegistries) PullSecret(_ context.Context, owner, id string) (string, string, string, error) {
	if owner != "alice" || id != "reg1" {
		return "", "", "", problem.New(problem.NotFound, "registry not found")
	}
	return "", "user", "password", nil
}

// testVolumes has network volumes of alice.
type testVolumes map[string]string

func (s testVolumes) Volume(_ context.Context, owner, id string) (dataCenter string, err error) {
	if owner != "alice" || s[id] == "" {
		return "", problem.New(problem.NotFound, "network volume not found")
	}
	return s[id], nil
}

// newService is a service on memory, with a catalog and one credential.
func newService() *endpoints.Service {
	return endpoints.New(memory.NewEndpoints(), &endpoints.Options{Catalog: testCatalog{}, Registries: testRegistries{}})
}

//go:fix inline
func ptr[T any](v T) *T { return new(v) }

// cpuEndpoint is a request within the rules, and gpuEndpoint another.
func cpuEndpoint() endpoints.CreateRequest {
	return endpoints.CreateRequest{Type: endpoints.QueueType, Settings: endpoints.Settings{
		Name: new("cpu"), Image: new("org/worker:1"), CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 4}},
		Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
	}}
}

func gpuEndpoint() endpoints.CreateRequest {
	r := cpuEndpoint()
	r.Name, r.CPU = new("gpu"), nil
	r.GPU = &endpoints.GPUSettings{Pools: []string{"ADA_24", "ADA_48"}, ExcludedTypes: []string{" L40"}}
	return r
}

// faults is what an error says is wrong, and whether it is the schema or a rule that was
// broken.
func faults(t *testing.T, err error) (kind problem.Kind, list []string) {
	t.Helper()
	var p *problem.Error
	if !errors.As(err, &p) {
		t.Fatalf("error is %v, want a *problem.Error", err)
	}
	return p.Kind, p.Errors
}

func TestRequestThatBreaksARuleMakesNoEndpoint(t *testing.T) {
	for _, tt := range []struct {
		name string
		kind problem.Kind
		set  func(r *endpoints.CreateRequest)
		want []string
	}{
		{"nothing but its compute", problem.Invalid, func(r *endpoints.CreateRequest) {
			*r = endpoints.CreateRequest{Settings: endpoints.Settings{CPU: r.CPU}}
		}, []string{"/name: is required", "/type: must be one of QUEUE, LOAD_BALANCER", "/image: is required", "/scaling: is required"}},
		{"a type that is not offered", problem.BadRequest, func(r *endpoints.CreateRequest) { r.Type = endpoints.LoadBalancerType },
			[]string{"/type: load-balancing endpoints are not offered: use QUEUE"}},
		{"a type that does not exist", problem.Invalid, func(r *endpoints.CreateRequest) { r.Type = "STREAM" },
			[]string{"/type: must be one of QUEUE, LOAD_BALANCER"}},
		{"no compute", problem.BadRequest, func(r *endpoints.CreateRequest) { r.CPU = nil },
			[]string{"exactly one of gpu and cpu must be set"}},
		{"both kinds of compute", problem.BadRequest, func(r *endpoints.CreateRequest) { r.GPU = gpuEndpoint().GPU },
			[]string{"exactly one of gpu and cpu must be set"}},
		{"container settings", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.Image, r.Args, r.Disk, r.Ports, r.Env = new("a b"), new("'"), new(0), []string{"80"}, map[string]string{"": "x"}
		}, []string{
			"/image: must have no white space and no control characters", "/args: has a single quote that is not closed",
			"/disk: must be 1 to 1048576 GB", "/ports/0: must be port/protocol: 1 to 65535, and tcp, udp or http", "/env/: a variable must have a name",
		}},
		{"machines", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.CPU = []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 4}, {ID: "cpu5c", VCPU: 4}, {ID: "cpu9", VCPU: 2}, {ID: "", VCPU: 2}, {ID: "cpu5c", VCPU: 3}, {ID: "cpu5c", VCPU: 16}, {ID: "cpu5c", VCPU: 0}}
		}, []string{
			"/cpu/1: cpu5c with 4 vCPUs is listed twice", `/cpu/2/id: unknown CPU flavor "cpu9"`, "/cpu/3/id: must not be empty",
			"/cpu/4/vcpuCount: must be a power of two, at least 2", "/cpu/5/vcpuCount: flavor cpu5c does not have 16 vCPUs",
			"/cpu/6/vcpuCount: must be a power of two, at least 2",
		}},
		{"no machine", problem.Invalid, func(r *endpoints.CreateRequest) { r.CPU = []endpoints.CPUSettings{} },
			[]string{"/cpu: must have at least 1 entry"}},
		{"GPUs", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.CPU = nil
			r.GPU = &endpoints.GPUSettings{
				Pools: []string{"ADA_24", "RTX 4090"}, ExcludedTypes: []string{"L40", "-L40", " ", " L40 "}, Count: new(0),
				AllowedCUDAVersions: []string{"12.8", "12"}, MinCUDAVersion: new(""),
			}
		}, []string{
			`/gpu/pools/1: unknown GPU pool "RTX 4090"`, "/gpu/excludedTypes/1: must not be blank and not begin with '-'",
			"/gpu/excludedTypes/2: must not be blank and not begin with '-'", `/gpu/excludedTypes/3: "L40" is listed twice`, "/gpu/count: must be at least 1",
			"/gpu/allowedCudaVersions/1: must be a version as major.minor", "/gpu/minCudaVersion: must be a version as major.minor",
		}},
		{"no pools", problem.Invalid, func(r *endpoints.CreateRequest) { r.CPU, r.GPU = nil, &endpoints.GPUSettings{} },
			[]string{"/gpu/pools: is required"}},
		{"an empty list of pools", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.CPU, r.GPU = nil, &endpoints.GPUSettings{Pools: []string{}}
		}, []string{"/gpu/pools: must have at least 1 entry"}},
		{"an exclusion of another pool", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.CPU, r.GPU = nil, &endpoints.GPUSettings{Pools: []string{"ADA_24"}, ExcludedTypes: []string{"L40"}}
		}, []string{`/gpu/excludedTypes/0: GPU type "L40" is in none of the pools`}},
		{"an exclusion of everything", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.CPU, r.GPU = nil, &endpoints.GPUSettings{Pools: []string{"ADA_48"}, ExcludedTypes: []string{"L40", "L40S"}}
		}, []string{"/gpu/excludedTypes: leaves no GPU type of the pools"}},
		{"a floor and a set of CUDA versions", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.CPU, r.GPU = nil, &endpoints.GPUSettings{Pools: []string{"ADA_48"}, AllowedCUDAVersions: []string{"12.8"}, MinCUDAVersion: new("12.1")}
		}, []string{"/gpu/minCudaVersion: minCudaVersion and allowedCudaVersions exclude each other: clear one of them"}},
		{"bounds of workers", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.Workers = endpoints.WorkerSettings{Min: new(-1), Max: new(1001), Idle: ptr(3601 * time.Second)}
		}, []string{"/workers/min: must be from 0 to 1000", "/workers/max: must be from 0 to 1000", "/workers/idleTimeout: must be from 1 to 3600 seconds"}},
		{"more workers at least than at most", problem.BadRequest, func(r *endpoints.CreateRequest) { r.Workers.Min = new(4) },
			[]string{"/workers/min: min, 4, must not be above max, 3"}},
		{"fewer workers at most than at least", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.Workers.Min, r.Workers.Max = new(2), new(1)
		}, []string{"/workers/min: min, 2, must not be above max, 1"}},
		{"an idle timeout of an endpoint that counts requests", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.Workers.Idle, r.Scaling = ptr(5*time.Second), &endpoints.Scaling{Type: endpoints.RequestCount, Count: 1}
		}, []string{"/workers/idleTimeout: does not apply to an endpoint that scales by REQUEST_COUNT"}},
		{"a delay below the bound", problem.Invalid, func(r *endpoints.CreateRequest) { r.Scaling.Delay = 499 * time.Millisecond },
			[]string{"/scaling/queueDelay: must be from 0.5 to 604800 seconds"}},
		{"a count below the bound", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.Scaling = &endpoints.Scaling{Type: endpoints.RequestCount}
		}, []string{"/scaling/requestCount: must be at least 1"}},
		{"a scaling without a type", problem.Invalid, func(r *endpoints.CreateRequest) { r.Scaling.Type = "" },
			[]string{"/scaling/type: must be one of QUEUE_DELAY, REQUEST_COUNT"}},
		{"an unknown scaling", problem.Invalid, func(r *endpoints.CreateRequest) { r.Scaling.Type = "CPU" },
			[]string{"/scaling/type: must be one of QUEUE_DELAY, REQUEST_COUNT"}},
		{"timeout, place and flashboot", problem.Invalid, func(r *endpoints.CreateRequest) {
			r.Timeout, r.FlashBoot, r.DataCenterIDs = ptr(4999*time.Millisecond), ptr(endpoints.FlashBoot("ON")), []string{"US-1", "US-2"}
		}, []string{
			`/dataCenterIds/1: unknown data center "US-2"`, "/timeout: must be from 5000 to 604800000 milliseconds",
			"/flashboot: must be one of OFF, FLASHBOOT, PRIORITY_FLASHBOOT",
		}},
		{"a timeout above the bound", problem.Invalid, func(r *endpoints.CreateRequest) { r.Timeout = ptr(7*24*time.Hour + 1) },
			[]string{"/timeout: must be from 5000 to 604800000 milliseconds"}},
		{"what does not exist", problem.BadRequest, func(r *endpoints.CreateRequest) {
			r.Registry, r.NetworkVolumes = new("reg2"), []string{"vol1"}
		}, []string{`/registry: registry credential "reg2" does not exist`, `/networkVolumes/0: network volume "vol1" does not exist`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService()
			r := cpuEndpoint()
			tt.set(&r)
			_, err := s.Create(t.Context(), "alice", r)
			kind, list := faults(t, err)
			if diff := cmp.Diff(tt.want, list); diff != "" || kind != tt.kind {
				t.Errorf("Create answers %d, want %d; faults (-want +got):\n%s", kind.Status(), tt.kind.Status(), diff)
			}
			if got, err := s.List(t.Context(), "alice"); err != nil || len(got) > 0 {
				t.Errorf("after a refused request there are %d endpoints (%v), want none", len(got), err)
			}
		})
	}
}

func TestAnEndpointHasANetworkVolumeForEachOfItsDataCenters(t *testing.T) {
	volumes := testVolumes{"a": "US-1", "b": "US-1", "far": "EU-1", "doomed": "US-1"}
	store := memory.NewEndpoints()
	s := endpoints.New(store, &endpoints.Options{Volumes: volumes})
	create := func(owner string, places []string, list ...string) (*endpoints.Endpoint, error) {
		r := cpuEndpoint()
		r.DataCenterIDs, r.NetworkVolumes = places, list
		return s.Create(t.Context(), owner, r)
	}
	for _, tt := range []struct {
		name, owner  string
		places, list []string
		want         string
	}{
		{"one that is another's", "bob", nil, []string{"a"}, `/networkVolumes/0: network volume "a" does not exist`},
		{"one that does not exist", "alice", nil, []string{"a", "none"}, `/networkVolumes/1: network volume "none" does not exist`},
		{"one twice", "alice", nil, []string{"a", "a"}, `/networkVolumes/1: network volume "a" is listed twice`},
		{"two in one place", "alice", nil, []string{"a", "far", "b"}, `/networkVolumes/2: network volume "b" is in US-1, as is "a": a worker mounts one`},
		{"one elsewhere", "alice", []string{"US-1"}, []string{"a", "far"}, `/networkVolumes/1: network volume "far" is in another data center, EU-1`},
	} {
		_, err := create(tt.owner, tt.places, tt.list...)
		if kind, list := faults(t, err); kind != problem.BadRequest || !slices.Equal(list, []string{tt.want}) {
			t.Errorf("Create with %s answers %d %q, want 400 %q", tt.name, kind.Status(), list, tt.want)
		}
	}
	e, err := create("alice", []string{"US-1", "EU-1"}, "far", "doomed")
	if err != nil || !slices.Equal(e.NetworkVolumes, []string{"far", "doomed"}) {
		t.Fatalf("Create = %+v, %v, want its volumes", e, err)
	}
	update := func(set endpoints.Settings) error {
		_, err := s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: set})
		return err
	}
	delete(volumes, "doomed")
	err = update(endpoints.Settings{DataCenterIDs: []string{"US-1"}})
	if kind, list := faults(t, err); kind != problem.BadRequest || !slices.Equal(list, []string{`/networkVolumes/0: network volume "far" is in another data center, EU-1`}) {
		t.Errorf("Update that leaves a volume's place answers %d %q", kind.Status(), list)
	}
	if err := update(endpoints.Settings{DataCenterIDs: []string{"EU-1"}}); err != nil {
		t.Errorf("Update that keeps to the volume that is left = %v, want nil", err)
	}
	if err := update(endpoints.Settings{DataCenterIDs: []string{}, NetworkVolumes: []string{"a"}}); err != nil {
		t.Errorf("Update to another volume = %v, want nil", err)
	}
	used := endpoints.References{Endpoints: store}
	for id, want := range map[string]bool{"a": true, "far": false} {
		if got, err := used.VolumeInUse(t.Context(), "alice", id); err != nil || got != want {
			t.Errorf("VolumeInUse(%q) = %t, %v, want %t", id, got, err, want)
		}
	}
}

func TestChangeThatBreaksARuleChangesNothing(t *testing.T) {
	cpu, gpu := cpuEndpoint(), gpuEndpoint()
	for _, tt := range []struct {
		name string
		of   endpoints.CreateRequest
		kind problem.Kind
		r    endpoints.Settings
		want string
	}{
		{"an empty name", cpu, problem.Invalid, endpoints.Settings{Name: new("")}, "/name: must not be empty"},
		{"an empty image", cpu, problem.Invalid, endpoints.Settings{Image: new("")}, "/image: must not be empty"},
		{"GPUs for a CPU endpoint", cpu, problem.BadRequest, endpoints.Settings{GPU: &endpoints.GPUSettings{Pools: []string{"ADA_24"}}},
			"/gpu: the endpoint was not created with GPUs, and what it computes with cannot be changed"},
		{"CPUs for a GPU endpoint", gpu, problem.BadRequest, endpoints.Settings{CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 2}}},
			"/cpu: the endpoint was not created with CPUs, and what it computes with cannot be changed"},
		{"both kinds of compute", gpu, problem.BadRequest, endpoints.Settings{CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 2}}, GPU: &endpoints.GPUSettings{}},
			"gpu and cpu exclude each other"},
		{"exclusions without pools", gpu, problem.Invalid, endpoints.Settings{GPU: &endpoints.GPUSettings{ExcludedTypes: []string{"L40"}}},
			"/gpu/excludedTypes: needs pools: the two are one selection"},
		{"a minimum above the maximum that is there", cpu, problem.BadRequest, endpoints.Settings{Workers: endpoints.WorkerSettings{Min: new(4)}},
			"/workers/min: min, 4, must not be above max, 3"},
		{"an idle timeout with a switch of the scaling", cpu, problem.BadRequest, endpoints.Settings{
			Workers: endpoints.WorkerSettings{Idle: ptr(time.Second)}, Scaling: &endpoints.Scaling{Type: endpoints.RequestCount, Count: 1},
		}, "/workers/idleTimeout: does not apply to an endpoint that scales by REQUEST_COUNT"},
		{"a credential that is another's", cpu, problem.BadRequest, endpoints.Settings{Registry: new("reg2")},
			`/registry: registry credential "reg2" does not exist`},
		{"a network volume", cpu, problem.BadRequest, endpoints.Settings{NetworkVolumes: []string{"v"}},
			`/networkVolumes/0: network volume "v" does not exist`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService()
			e, err := s.Create(t.Context(), "alice", tt.of)
			if err != nil {
				t.Fatal(err)
			}
			_, err = s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: tt.r})
			kind, list := faults(t, err)
			if kind != tt.kind || !slices.Equal(list, []string{tt.want}) {
				t.Errorf("Update answers %d %q, want %d %q", kind.Status(), list, tt.kind.Status(), tt.want)
			}
			got, err := s.Get(t.Context(), "alice", e.ID)
			if diff := cmp.Diff(e, got); diff != "" || err != nil {
				t.Errorf("a refused change left (%v, -want +got):\n%s", err, diff)
			}
		})
	}
}

func TestCUDAConstraintIsClearedBeforeTheOtherIsSet(t *testing.T) {
	s := newService()
	r := gpuEndpoint()
	r.GPU.AllowedCUDAVersions = []string{"12.8"}
	e, err := s.Create(t.Context(), "alice", r)
	if err != nil {
		t.Fatal(err)
	}
	set := func(g endpoints.GPUSettings) error {
		_, err := s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: endpoints.Settings{GPU: &g}})
		return err
	}
	if err := set(endpoints.GPUSettings{MinCUDAVersion: new("12.1")}); problem.KindOf(err) != problem.BadRequest {
		t.Errorf("a floor beside the set that is there: %v, want a broken rule", err)
	}
	if err := set(endpoints.GPUSettings{MinCUDAVersion: new("12.1"), AllowedCUDAVersions: []string{}}); err != nil {
		t.Errorf("a floor and an explicit empty set: %v, want nil", err)
	}
	if err := set(endpoints.GPUSettings{MinCUDAVersion: new("")}); err != nil {
		t.Errorf("an empty floor clears it: %v, want nil", err)
	}
	got, err := s.Get(t.Context(), "alice", e.ID)
	want := &endpoints.GPU{Pools: []string{"ADA_24", "ADA_48"}, ExcludedTypes: []string{"L40"}, Count: 1}
	if diff := cmp.Diff(want, got.GPU); diff != "" || err != nil {
		t.Errorf("the selection (%v, -want +got):\n%s", err, diff)
	}
	if err := set(endpoints.GPUSettings{Pools: []string{"ADA_48"}}); err != nil {
		t.Fatal(err)
	}
	got, err = s.Get(t.Context(), "alice", e.ID)
	if err != nil || len(got.GPU.ExcludedTypes) != 0 || !slices.Equal(got.GPU.Pools, []string{"ADA_48"}) {
		t.Errorf("pools without exclusions replace the selection: %+v, %v", got.GPU, err)
	}
}

func TestWithoutACatalogIDsAreNotChecked(t *testing.T) {
	s := endpoints.New(memory.NewEndpoints(), nil)
	r := gpuEndpoint()
	r.GPU.Pools, r.DataCenterIDs = []string{"ANY"}, []string{"MOON-1"}
	if _, err := s.Create(t.Context(), "alice", r); err != nil {
		t.Errorf("Create = %v, want nil", err)
	}
	r.Registry = new("reg1")
	if _, err := s.Create(t.Context(), "alice", r); err == nil || !strings.Contains(err.Error(), "reg1") {
		t.Errorf("without registries no credential exists: %v", err)
	}
}

func TestLongListsAreCheckedQuickly(t *testing.T) {
	var types, pools []string
	var cpu []endpoints.CPUSettings
	for i := range 100_000 {
		types, pools = append(types, strconv.Itoa(i)), append(pools, "ADA_48")
		cpu = append(cpu, endpoints.CPUSettings{ID: "cpu5c", VCPU: i})
	}
	name, image := "n", "i"
	for what, r := range map[string]endpoints.Settings{
		"types":           {GPU: &endpoints.GPUSettings{Pools: pools[:1], ExcludedTypes: types}},
		"pools and types": {GPU: &endpoints.GPUSettings{Pools: pools, ExcludedTypes: types}},
		"machines":        {CPU: cpu},
	} {
		r.Name, r.Image = &name, &image
		began := time.Now()
		_, err := newService().Create(t.Context(), "alice", endpoints.CreateRequest{Type: endpoints.QueueType, Settings: r})
		if err == nil {
			t.Errorf("an endpoint of 100000 %s was made", what)
		}
		// It is about 50 ms; looking through the list for each of its entries is a minute.
		if d := time.Since(began); d > 30*time.Second {
			t.Errorf("100000 %s were judged in %v", what, d)
		}
	}
}
