package catalog_test

import (
	"regexp"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods/catalog"
)

func TestTheSampleFitsTogether(t *testing.T) {
	c := catalog.Sample()
	if len(c.GPUs) < 20 || len(c.CPUs) != 6 || len(c.DataCenters) < 12 {
		t.Errorf("%d GPU types, %d flavors, %d data centers; want 20, 6 and 12 at least", len(c.GPUs), len(c.CPUs), len(c.DataCenters))
	}
	ids := make(map[string]bool)
	once := func(id string) {
		if id == "" || ids[id] {
			t.Errorf("id %q is empty or there twice", id)
		}
		ids[id] = true
	}
	makers := make(map[catalog.Manufacturer]bool)
	for _, g := range c.GPUs {
		once(g.ID)
		makers[g.Manufacturer] = true
		if g.Secure != (g.MaxCount.Secure > 0) || g.Secure != (g.Price.Secure > 0) ||
			g.Community != (g.MaxCount.Community > 0) || g.Community != (g.Price.Community > 0) ||
			(g.Pool != "") != (g.Price.Serverless > 0) || g.Memory < 1 {
			t.Errorf("%s does not agree with itself: %+v", g.ID, g)
		}
	}
	if !makers[catalog.NVIDIA] || !makers[catalog.AMD] {
		t.Errorf("manufacturers = %v, want NVIDIA and AMD", makers)
	}
	for _, f := range c.CPUs {
		once(f.ID)
	}
	form, networks, stock := regexp.MustCompile(`^[A-Z]{2,3}-[A-Z]{2,3}-\d$`), 0, make(map[string]int)
	for _, d := range c.DataCenters {
		once(d.ID)
		if !form.MatchString(d.ID) {
			t.Errorf("data center %q has an id of another form", d.ID)
		}
		if d.GlobalNetwork {
			networks++
		}
		for _, s := range d.Stock {
			g, isGPU := c.GPU(s.ID)
			if _, isCPU := c.CPU(s.ID); !isGPU && !isCPU {
				t.Errorf("%s has stock of %q, which is not in the catalog", d.ID, s.ID)
			}
			if isGPU && (s.Secure > 0 && !g.Secure || s.Community > 0 && !g.Community) {
				t.Errorf("%s has %s in a tier that does not offer it", d.ID, s.ID)
			}
			stock[s.ID] += s.Secure + s.Community
		}
	}
	if networks == 0 || networks == len(c.DataCenters) {
		t.Errorf("%d of %d data centers have a global network, want some", networks, len(c.DataCenters))
	}
	for _, g := range c.GPUs {
		if stock[g.ID] == 0 {
			t.Errorf("no data center has %s", g.ID)
		}
	}
}

func TestLookUpsAreByTheWholeID(t *testing.T) {
	c := catalog.Sample()
	g, ok := c.GPU("NVIDIA GeForce RTX 4090")
	if !ok || g.Name != "RTX 4090" {
		t.Errorf("GPU = %+v, %t", g, ok)
	}
	if _, ok := c.GPU("RTX 4090"); ok {
		t.Error("a name found a GPU type")
	}
	if _, ok := c.CPU("cpu"); ok {
		t.Error("half an id found a flavor")
	}
	if d, ok := c.DataCenter("US-TX-3"); !ok || d.Region != catalog.NorthAmerica {
		t.Errorf("DataCenter = %+v, %t", d, ok)
	}
}

func TestGPUsOfAHostAreInTheirPublicPoolOrInOneOfTheirOwn(t *testing.T) {
	for id, want := range map[string]string{
		"NVIDIA GeForce RTX 4090": "ADA_24", "NVIDIA H200": "HOPPER_141",
		"NVIDIA RTX 2000 Ada Generation": catalog.LocalPool, "NVIDIA GeForce GTX 1080": catalog.LocalPool,
	} {
		if got := catalog.HostPool(id); got != want {
			t.Errorf("HostPool(%q) = %q, want %q", id, got, want)
		}
	}
}

func TestTheLocalFlavorOffersPowersOfTwoUpToTheCores(t *testing.T) {
	for vcpus, want := range map[int]int{0: 2, 1: 2, 2: 2, 3: 2, 4: 4, 7: 4, 8: 8, 48: 32, 64: 64} {
		c := catalog.Local(vcpus, 64)
		f, ok := c.CPU(catalog.HostFlavor)
		if diff := cmp.Diff(catalog.Range{Min: 2, Max: want}, f.VCPU); diff != "" || !ok {
			t.Errorf("%d cores (-want +got):\n%s", vcpus, diff)
		}
	}
}

func TestTheLocalFlavorsMemoryFillsTheHostWhenItsCPUIsOvercommitted(t *testing.T) {
	f := catalog.Local(8, 64).CPUs[0]
	if got := f.Memory(8) * catalog.Overcommit; got != 64 {
		t.Errorf("all pods together have %d GB of 64", got)
	}
	if got := catalog.Local(8, 4).CPUs[0].Memory(2); got != 1 {
		t.Errorf("a pod on a small host has %d GB, want 1 at least", got)
	}
}
