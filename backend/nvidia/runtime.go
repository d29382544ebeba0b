package nvidia

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
)

// MetricsOptions configures WithMetrics.
type MetricsOptions struct {
	// Devices returns the devices of a pod whose container was created before this process
	// started. List, Watch and Sample call it, so it must be fast. It returns an error
	// while it does not know. Default: the devices are not known until the pod is started
	// again.
	Devices func(ctx context.Context, podID string) ([]string, error)
	// Logger gets a message about a GPU that cannot be read. Default: nothing is logged.
	Logger *slog.Logger
}

// metricsRuntime is what WithMetrics returns.
type metricsRuntime struct {
	pods.Runtime

	driver        *Driver
	lookUpDevices func(ctx context.Context, podID string) ([]string, error)
	log           *slog.Logger

	mu      sync.Mutex
	devices map[string][]string // by pod; a pod without an entry is not known
	failing map[string]bool     // devices whose last measurement failed
}

// notifierRuntime is a metricsRuntime on a runtime that implements pods.Notifier.
type notifierRuntime struct {
	*metricsRuntime

	inner pods.Notifier
}

var (
	_ pods.Runtime  = (*metricsRuntime)(nil)
	_ pods.Sampler  = (*metricsRuntime)(nil)
	_ pods.Notifier = (*notifierRuntime)(nil)
)

// WithMetrics adds GPU data to rt, the Runtime of this machine. The Sample of a pod has the
// load of each device of its Spec, in that order. The State of a pod with devices has the
// driver's CUDA version. rt does everything else, and pods.As finds its optional
// interfaces. The caller still owns the driver; after its Close, loads are 0. o may be nil.
func WithMetrics(rt pods.Runtime, d *Driver, o *MetricsOptions) pods.Runtime {
	var opts MetricsOptions
	if o != nil {
		opts = *o
	}
	r := &metricsRuntime{
		Runtime: rt, driver: d, lookUpDevices: opts.Devices, log: opts.Logger,
		devices: make(map[string][]string), failing: make(map[string]bool),
	}
	if r.log == nil {
		r.log = slog.New(slog.DiscardHandler)
	}
	if n, ok := pods.As[pods.Notifier](rt); ok {
		return &notifierRuntime{r, n}
	}
	return r
}

// Unwrap returns the wrapped runtime.
func (r *metricsRuntime) Unwrap() pods.Runtime { return r.Runtime }

// CUDAVersion returns the driver's CUDA version, for pods that require one.
func (r *metricsRuntime) CUDAVersion() string { return r.driver.Version().CUDA }

// Ensure implements pods.Runtime.
func (r *metricsRuntime) Ensure(ctx context.Context, s pods.Spec) error {
	r.mu.Lock()
	r.devices[s.PodID] = s.Devices
	r.mu.Unlock()
	return r.Runtime.Ensure(ctx, s)
}

// Remove implements pods.Runtime.
func (r *metricsRuntime) Remove(ctx context.Context, podID string, grace time.Duration) error {
	err := r.Runtime.Remove(ctx, podID, grace)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.devices, podID)
	}
	return err
}

// List implements pods.Runtime.
func (r *metricsRuntime) List(ctx context.Context) ([]pods.ContainerState, error) {
	list, err := r.Runtime.List(ctx)
	for i := range list {
		r.setCUDAIfRunning(ctx, &list[i])
	}
	return list, err
}

// Watch implements pods.Runtime.
func (r *metricsRuntime) Watch(ctx context.Context, f func(pods.ContainerState)) error {
	return r.Runtime.Watch(ctx, func(st pods.ContainerState) {
		r.setCUDAIfRunning(ctx, &st)
		f(st)
	})
}

// Notify implements pods.Notifier. A runtime that reports changes at once has no containers
// from before this process.
func (n *notifierRuntime) Notify(f func(pods.ContainerState)) (stop func()) {
	return n.inner.Notify(func(st pods.ContainerState) {
		if list, known := n.cachedDevices(st.PodID); known {
			n.setCUDA(&st, list)
		}
		f(st)
	})
}

func (r *metricsRuntime) setCUDAIfRunning(ctx context.Context, st *pods.ContainerState) {
	if st.Phase == pods.PhaseStarting || st.Phase == pods.PhaseHealthy {
		r.setCUDA(st, r.podDevices(ctx, st.PodID))
	}
}

// setCUDA sets the CUDA version of a container that has devices.
func (r *metricsRuntime) setCUDA(st *pods.ContainerState, devices []string) {
	if len(devices) > 0 {
		st.CUDA = r.CUDAVersion()
	}
}

func (r *metricsRuntime) cachedDevices(podID string) (list []string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, known = r.devices[podID]
	return list, known
}

// podDevices returns the devices of a pod, as far as they are known.
func (r *metricsRuntime) podDevices(ctx context.Context, podID string) []string {
	list, known := r.cachedDevices(podID)
	if known || r.lookUpDevices == nil {
		return list
	}
	list, err := r.lookUpDevices(ctx, podID)
	if err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if newer, known := r.devices[podID]; known {
		return newer // from an Ensure meanwhile
	}
	r.devices[podID] = list
	return list
}

// Sample implements pods.Sampler. It adds the GPUs to the sample of the wrapped runtime. If
// that runtime is no Sampler, the sample has only the GPUs.
func (r *metricsRuntime) Sample(ctx context.Context, podID string) (s pods.Sample, ok bool) {
	within, measures := pods.As[pods.Sampler](r.Runtime)
	if measures {
		if s, ok = within.Sample(ctx, podID); !ok {
			return s, false
		}
	}
	devices := r.podDevices(ctx, podID)
	if len(devices) == 0 {
		return s, measures
	}
	s.GPUs = make([]pods.GPUSample, len(devices))
	for i, id := range devices {
		s.GPUs[i] = r.load(ctx, id)
	}
	return s, true
}

// load returns 0 for a GPU that cannot be read. It logs the first of successive failures.
func (r *metricsRuntime) load(ctx context.Context, uuid string) pods.GPUSample {
	s, err := r.driver.Load(uuid)
	r.mu.Lock()
	was := r.failing[uuid]
	r.failing[uuid] = err != nil
	r.mu.Unlock()
	if err != nil && !was && !errors.Is(err, ErrClosed) {
		r.log.WarnContext(ctx, "nvidia: a GPU cannot be read", "gpu", uuid, "err", err)
	}
	return s
}
