package pods_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// volumes and credentials are those of alice.
type volumes map[string]string

func (v volumes) Volume(_ context.Context, owner, id string) (string, error) {
	if dc, ok := v[id]; ok && owner == alice {
		return dc, nil
	}
	return "", problem.New(problem.NotFound, "volume not found")
}

type credentials map[string]string

func (c credentials) PullSecret(_ context.Context, owner, id string) (registry, username, password string, err error) {
	if pw, ok := c[id]; ok && owner == alice {
		return "registry.example", "user", pw, nil
	}
	return "", "", "", problem.New(problem.NotFound, "registry not found")
}

func withDependencies(s *envConfig) {
	s.options.Volumes = volumes{"vol": "EU-RO-1", "far": "EU-NL-1"}
	s.options.Secrets = credentials{"reg": "secret"}
}

func TestFaultsOfACreateRequest(t *testing.T) {
	const ports = "must be port/protocol: 1 to 65535, and tcp, udp or http"
	const path = "must be an absolute path without '.', '..', '//' and a last '/', and not '/' itself"
	tests := []struct {
		name   string
		change func(*pods.CreateRequest)
		status int
		want   []string
	}{
		{"an empty name", func(r *pods.CreateRequest) { r.Name = "" }, 422, []string{"/name: must not be empty"}},
		{"an empty image", func(r *pods.CreateRequest) { r.Image = "" }, 422, []string{"/image: must not be empty"}},
		{"an image with a space", func(r *pods.CreateRequest) { r.Image = "a b" }, 422, []string{"/image: must have no white space and no control characters"}},
		{"neither gpu nor cpu", func(r *pods.CreateRequest) { r.GPU = nil }, 400, []string{"exactly one of gpu and cpu must be set"}},
		{"both gpu and cpu", func(r *pods.CreateRequest) { r.CPU = cpuPod().CPU }, 400, []string{"exactly one of gpu and cpu must be set"}},
		{"an empty GPU type", func(r *pods.CreateRequest) { r.GPU.ID = "" }, 422, []string{"/gpu/id: must not be empty"}},
		{"an unknown GPU type", func(r *pods.CreateRequest) { r.GPU.ID = "X" }, 422, []string{`/gpu/id: unknown GPU type "X"`}},
		{"no GPU", func(r *pods.CreateRequest) { r.GPU.Count = new(0) }, 422, []string{"/gpu/count: must be at least 1"}},
		{"fewer than no GPU", func(r *pods.CreateRequest) { r.GPU.Count = new(-1) }, 422, []string{"/gpu/count: must be at least 1"}},
		{"an unknown flavor", onCPU("X", 2), 422, []string{`/cpu/id: unknown CPU flavor "X"`}},
		{"an empty flavor", onCPU("", 2), 422, []string{"/cpu/id: must not be empty"}},
		{"vCPUs that are absent", onCPU("cpu3c", 0), 422, []string{"/cpu/vcpuCount: must be a power of two, at least 2"}},
		{"one vCPU", onCPU("cpu3c", 1), 422, []string{"/cpu/vcpuCount: must be a power of two, at least 2"}},
		{"vCPUs that are no power of two", onCPU("cpu3c", 6), 422, []string{"/cpu/vcpuCount: must be a power of two, at least 2"}},
		{"more vCPUs than the flavor has", onCPU("cpu5m", 32), 422, []string{"/cpu/vcpuCount: flavor cpu5m has 2 to 16 vCPUs"}},
		{"args with an open quote", func(r *pods.CreateRequest) { r.Args = new("a 'b") }, 422, []string{"/args: has a single quote that is not closed"}},
		{"a disk of 0", func(r *pods.CreateRequest) { r.Disk = new(0) }, 422, []string{"/disk: must be 1 to 1048576 GB"}},
		{"a disk beyond all bounds", func(r *pods.CreateRequest) { r.Disk = new(1<<20 + 1) }, 422, []string{"/disk: must be 1 to 1048576 GB"}},
		{"ports of the wrong form", func(r *pods.CreateRequest) {
			r.Ports = []string{"80/http", "80", "0/tcp", "65536/tcp", "80/HTTP", "080/tcp", "+1/tcp", "/tcp", "80/tcp/", "80/sctp", " 80/tcp", ""}
		}, 422, repeat(1, 11, "/ports/%d: "+ports)},
		{"too many ports", func(r *pods.CreateRequest) {
			for i := range 101 {
				r.Ports = append(r.Ports, fmt.Sprintf("%d/tcp", i+1))
			}
		}, 422, []string{"/ports: must have at most 100 entries"}},
		{"a port twice", func(r *pods.CreateRequest) { r.Ports = []string{"80/http", "80/tcp", "80/http"} }, 422, []string{"/ports/2: 80/http is listed twice"}},
		{"variables that no program could have", func(r *pods.CreateRequest) {
			r.Env = map[string]string{"": "x", "A=B": "x", "C": "a\x00b", "D~/": "a\x00b", "fine": "=\n"}
		}, 422, []string{
			"/env/: a variable must have a name", "/env/A=B: the name of a variable must have no '=' and no NUL byte",
			"/env/C: the value of a variable must have no NUL byte", "/env/D~0~1: the value of a variable must have no NUL byte",
		}},
		{"a credential that does not exist", func(r *pods.CreateRequest) { r.Registry = new("none") }, 400, []string{`/registry: registry credential "none" does not exist`}},
		{"both kinds of mount", func(r *pods.CreateRequest) {
			r.Mounts.Persistent = &pods.PersistentMount{Size: 10, Path: "/a"}
			r.Mounts.Network = []pods.NetworkMount{{VolumeID: "vol", Path: "/b"}}
		}, 400, []string{"/mounts: persistent and network exclude each other"}},
		{"a persistent mount on a CPU pod", func(r *pods.CreateRequest) {
			onCPU("cpu3c", 2)(r)
			r.Mounts.Persistent = &pods.PersistentMount{Size: 10, Path: "/a"}
		}, 400, []string{"/mounts/persistent: a CPU pod has no persistent mount"}},
		{"a persistent mount that is too small", func(r *pods.CreateRequest) { r.Mounts.Persistent = &pods.PersistentMount{Size: 9, Path: "/a"} },
			422, []string{"/mounts/persistent/size: must be 10 to 1048576 GB"}},
		{"an empty persistent mount", func(r *pods.CreateRequest) { r.Mounts.Persistent = &pods.PersistentMount{} },
			422, []string{"/mounts/persistent/size: must be 10 to 1048576 GB", "/mounts/persistent/path: " + path}},
		{"an empty network mount", func(r *pods.CreateRequest) { r.Mounts.Network = []pods.NetworkMount{{}} },
			422, []string{"/mounts/network/0/volumeId: must not be empty", "/mounts/network/0/path: " + path}},
		{"two network mounts", func(r *pods.CreateRequest) {
			r.Mounts.Network = []pods.NetworkMount{{VolumeID: "vol", Path: "/a"}, {VolumeID: "vol", Path: "/b"}}
		}, 422, []string{"/mounts/network: must have at most 1 entry"}},
		{"a volume that does not exist", network("none"), 400, []string{`/mounts/network/0/volumeId: network volume "none" does not exist`}},
		{"a volume in another data center", func(r *pods.CreateRequest) { network("vol")(r); r.DataCenterIDs = []string{"US-TX-3"} },
			400, []string{`/mounts/network/0/volumeId: network volume "vol" is in another data center, EU-RO-1`}},
		{"an unknown cloud", func(r *pods.CreateRequest) { r.Cloud = "secure" }, 422, []string{"/cloud: must be SECURE or COMMUNITY"}},
		{"unknown data centers", func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"US-TX-3", "X", "Y"} },
			422, []string{`/dataCenterIds/1: unknown data center "X"`, `/dataCenterIds/2: unknown data center "Y"`}},
		{"global networking on a CPU pod", func(r *pods.CreateRequest) { onCPU("cpu3c", 2)(r); r.GlobalNetworking = true },
			400, []string{"/globalNetworking: needs an NVIDIA GPU"}},
		{"global networking with an AMD GPU", func(r *pods.CreateRequest) { r.GPU.ID = "AMD Instinct MI300X OAM"; r.GlobalNetworking = true },
			400, []string{"/globalNetworking: needs an NVIDIA GPU"}},
		{"global networking where there is none", func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"AP-JP-1"}; r.GlobalNetworking = true },
			400, []string{"/globalNetworking: needs a data center that supports global networking"}},
		{"global networking where the volume has none", func(r *pods.CreateRequest) { network("far")(r); r.GlobalNetworking = true },
			400, []string{"/globalNetworking: needs a data center that supports global networking"}},
		{"faults of the schema hide those across fields, and come in the order of the fields", func(r *pods.CreateRequest) {
			r.DataCenterIDs, r.Disk, r.Name, r.CPU = []string{"X"}, new(0), "", cpuPod().CPU
		}, 422, []string{"/name: must not be empty", "/disk: must be 1 to 1048576 GB", `/dataCenterIds/0: unknown data center "X"`}},
		{"all faults across fields are told", func(r *pods.CreateRequest) {
			r.CPU, r.Registry, r.GlobalNetworking, r.DataCenterIDs = cpuPod().CPU, new("none"), true, []string{"AP-JP-1"}
		}, 400, []string{"exactly one of gpu and cpu must be set", `/registry: registry credential "none" does not exist`,
			"/globalNetworking: needs a data center that supports global networking"}},
		{"a decoder's faults stand among them and are the only ones of their field", func(r *pods.CreateRequest) {
			r.GPU.Count, r.Name = new(0), ""
			r.Violations.Add(problem.Invalid, "/wat", "unknown property")
			r.Violations.Add(problem.Invalid, "/gpu/count", "must be an integer")
		}, 422, []string{"/name: must not be empty", "/gpu/count: must be an integer", "/wat: unknown property"}},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			w := newTestEnv(t, withDependencies)
			r := gpuPod()
			tt.change(&r)
			_, err := w.Create(t.Context(), alice, r)
			doc := problem.Of(err)
			if doc.Status != tt.status {
				t.Errorf("status = %d (%v), want %d", doc.Status, err, tt.status)
			}
			want := tt.want
			if doc.Status == 400 && want[0] == "exactly one of gpu and cpu must be set" {
				want = sortedLast(want)
			}
			if diff := cmp.Diff(want, doc.Errors); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if list, _ := w.List(t.Context(), alice); len(list) != 0 {
				t.Error("a refused request made a pod")
			}
		})
	}
}

// noNetworksRuntime has no private networks.
type noNetworksRuntime struct{ pods.Runtime }

func (u noNetworksRuntime) Capabilities() pods.Capabilities {
	c := u.Runtime.Capabilities()
	c.PrivateNetworks = false
	return c
}

func TestGlobalNetworkingIsOfferedWhereEveryHostJoins(t *testing.T) {
	w := newTestEnv(t, func(s *envConfig) {
		s.hosts = func(rt pods.Runtime) []pods.Host {
			hosts := pods.SimulatedHosts(s.catalog, rt)
			for i := range hosts {
				if hosts[i].ID == "us-ca-2-secure" {
					hosts[i].Runtime = noNetworksRuntime{rt}
				}
			}
			return hosts
		}
		if d, _ := s.catalog.DataCenter("US-CA-2"); !d.GlobalNetwork {
			t.Fatal("the sample catalog has no global network in US-CA-2")
		}
	})
	if d, _ := w.Catalog().DataCenter("US-CA-2"); d.GlobalNetwork {
		t.Error("the catalog offers global networking where a host joins no networks")
	}
	r := gpuPod()
	r.GPU.ID, r.GlobalNetworking, r.DataCenterIDs = "NVIDIA H200", true, []string{"US-CA-2"}
	_, err := w.Create(t.Context(), alice, r)
	doc := problem.Of(err)
	if want := []string{"/globalNetworking: needs a data center that supports global networking"}; doc.Status != 400 || !cmp.Equal(doc.Errors, want) {
		t.Errorf("Create there = %d %q, want 400 %q", doc.Status, doc.Errors, want)
	}
	r.DataCenterIDs = nil
	r.GPU.ID = rtx4090
	if p := w.running(r); p.Seen.IP == "" {
		t.Errorf("pod in %s has no address", p.Placement.DataCenter)
	}
}

// sortedLast moves a fault of the whole body behind those of fields, as answers have it.
func sortedLast(list []string) []string { return append(append([]string{}, list[1:]...), list[0]) }

func onCPU(id string, n int) func(*pods.CreateRequest) {
	return func(r *pods.CreateRequest) { r.GPU, r.CPU = nil, &pods.CPURequest{ID: id, VCPU: n} }
}

func network(id string) func(*pods.CreateRequest) {
	return func(r *pods.CreateRequest) { r.Mounts.Network = []pods.NetworkMount{{VolumeID: id, Path: "/v"}} }
}

func repeat(from, to int, format string) (list []string) {
	for i := from; i <= to; i++ {
		list = append(list, fmt.Sprintf(format, i))
	}
	return list
}

func TestMountPathsAreAbsoluteAndClean(t *testing.T) {
	for path, ok := range map[string]bool{
		"/workspace": true, "/a/b-c.d": true, "/a b": true,
		"": false, "/": false, "a": false, "/a/": false, "/a//b": false, "/a/../b": false, "/./a": false, "/a\x00": false,
	} {
		r := gpuPod()
		r.Mounts.Persistent = &pods.PersistentMount{Size: 10, Path: path}
		_, err := newTestEnv(t, nil).Create(t.Context(), alice, r)
		if (err == nil) != ok || err != nil && problem.KindOf(err) != problem.Invalid {
			t.Errorf("mount path %q: %v, want accepted: %t", path, err, ok)
		}
	}
}

func TestDefaultsOfAPod(t *testing.T) {
	w := newTestEnv(t, nil)
	got := w.create(gpuPod())
	want := pods.Config{Image: "img", Disk: 50, Ports: []string{}, Env: map[string]string{}}
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got.Cloud != pods.Secure || got.GPU.Count != 1 || got.Locked {
		t.Errorf("cloud %s, GPUs %d, locked %t; want SECURE, 1, false", got.Cloud, got.GPU.Count, got.Locked)
	}
	if len(got.ID) != 14 || strings.Trim(got.ID, "abcdefghijklmnopqrstuvwxyz0123456789") != "" {
		t.Errorf("id = %q, want 14 lower-case letters and digits", got.ID)
	}
}

func TestBoundsThatAreAllowed(t *testing.T) {
	w := newTestEnv(t, withDependencies)
	for name, r := range map[string]func(*pods.CreateRequest){
		"the smallest disk":             func(r *pods.CreateRequest) { r.Disk = new(1) },
		"the smallest persistent mount": func(r *pods.CreateRequest) { r.Mounts.Persistent = &pods.PersistentMount{Size: 10, Path: "/a"} },
		"the first and last port":       func(r *pods.CreateRequest) { r.Ports = []string{"1/tcp", "65535/udp", "80/http", "80/tcp"} },
		"two vCPUs":                     onCPU("cpu3c", 2),
		"all vCPUs":                     onCPU("cpu3c", 32),
		"a credential that exists":      func(r *pods.CreateRequest) { r.Registry = new("reg") },
		"a volume where it is wanted":   func(r *pods.CreateRequest) { network("vol")(r); r.DataCenterIDs = []string{"US-TX-3", "EU-RO-1"} },
		"an empty network list":         func(r *pods.CreateRequest) { r.Mounts.Network = []pods.NetworkMount{} },
		"the largest machine":           func(r *pods.CreateRequest) { r.GPU.Count = new(8) },
		"global networking":             func(r *pods.CreateRequest) { r.GlobalNetworking = true },
	} {
		req := gpuPod()
		r(&req)
		if _, err := w.Create(t.Context(), alice, req); err != nil {
			t.Errorf("%s: %v, want a pod", name, err)
		}
	}
}

func TestMemoryOfACPUPodFollowsItsFlavor(t *testing.T) {
	w := newTestEnv(t, nil)
	r := cpuPod()
	r.CPU = &pods.CPURequest{ID: "cpu5m", VCPU: 4}
	if got := w.create(r).CPU; *got != (pods.CPU{ID: "cpu5m", VCPU: 4, Memory: 32}) {
		t.Errorf("cpu = %+v, want 4 vCPUs of 8 GB each", got)
	}
}

func TestFaultsOfAnUpdateRequest(t *testing.T) {
	persistent := func(r *pods.CreateRequest) { r.Mounts.Persistent = &pods.PersistentMount{Size: 20, Path: "/p"} }
	none := func(*pods.CreateRequest) {}
	mount := func(size int, path string) pods.Mounts {
		return pods.Mounts{Persistent: &pods.PersistentMount{Size: size, Path: path}}
	}
	volume := func(id string) pods.Mounts {
		return pods.Mounts{Network: []pods.NetworkMount{{VolumeID: id, Path: "/n"}}}
	}
	tests := []struct {
		name   string
		pod    func(*pods.CreateRequest)
		update pods.UpdateRequest
		status int // 0: allowed
		want   []string
	}{
		{"omitted mounts stay", persistent, pods.UpdateRequest{}, 0, nil},
		{"an empty network list is refused", network("vol"), pods.UpdateRequest{Mounts: pods.Mounts{Network: []pods.NetworkMount{}}},
			400, []string{"/mounts/network: must not be empty: a mount cannot be cleared"}},
		{"an empty network list is refused on a pod without mounts", none, pods.UpdateRequest{Mounts: pods.Mounts{Network: []pods.NetworkMount{}}},
			400, []string{"/mounts/network: must not be empty: a mount cannot be cleared"}},
		{"a persistent mount on a network pod is refused", network("vol"), pods.UpdateRequest{Mounts: mount(20, "/p")},
			400, []string{"/mounts/persistent: the pod was not created with a persistent mount"}},
		{"a network mount on a persistent pod is refused", persistent, pods.UpdateRequest{Mounts: volume("vol")},
			400, []string{"/mounts/network: the pod was not created with a network mount"}},
		{"a persistent mount on a pod without one is refused", none, pods.UpdateRequest{Mounts: mount(20, "/p")},
			400, []string{"/mounts/persistent: the pod was not created with a persistent mount"}},
		{"a network mount on a pod without one is refused", none, pods.UpdateRequest{Mounts: volume("vol")},
			400, []string{"/mounts/network: the pod was not created with a network mount"}},
		{"another volume is refused", network("vol"), pods.UpdateRequest{Mounts: volume("far")},
			400, []string{"/mounts/network/0/volumeId: is fixed at creation"}},
		{"the same volume may have another path", network("vol"), pods.UpdateRequest{Mounts: volume("vol")}, 0, nil},
		{"a persistent mount may grow", persistent, pods.UpdateRequest{Mounts: mount(21, "/p")}, 0, nil},
		{"a persistent mount may not shrink", persistent, pods.UpdateRequest{Mounts: mount(19, "/p")},
			400, []string{"/mounts/persistent/size: must not be below the present 20 GB"}},
		{"an incomplete entry is a fault of the schema", network("vol"), pods.UpdateRequest{Mounts: pods.Mounts{Network: []pods.NetworkMount{{Path: "/n"}}}},
			422, []string{"/mounts/network/0/volumeId: must not be empty"}},
		{"an empty name is refused", none, pods.UpdateRequest{Name: new("")}, 422, []string{"/name: must not be empty"}},
		{"an empty image is refused", none, pods.UpdateRequest{Image: new("")}, 422, []string{"/image: must not be empty"}},
		{"args, disk and ports are judged", none, pods.UpdateRequest{Args: new(`\`), Disk: new(0), Ports: []string{"x"}}, 422, []string{
			"/args: ends with a backslash", "/disk: must be 1 to 1048576 GB", "/ports/0: must be port/protocol: 1 to 65535, and tcp, udp or http"}},
		{"a credential that does not exist is refused", none, pods.UpdateRequest{Registry: new("none")},
			400, []string{`/registry: registry credential "none" does not exist`}},
		{"no credential is none", none, pods.UpdateRequest{Registry: new("")}, 0, nil},
		{"global networking needs an NVIDIA GPU", onCPU("cpu3c", 2), pods.UpdateRequest{GlobalNetworking: new(true)},
			400, []string{"/globalNetworking: needs an NVIDIA GPU"}},
		{"global networking needs it where the pod is", func(r *pods.CreateRequest) { r.DataCenterIDs = []string{"AP-JP-1"} },
			pods.UpdateRequest{GlobalNetworking: new(true)}, 400, []string{"/globalNetworking: needs a data center that supports global networking"}},
		{"global networking can be turned off", onCPU("cpu3c", 2), pods.UpdateRequest{GlobalNetworking: new(false)}, 0, nil},
	}
	for _, tt := range tests {
		t.Run(strings.ReplaceAll(tt.name, " ", "-"), func(t *testing.T) {
			w := newTestEnv(t, withDependencies)
			r := gpuPod()
			tt.pod(&r)
			p := w.create(r)
			_, err := w.Update(t.Context(), alice, p.ID, tt.update)
			if tt.status == 0 {
				if err != nil {
					t.Errorf("Update = %v, want nil", err)
				}
				return
			}
			doc := problem.Of(err)
			if diff := cmp.Diff(tt.want, doc.Errors); diff != "" || doc.Status != tt.status {
				t.Errorf("status %d, want %d; errors (-want +got):\n%s", doc.Status, tt.status, diff)
			}
			if diff := cmp.Diff(p, w.get(p.ID)); diff != "" {
				t.Errorf("a refused update changed the pod (-before +after):\n%s", diff)
			}
		})
	}
}

func TestUpdateReplacesWhatItNames(t *testing.T) {
	w := newTestEnv(t, withDependencies)
	r := gpuPod()
	r.Env, r.Ports, r.Args = map[string]string{"A": "1", "B": "2"}, []string{"80/http"}, new("x")
	r.Mounts.Persistent = &pods.PersistentMount{Size: 20, Path: "/p"}
	p := w.create(r)
	got, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{
		Name: new("new"), Image: new("img:2"), Disk: new(9), Env: map[string]string{"C": "3"}, Ports: []string{},
		Registry: new("reg"), Mounts: pods.Mounts{Persistent: &pods.PersistentMount{Size: 30, Path: "/q"}},
		Locked: new(true), GlobalNetworking: new(true),
	})
	if err != nil {
		t.Fatal(err)
	}
	want := pods.Config{
		Image: "img:2", Args: "x", Disk: 9, Env: map[string]string{"C": "3"}, Ports: []string{}, Registry: "reg",
		Mounts: pods.Mounts{Persistent: &pods.PersistentMount{Size: 30, Path: "/q"}}, GlobalNetworking: true,
	}
	if diff := cmp.Diff(want, got.Config); diff != "" {
		t.Errorf("settings (-want +got):\n%s", diff)
	}
	if got.Name != "new" || !got.Locked {
		t.Errorf("name %q, locked %t; want them at once", got.Name, got.Locked)
	}
	if diff := cmp.Diff(p.Want.Applied, got.Want.Applied); diff != "" {
		t.Errorf("the container that runs is another one (-want +got):\n%s", diff)
	}
}

func TestUnreadableRandomnessIsAnErrorAndNoPod(t *testing.T) {
	w := newTestEnv(t, func(s *envConfig) { s.options.Rand = strings.NewReader("short") })
	if _, err := w.Create(t.Context(), alice, gpuPod()); err == nil || errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("Create = %v, want the error of the reader", err)
	}
}
