package machine_test

import (
	"runtime"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/machine"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// A host without options has what the machine has.
func TestHostIsThisMachine(t *testing.T) {
	c, h := machine.Host(memory.NewRuntime(nil), nil)
	if h.ID != "local" || h.VCPU[catalog.HostFlavor] != max(runtime.NumCPU(), 2) || h.Memory < 1 || len(h.GPUs) != 0 {
		t.Errorf("host = %+v, want local with %d vCPUs, memory and no GPUs", h, runtime.NumCPU())
	}
	if len(c.GPUs) != 0 || len(c.CPUs) != 1 || len(c.DataCenters) != 1 {
		t.Errorf("catalog = %+v, want one flavor in one data center", c)
	}
	if _, err := pods.New(memory.NewPods(), c, []pods.Host{h}, nil); err != nil {
		t.Errorf("a service does not take the host: %v", err)
	}
}

// Options are what the host has instead, and its catalog offers that.
func TestHostIsWhatOptionsSay(t *testing.T) {
	rt := memory.NewRuntime(nil)
	types := []catalog.GPUType{{ID: "NVIDIA L4", Name: "L4", Pool: "L4", Manufacturer: catalog.NVIDIA, Memory: 24, Secure: true}}
	gpus := []pods.HostGPUs{{Type: "NVIDIA L4", Devices: []string{"GPU-1", "GPU-2"}}}
	c, h := machine.Host(rt, &machine.Options{ID: "rack-7", Cores: 16, Memory: 64, GPUTypes: types, GPUs: gpus, CUDA: "12.8"})
	want := pods.Host{
		ID: "rack-7", DataCenter: catalog.LocalDataCenter, VCPU: map[string]int{catalog.HostFlavor: 16}, Memory: 64,
		GPUs: gpus, CUDA: "12.8",
	}
	h.Runtime = nil
	if diff := cmp.Diff(want, h); diff != "" {
		t.Errorf("host (-want +got):\n%s", diff)
	}
	wantCatalog := catalog.Local(16, 64, types...)
	wantCatalog.DataCenters[0].GlobalNetwork = rt.Capabilities().PrivateNetworks
	if diff := cmp.Diff(wantCatalog, c); diff != "" {
		t.Errorf("catalog (-want +got):\n%s", diff)
	}
}
