package config

import (
	"cmp"
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/pods/catalog"
)

// Prices are what this machine costs, in USD. What is absent costs nothing.
type Prices struct {
	// GPUs have the price of one GPU of a type an hour, VCPU that of one vCPU.
	GPUs map[string]Price `json:"gpus"`
	VCPU Price            `json:"vcpu"`
	// Disk, StoppedDisk and Volume are for one GB a month: disks of pods that run, persistent mounts of
	// pods that are stopped, network volumes.
	Disk        float64 `json:"disk"`
	StoppedDisk float64 `json:"stoppedDisk"`
	Volume      float64 `json:"volume"`
}

// A Price is USD an hour.
type Price struct {
	Pod    float64 `json:"pod"`
	Worker float64 `json:"worker"` // of an endpoint; 0 is that of Pod
}

// worker is what a worker pays.
func (p Price) worker() float64 {
	if p.Worker == 0 {
		return p.Pod
	}
	return p.Worker
}

func (c *Config) checkPrices() error {
	p := &c.Prices
	if c.Catalog != "host" && (len(p.GPUs) > 0 || p.VCPU != Price{} || p.Disk != 0 || p.StoppedDisk != 0 || p.Volume != 0) {
		return errorAt("/prices", "are those of this machine: the catalog must be host")
	}
	if err := cmp.Or(
		checkUSD("/prices/vcpu/pod", p.VCPU.Pod), checkUSD("/prices/vcpu/worker", p.VCPU.Worker),
		checkUSD("/prices/disk", p.Disk), checkUSD("/prices/stoppedDisk", p.StoppedDisk), checkUSD("/prices/volume", p.Volume),
	); err != nil {
		return err
	}
	for _, id := range slices.Sorted(maps.Keys(p.GPUs)) {
		at := jsontext.Pointer("/prices/gpus").AppendToken(id)
		if err := cmp.Or(checkUSD(at.AppendToken("pod"), p.GPUs[id].Pod), checkUSD(at.AppendToken("worker"), p.GPUs[id].Worker)); err != nil {
			return err
		}
	}
	return nil
}

func checkUSD(at jsontext.Pointer, usd float64) error {
	if usd < 0 || usd > maxUSD {
		return errorAt(at, "must be USD from 0 to %d", int64(maxUSD))
	}
	return nil
}

// apply adds the prices to the catalog of this machine, and returns the types that it does not have.
func (p *Prices) apply(c *catalog.Catalog) (unknown []string) {
	for i := range c.GPUs {
		g := &c.GPUs[i]
		if x, ok := p.GPUs[g.ID]; ok {
			g.Price = catalog.GPUPrice{Secure: x.Pod, Community: x.Pod, Serverless: x.worker()}
		}
	}
	for i := range c.CPUs {
		c.CPUs[i].Price = catalog.CPUPrice{Secure: p.VCPU.Pod, Serverless: p.VCPU.worker()}
	}
	c.Storage = catalog.StoragePrices{
		Disk: catalog.StoragePrice(p.Disk), Stopped: catalog.StoragePrice(p.StoppedDisk), Standard: catalog.StoragePrice(p.Volume),
	}
	for _, id := range slices.Sorted(maps.Keys(p.GPUs)) {
		if _, ok := c.GPU(id); !ok {
			unknown = append(unknown, id)
		}
	}
	return unknown
}
