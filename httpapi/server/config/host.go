package config

import (
	"context"

	"github.com/podyard/podyard/backend/machine"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
)

// openStorage opens the runtime and the stores. A store that is there comes first: with a key
// that is not its own nothing else is made. The key of a new one is made under the lock of
// the runtime, which is that of the data directory, so that two servers do not make two.
func (p *Parts) openStorage(ctx context.Context) (pods.Runtime, error) {
	if p.own.Database != "" || hasStore(p.own) {
		if err := p.openStores(ctx); err != nil {
			return nil, err
		}
		return p.openRuntime(ctx)
	}
	rt, err := p.openRuntime(ctx)
	if err != nil {
		return nil, err
	}
	return rt, p.openStores(ctx)
}

// hosts are this machine, or the made-up stock of the sample catalog. Where servers share a
// database, the host of each has the name of its server.
func (p *Parts) hosts(rt pods.Runtime) (catalog.Catalog, []pods.Host) {
	if p.config.Catalog == "sample" {
		cat := catalog.Sample()
		return cat, pods.SimulatedHosts(cat, rt)
	}
	gpus := p.offered(rt)
	cat, host := machine.Host(rt, &machine.Options{ID: p.Name, GPUTypes: gpus.types, GPUs: gpus.devices, CUDA: gpus.cuda()})
	for _, id := range p.config.Prices.apply(&cat) {
		p.log.Warn("there is a price for a GPU type that this host does not offer", "type", id)
	}
	return cat, []pods.Host{host}
}
