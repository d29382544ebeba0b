package endpoints_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless/endpoints"
)

func TestChangeOfWhatWorkersAreMadeOfIsARelease(t *testing.T) {
	for _, tt := range []struct {
		name string
		of   endpoints.CreateRequest
		r    endpoints.Settings
		want []string // field: old -> new
	}{
		{"image", cpuEndpoint(), endpoints.Settings{Image: new("org/worker:2")}, []string{`image: "org/worker:1" -> "org/worker:2"`}},
		{"args", cpuEndpoint(), endpoints.Settings{Args: new("--x")}, []string{`args: "" -> "--x"`}},
		{"env", cpuEndpoint(), endpoints.Settings{Env: map[string]string{"B": "2", "A": "1"}}, []string{`env: {} -> {"A":"1","B":"2"}`}},
		{"disk", cpuEndpoint(), endpoints.Settings{Disk: new(20)}, []string{`disk: 50 -> 20`}},
		{"ports", cpuEndpoint(), endpoints.Settings{Ports: []string{"80/http"}}, []string{`ports: [] -> ["80/http"]`}},
		{"registry", cpuEndpoint(), endpoints.Settings{Registry: new("reg1")}, []string{`registry:  -> "reg1"`}},
		{"machines", cpuEndpoint(), endpoints.Settings{CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 2}, {ID: "cpu5c", VCPU: 8}}},
			[]string{`cpu: [{"id":"cpu5c","vcpuCount":4,"memory":8}] -> [{"id":"cpu5c","vcpuCount":2,"memory":4},{"id":"cpu5c","vcpuCount":8,"memory":16}]`}},
		{"GPUs", gpuEndpoint(), endpoints.Settings{GPU: &endpoints.GPUSettings{Pools: []string{"ADA_24"}, Count: new(2), MinCUDAVersion: new("12.1")}},
			[]string{`gpu.pools: ["ADA_24","ADA_48"] -> ["ADA_24"]`, `gpu.excludedTypes: ["L40"] -> `, `gpu.count: 1 -> 2`, `gpu.minCudaVersion:  -> "12.1"`}},
		{"places", cpuEndpoint(), endpoints.Settings{DataCenterIDs: []string{"US-1"}}, []string{`dataCenterIds: [] -> ["US-1"]`}},
		{"flashboot", cpuEndpoint(), endpoints.Settings{FlashBoot: ptr(endpoints.FlashBootOn)}, []string{`flashboot: "OFF" -> "FLASHBOOT"`}},
		{"several at once", cpuEndpoint(), endpoints.Settings{Image: new("i"), Disk: new(1), Name: new("n")}, []string{`image: "org/worker:1" -> "i"`, `disk: 50 -> 1`}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := newService()
			e, err := s.Create(t.Context(), "alice", tt.of)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // the second time there is nothing to change
				if e, err = s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: tt.r}); err != nil {
					t.Fatal(err)
				}
			}
			if e.Version != 2 || len(e.Releases) != 2 {
				t.Fatalf("version %d with %d releases, want one more than at first", e.Version, len(e.Releases))
			}
			r := e.Releases[1]
			var got []string
			for _, c := range r.Diff {
				got = append(got, fmt.Sprintf("%s: %s -> %s", c.Field, c.Old, c.New))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" || r.Version != 2 || r.User != "alice" || r.ID == e.Releases[0].ID {
				t.Errorf("release %+v; its changes (-want +got):\n%s", r, diff)
			}
		})
	}
}

func TestOldReleasesAreForgotten(t *testing.T) {
	s := newService()
	e, err := s.Create(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 60 {
		r := endpoints.UpdateRequest{Settings: endpoints.Settings{Disk: new(100 + i)}}
		if e, err = s.Update(t.Context(), "alice", e.ID, r); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(e.Releases); n != 50 || e.Version != 61 || e.Releases[0].Version != 12 || e.Releases[49].Version != 61 {
		t.Errorf("version %d with %d releases from %d on, want the last 50 of 61", e.Version, n, e.Releases[0].Version)
	}
}

func TestConcurrentChangesAreAllReleases(t *testing.T) {
	s := newService()
	e, err := s.Create(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			r := endpoints.UpdateRequest{Settings: endpoints.Settings{Disk: new(100 + i)}}
			if _, err := s.Update(t.Context(), "alice", e.ID, r); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	got, err := s.Get(t.Context(), "alice", e.ID)
	if err != nil {
		t.Fatal(err)
	}
	disk := "50"
	for i, r := range got.Releases[1:] {
		if r.Version != i+2 || len(r.Diff) != 1 || string(r.Diff[0].Old) != disk {
			t.Errorf("release %d is %+v, want one that changes the disk from %s", i+2, r, disk)
		}
		disk = string(r.Diff[0].New)
	}
	if want := fmt.Sprint(got.Container.Disk); got.Version != 21 || disk != want {
		t.Errorf("version %d ends with a disk of %s, want version 21 with %s", got.Version, disk, want)
	}
}
