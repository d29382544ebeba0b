package config

import (
	"context"
	"errors"
	"os"

	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// gpus are those of this host. The zero value is none.
type gpus struct {
	driver  *nvidia.Driver
	types   []catalog.GPUType
	devices []pods.HostGPUs
}

// findGPUs looks for them, unless the catalog is made up. A server without GPUs is a
// server all the same: what stands in the way of them is for the log.
func (p *Parts) findGPUs() {
	if p.config.Catalog != "host" {
		return
	}
	d, err := nvidia.Open(nil)
	if _, loaded := os.Stat("/proc/driver/nvidia"); errors.Is(err, nvidia.ErrMissing) && loaded != nil {
		return
	}
	if err != nil {
		p.log.Warn("the GPUs of this host are not offered", "err", err)
		return
	}
	p.last = append(p.last, d.Close)
	list, err := d.Devices()
	if err != nil {
		p.log.Warn("some GPUs of this host are not offered", "err", err)
	}
	p.gpus.types, p.gpus.devices = nvidia.Inventory(list)
	if len(p.gpus.types) == 0 {
		return
	}
	p.gpus.driver = d
	for _, g := range p.gpus.devices {
		p.log.Info("GPUs of this host", "type", g.Type, "count", len(g.Devices), "driver", d.Version().Driver, "cuda", d.Version().CUDA)
	}
}

// offered are the GPUs that rt can hand to containers: all, or none.
func (p *Parts) offered(rt pods.Runtime) gpus {
	if len(p.gpus.types) > 0 && !rt.Capabilities().GPUs {
		p.log.Warn("the GPUs of this host are not offered: what runs pods hands out none")
		return gpus{}
	}
	return p.gpus
}

// cuda is empty where there are none.
func (g *gpus) cuda() string {
	if g.driver == nil {
		return ""
	}
	return g.driver.Version().CUDA
}

// check is what asks whether devices are there; nil where none are given out.
func (g *gpus) check() func([]string) error {
	if g.driver == nil {
		return nil
	}
	return g.driver.Check
}

// measured is rt with what the GPUs of its pods do.
func (p *Parts) measured(rt pods.Runtime) pods.Runtime {
	if p.gpus.driver == nil {
		return rt
	}
	return nvidia.WithMetrics(rt, p.gpus.driver, &nvidia.MetricsOptions{Devices: p.devicesOf, Logger: p.log})
}

// devicesOf is what a pod, or a worker, that an earlier server started holds.
func (p *Parts) devicesOf(ctx context.Context, podID string) ([]string, error) {
	if podfleet.IsWorker(podID) {
		for h, err := range p.Options.Stores.Pods.Reservations(ctx) {
			if err != nil || h.Holder == podID {
				return h.Placement.Devices, err
			}
		}
		return nil, nil
	}
	pod, err := p.Options.Stores.Pods.Get(ctx, podID)
	if err != nil {
		return nil, err
	}
	return pod.Placement.Devices, nil
}
