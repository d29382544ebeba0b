package podfleet

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/fleet"
)

// Meter returns a meter that records the usage of workers in b, at the serverless prices of
// c. A worker's GPUs or vCPUs and its disk count for its endpoint. What c does not list
// costs nothing.
func Meter(c catalog.Catalog, b *billing.Service) fleet.Meter { return meter{c, b} }

type meter struct {
	catalog catalog.Catalog
	billing *billing.Service
}

func (m meter) Observe(ctx context.Context, at time.Time, uses []fleet.WorkerUse) error {
	list := make([]pods.Usage, len(uses))
	for i := range uses {
		list[i] = m.priced(&uses[i])
	}
	return m.billing.Observe(ctx, pods.WorkerUsage, at, list)
}

func (m meter) priced(w *fleet.WorkerUse) pods.Usage {
	u := pods.Usage{
		Owner: w.Owner, ID: w.Endpoint, Part: string(w.Worker), From: w.From, To: w.To,
		Disk: m.catalog.Storage.Disk.Hourly(w.Disk),
	}
	if g, ok := m.catalog.GPU(w.GPUType); ok {
		u.GPU = g.Price.Serverless * float64(w.GPUs)
	}
	if f, ok := m.catalog.CPU(w.CPU); ok {
		u.CPU = f.Price.Serverless * float64(w.VCPUs)
	}
	return u
}
