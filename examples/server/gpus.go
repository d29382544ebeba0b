package main

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
func (v *server) findGPUs() {
	if v.settings.Catalog != "host" {
		return
	}
	d, err := nvidia.Open(nil)
	if _, loaded := os.Stat("/proc/driver/nvidia"); errors.Is(err, nvidia.ErrMissing) && loaded != nil {
		return
	}
	if err != nil {
		v.log.Warn("the GPUs of this host are not offered", "err", err)
		return
	}
	v.closers = append(v.closers, func(context.Context) error { return d.Close() })
	list, err := d.Devices()
	if err != nil {
		v.log.Warn("some GPUs of this host are not offered", "err", err)
	}
	v.gpus.types, v.gpus.devices = nvidia.Offer(list)
	if len(v.gpus.types) == 0 {
		return
	}
	v.gpus.driver = d
	for _, g := range v.gpus.devices {
		v.log.Info("GPUs of this host", "type", g.Type, "count", len(g.Devices), "driver", d.Version().Driver, "cuda", d.Version().CUDA)
	}
}

// offered are the GPUs that rt can hand to containers: all, or none.
func (v *server) offered(rt pods.Runtime) gpus {
	if len(v.gpus.types) > 0 && !rt.Capabilities().GPUs {
		v.log.Warn("the GPUs of this host are not offered: what runs pods hands out none")
		return gpus{}
	}
	return v.gpus
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
func (v *server) measured(rt pods.Runtime) pods.Runtime {
	if v.gpus.driver == nil {
		return rt
	}
	return nvidia.Measure(rt, v.gpus.driver, &nvidia.MeasureOptions{Devices: v.devicesOf, Logger: v.log})
}

// devicesOf is what a pod, or a worker, that an earlier server started holds.
func (v *server) devicesOf(ctx context.Context, podID string) ([]string, error) {
	if podfleet.IsWorker(podID) {
		for h, err := range v.stores.pods.Holds(ctx) {
			if err != nil || h.Holder == podID {
				return h.Placement.Devices, err
			}
		}
		return nil, nil
	}
	p, err := v.stores.pods.Get(ctx, podID)
	if err != nil {
		return nil, err
	}
	return p.Placement.Devices, nil
}
