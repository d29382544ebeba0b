package nvidia_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

func TestOfferIsTypesByNameAndDevicesByType(t *testing.T) {
	const mib = 1 << 20
	types, host := nvidia.Inventory([]nvidia.Device{
		{UUID: "GPU-a", Name: "NVIDIA GeForce RTX 4090", Memory: 24564 * mib},
		{UUID: "GPU-b", Name: "NVIDIA H200", Memory: 143771 * mib},
		{UUID: "GPU-c", Name: "NVIDIA GeForce RTX 4090", Memory: 24564 * mib},
		{UUID: "GPU-d", Name: "NVIDIA H200", Memory: 143771 * mib, MIG: true},
		{UUID: "GPU-e", Name: "NVIDIA A100-SXM4-80GB", Memory: 81920 * mib, MIG: true},
		{UUID: "MIG-a", Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Memory: 9728 * mib, Parent: "GPU-e"},
		{UUID: "MIG-b", Name: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Memory: 9728 * mib, Parent: "GPU-e"},
		{UUID: "MIG-c", Name: "NVIDIA A100-SXM4-80GB MIG 2g.20gb", Memory: 19968 * mib, Parent: "GPU-e"},
	})
	wantTypes := []catalog.GPUType{
		{
			ID: "NVIDIA GeForce RTX 4090", Name: "RTX 4090", Pool: "ADA_24", Manufacturer: catalog.NVIDIA, Memory: 24,
			Secure: true, Community: true, MaxCount: catalog.MaxCount{Secure: 2, Community: 2},
		},
		{
			ID: "NVIDIA H200", Name: "H200", Pool: "HOPPER_141", Manufacturer: catalog.NVIDIA, Memory: 140,
			Secure: true, Community: true, MaxCount: catalog.MaxCount{Secure: 1, Community: 1},
		},
		{ // a CUDA program uses one part, however many there are
			ID: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Name: "A100-SXM4-80GB MIG 1g.10gb", Pool: catalog.LocalPool, Manufacturer: catalog.NVIDIA, Memory: 10,
			Secure: true, Community: true, MaxCount: catalog.MaxCount{Secure: 1, Community: 1},
		},
		{
			ID: "NVIDIA A100-SXM4-80GB MIG 2g.20gb", Name: "A100-SXM4-80GB MIG 2g.20gb", Pool: catalog.LocalPool, Manufacturer: catalog.NVIDIA, Memory: 20,
			Secure: true, Community: true, MaxCount: catalog.MaxCount{Secure: 1, Community: 1},
		},
	}
	if diff := cmp.Diff(wantTypes, types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	wantHost := []pods.HostGPUs{
		{Type: "NVIDIA GeForce RTX 4090", Devices: []string{"GPU-a", "GPU-c"}},
		{Type: "NVIDIA H200", Devices: []string{"GPU-b"}},
		{Type: "NVIDIA A100-SXM4-80GB MIG 1g.10gb", Devices: []string{"MIG-a", "MIG-b"}},
		{Type: "NVIDIA A100-SXM4-80GB MIG 2g.20gb", Devices: []string{"MIG-c"}},
	}
	if diff := cmp.Diff(wantHost, host); diff != "" {
		t.Errorf("host (-want +got):\n%s", diff)
	}
	if types, host := nvidia.Inventory(nil); types != nil || host != nil {
		t.Errorf("Offer of nothing = %v, %v, want nothing", types, host)
	}
}
