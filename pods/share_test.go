package pods_test

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// twoSizes is a small and a large host of one type of GPU.
func twoSizes(s *envConfig) {
	s.hosts = func(rt pods.Runtime) []pods.Host {
		host := func(id string, gpus, cores, memory int) pods.Host {
			return pods.Host{
				ID: id, DataCenter: "US-TX-3", Runtime: rt, Memory: memory,
				GPUs: []pods.HostGPUs{{Type: rtx4090, Count: gpus}}, VCPU: map[string]int{"cpu3c": cores},
			}
		}
		return []pods.Host{host("small", 4, 16, 100), host("large", 2, 64, 512)}
	}
}

func TestMinimaOfAGPUChooseTheHost(t *testing.T) {
	for _, row := range []struct {
		ram, vcpu *int
		host      string // empty: none
		vcpus, gb int
	}{
		{nil, nil, "small", 4, 25},
		{new(25), new(4), "small", 4, 25},
		{new(26), nil, "large", 32, 256},
		{nil, new(5), "large", 32, 256},
		{new(257), nil, "", 0, 0},
		{nil, new(33), "", 0, 0},
	} {
		w := newTestEnv(t, twoSizes)
		r := gpuPod()
		r.GPU.MinRAM, r.GPU.MinVCPU = row.ram, row.vcpu
		p, err := w.Create(t.Context(), alice, r)
		if row.host == "" {
			if problem.KindOf(err) != problem.BadRequest || !strings.Contains(err.Error(), "at least") {
				t.Errorf("minima that no host has: %v, want a 400 that names them", err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if vcpus, gb := w.Share(p); p.Placement.Host != row.host || vcpus != row.vcpus || gb != row.gb {
			t.Errorf("the pod is on %s with %d vCPUs and %d GB, want %s, %d, %d", p.Placement.Host, vcpus, gb, row.host, row.vcpus, row.gb)
		}
	}
}

func TestAPodWithoutAHostHasTheShareOfTheSmallest(t *testing.T) {
	w := newTestEnv(t, func(s *envConfig) {
		twoSizes(s)
		s.options.WaitForCapacity = true
	})
	r := gpuPod()
	r.GPU.Count, r.GPU.MinRAM = new(3), new(200)
	p := w.create(r)
	if vcpus, gb := w.Share(p); p.Placement.Host != "" || vcpus != 12 || gb != 75 {
		t.Errorf("the pod on host %q has %d vCPUs and %d GB, want 12 and 75 of no host", p.Placement.Host, vcpus, gb)
	}
	if e, err := w.Why(t.Context(), alice, p.ID); err != nil || !strings.Contains(e.Hosts[0].Text, "gives 4 vCPUs and 25 GB with each GPU") {
		t.Errorf("why = %+v, %v; want what the small host gives", e.Hosts, err)
	}
}

func TestAHostOfUnknownSizeGivesWhatTheCatalogSays(t *testing.T) {
	w := newTestEnv(t, nil)
	r := gpuPod()
	r.GPU.Count = new(2)
	g, _ := catalog.Sample().GPU(rtx4090)
	if vcpus, gb := w.Share(w.create(r)); vcpus != 2*g.Share.VCPU || gb != 2*g.Share.Memory || gb == 0 {
		t.Errorf("the pod has %d vCPUs and %d GB, want twice %+v", vcpus, gb, g.Share)
	}
}
