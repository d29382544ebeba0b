package pods_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// twoHosts are one with named GPUs and one with counted ones.
func twoHosts(s *envConfig) {
	s.hosts = func(rt pods.Runtime) []pods.Host {
		return []pods.Host{
			{
				ID: "named", DataCenter: "US-TX-3", Clouds: []pods.Cloud{pods.Secure}, Runtime: rt, CUDA: "12.4",
				GPUs: []pods.HostGPUs{{Type: rtx4090, Devices: []string{"a", "b", "c"}}},
			},
			{
				ID: "counted", DataCenter: "EU-RO-1", Runtime: rt, CUDA: "12.8", Memory: 40, VCPU: map[string]int{"cpu3c": 8},
				GPUs: []pods.HostGPUs{{Type: rtx4090, Count: 4}},
			},
		}
	}
}

func TestSupplyIsWhatCanStillBeClaimed(t *testing.T) {
	w := newTestEnv(t, twoHosts)
	want := func(d pods.Requirements, want ...pods.HostCapacity) {
		t.Helper()
		got, err := w.Capacity(t.Context(), d)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("Supply of %+v (-want +got):\n%s", d, diff)
		}
	}
	one, two := pods.Requirements{GPU: rtx4090, Count: 1}, pods.Requirements{GPU: rtx4090, Count: 2}
	want(one, pods.HostCapacity{"US-TX-3", "12.4", 3, 3}, pods.HostCapacity{"EU-RO-1", "12.8", 4, 4})
	p := w.create(gpuPod())
	want(one, pods.HostCapacity{"US-TX-3", "12.4", 2, 3}, pods.HostCapacity{"EU-RO-1", "12.8", 4, 4})
	want(two, pods.HostCapacity{"US-TX-3", "12.4", 1, 1}, pods.HostCapacity{"EU-RO-1", "12.8", 2, 2})
	r := gpuPod()
	r.GPU.Count = new(3)
	r.DataCenterIDs = []string{"EU-RO-1"}
	w.create(r)
	want(two, pods.HostCapacity{"US-TX-3", "12.4", 1, 1}, pods.HostCapacity{"EU-RO-1", "12.8", 0, 2})
	want(pods.Requirements{GPU: rtx4090, Count: 4}, pods.HostCapacity{"EU-RO-1", "12.8", 0, 1})
	want(pods.Requirements{GPU: rtx4090, Count: 1, Cloud: pods.Community}, pods.HostCapacity{"EU-RO-1", "12.8", 1, 4})
	want(pods.Requirements{GPU: rtx4090, Count: 1, CUDA: pods.CUDAVersions{Min: "12.5"}}, pods.HostCapacity{"EU-RO-1", "12.8", 1, 4})
	want(pods.Requirements{GPU: rtx4090, Count: 1, CUDA: pods.CUDAVersions{Allowed: []string{"12.4"}}}, pods.HostCapacity{"US-TX-3", "12.4", 2, 3})
	want(pods.Requirements{GPU: "NVIDIA H200", Count: 1})
	want(pods.Requirements{GPU: rtx4090, Count: 9, Cloud: pods.Secure})
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	want(pods.Requirements{GPU: rtx4090, Count: 3}, pods.HostCapacity{"US-TX-3", "12.4", 1, 1}, pods.HostCapacity{"EU-RO-1", "12.8", 0, 1})
}

func TestSupplyOfCPUsIsBoundedByMemory(t *testing.T) {
	w := newTestEnv(t, twoHosts)
	got := func(vcpus int) pods.HostCapacity {
		t.Helper()
		list, err := w.Capacity(t.Context(), pods.Requirements{CPU: "cpu3c", VCPU: vcpus})
		if err != nil || len(list) != 1 {
			t.Fatalf("Supply = %v, %v; want one host", list, err)
		}
		return list[0]
	}
	// 8 vCPUs are promised four times over, and each comes with 2 GB of the 40.
	if diff := cmp.Diff(pods.HostCapacity{DataCenter: "EU-RO-1", Free: 10, Total: 10}, got(2)); diff != "" {
		t.Errorf("an empty host, 2 vCPUs (-want +got):\n%s", diff)
	}
	w.create(cpuPod())
	if s := got(4); s.Free != 4 || s.Total != 5 {
		t.Errorf("a host with a pod of 4 GB takes %d of %d pods of 8 GB, want 4 of 5", s.Free, s.Total)
	}
	if list, err := w.Capacity(t.Context(), pods.Requirements{CPU: catalog.HostFlavor, VCPU: 2}); err != nil || len(list) != 0 {
		t.Errorf("Supply of a flavor that no host has = %v, %v", list, err)
	}
}
