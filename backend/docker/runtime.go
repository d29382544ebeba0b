package docker

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/firewall"
	"github.com/podyard/podyard/internal/podhost"
	"github.com/podyard/podyard/pods"
)

// ErrClosed is the error of calls after Close.
var ErrClosed = errors.New("docker: runtime is closed")

// The labels of the containers, volumes and networks of a Runtime.
const (
	labelInstance = "io.podyard.instance"
	labelPod      = "io.podyard.pod"
	labelGen      = "io.podyard.gen"
	labelRun      = "io.podyard.run"
	labelVolume   = "io.podyard.volume"
	labelOwner    = "io.podyard.owner"
	labelAlias    = "io.podyard.alias"
)

// A Runtime runs pods as containers. It is safe for concurrent use.
type Runtime struct {
	opts     Options
	api      *client.Client
	engine   engine
	dir      stateDir
	instance string
	hub      podhost.Hub
	ports    podhost.PortAllocator
	networks *networkTable
	permits  *permits
	images   *pulledImages
	// firewall is nil where rules cannot be set. Only the holder of networkTable.acquire uses it.
	firewall        *firewall.Table
	gateway         netip.Addr    // the address that Gateway returns; invalid: there is none
	missing         []string      // what Missing returns
	isolationBroken atomic.Bool   // see repairIsolation
	gatewayAdded    atomic.Bool   // Gateway added its address
	endsPods        atomic.Bool   // containers end with the engine; see readLiveRestore
	engineRuns      atomic.Uint64 // how often the engine came back after containers could have ended with it
	work            sync.WaitGroup
	// lifetime gives f a context that Close cancels.
	lifetime func(f func(ctx context.Context)) func()
	end      context.CancelFunc
	pods     podhost.Table[*pod]
}

var (
	_ pods.Runtime   = (*Runtime)(nil)
	_ pods.LogReader = (*Runtime)(nil)
	_ pods.Sampler   = (*Runtime)(nil)
)

// Open returns a Runtime that runs pods on an engine. The engine must answer within ctx.
// Open creates dir if needed and keeps its state there. No other Runtime may use dir at the
// same time, in this program or in another. Containers of an earlier server with this dir
// are adopted.
func Open(ctx context.Context, dir string, opts *Options) (*Runtime, error) {
	r := &Runtime{opts: opts.withDefaults(), dir: stateDir(dir), networks: newNetworkTable()}
	r.permits = newPermits(r.opts.ImageRecheck)
	var err error
	if r.instance, err = r.dir.instance(); err != nil {
		return nil, fmt.Errorf("docker: open %q: %w", dir, err)
	}
	r.images = openPulledImages(r.dir, func(err error) {
		r.opts.Logger.Error("docker: the list of images that were pulled cannot be kept", "err", err)
	})
	if r.api, err = connect(r.opts.Engine); err != nil {
		return nil, fmt.Errorf("docker: open: %w", err)
	}
	if err := r.inspectEngine(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.api.Close())
	}
	if err := r.chooseSubnet(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.api.Close())
	}
	if err := r.openIsolation(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.api.Close())
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	r.end = end
	r.lifetime = func(f func(ctx context.Context)) func() { return func() { f(life) } }
	if err := r.readPods(); err != nil {
		end()
		return nil, errors.Join(fmt.Errorf("docker: open %q: %w", dir, err), r.api.Close())
	}
	if err := r.resync(ctx, true); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.Close(ctx))
	}
	if err := r.sweepBridges(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.Close(ctx))
	}
	if err := r.holdRules(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("docker: open: %w", err), r.Close(ctx))
	}
	r.spawn(r.watchEvents)
	r.spawn(r.watchImages)
	if !r.engine.diskLimit {
		r.spawn(r.watchDisks)
	}
	if r.firewall != nil {
		r.spawn(r.watchRules)
	}
	return r, nil
}

// readPods restores the pods of an earlier server. If a record cannot be read, resync
// restores the pod from its container.
func (r *Runtime) readPods() error {
	ids, err := r.dir.ids()
	if err != nil {
		return err
	}
	for _, id := range ids {
		rec, err := r.dir.read(id)
		if err != nil {
			r.opts.Logger.Warn("docker: the record of a pod cannot be read", "pod", id, "err", err)
			continue
		}
		p := r.pods.Made(id, r.newPod)
		p.rec, p.state, p.unverified = rec, rec.State, true
		for _, port := range rec.Ports {
			r.ports.Reserve(port.UDP, port.Public)
		}
		r.networks.restore(rec.Network, id)
	}
	return nil
}

// Capabilities implements pods.Runtime.
func (r *Runtime) Capabilities() pods.Capabilities {
	return pods.Capabilities{
		Pull: true, DiskLimit: r.engine.diskLimit, PrivateNetworks: r.engine.networks,
		GPUs: r.engine.hasGPUs,
	}
}

// Ensure implements pods.Runtime.
func (r *Runtime) Ensure(_ context.Context, s pods.Spec) error {
	if !plainName(s.PodID) {
		return fmt.Errorf("docker: ensure %q: pod id is not a plain name", s.PodID)
	}
	if err := r.pods.Ensure(s.PodID, r.newPod, func(p *pod) error { return p.ensure(s) }); err != nil {
		return fmt.Errorf("docker: ensure %q: %w", s.PodID, err)
	}
	return nil
}

// Stop implements pods.Runtime.
func (r *Runtime) Stop(_ context.Context, podID string, grace time.Duration) error {
	_, err := r.pods.Call(podID, func(p *pod) {
		p.cancelStart()
		p.shortenGrace(grace)
		p.do(func(ctx context.Context) { p.stop(ctx, grace) })
	})
	if err != nil {
		return fmt.Errorf("docker: stop %q: %w", podID, err)
	}
	return nil
}

// Remove implements pods.Runtime. If ctx ends first, it returns ctx's error, and the
// removal continues.
func (r *Runtime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	done := make(chan error, 1)
	found, err := r.pods.Call(podID, func(p *pod) {
		p.cancelStart()
		p.shortenGrace(grace)
		p.queueRemoval(func(ctx context.Context) { done <- p.remove(ctx, grace) })
	})
	if found {
		select {
		case err = <-done:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	if err != nil {
		return fmt.Errorf("docker: remove %q: %w", podID, err)
	}
	return nil
}

// spawn runs f in a goroutine. Close cancels its context and waits for it.
func (r *Runtime) spawn(f func(ctx context.Context)) { r.work.Go(r.lifetime(f)) }

// List implements pods.Runtime. It asks the engine, and returns an error if the engine does
// not answer.
func (r *Runtime) List(ctx context.Context) ([]pods.ContainerState, error) {
	if err := r.pods.Closed(); err != nil {
		return nil, fmt.Errorf("docker: list: %w", err)
	}
	if err := r.resync(ctx, false); err != nil {
		return nil, fmt.Errorf("docker: list: %w", err)
	}
	var states []pods.ContainerState
	for _, p := range r.pods.All() {
		if s, ok := p.currentState(); ok {
			states = append(states, s)
		}
	}
	return states, nil
}

// Watch implements pods.Runtime. It returns ErrClosed after Close, an error while the
// engine does not answer, and an error if f is so slow that thousands of changes wait.
func (r *Runtime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	return fmt.Errorf("docker: watch: %w", r.hub.Watch(ctx, f))
}

// Close leaves the containers as they are: the next Open adopts them, and continues the
// work that is accepted but not done. Close waits for all goroutines. A second Close does
// nothing.
func (r *Runtime) Close(ctx context.Context) error {
	if !r.pods.Close(ErrClosed) {
		return nil
	}
	r.end()
	r.work.Wait()
	r.releaseGateway(ctx)
	for _, p := range r.pods.All() {
		p.closeWaiters()
	}
	r.hub.Close(ErrClosed)
	if err := r.api.Close(); err != nil {
		return fmt.Errorf("docker: close: %w", err)
	}
	return nil
}
