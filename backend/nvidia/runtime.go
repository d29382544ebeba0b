package nvidia

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/podyard/podyard/pods"
)

// MeasureOptions are what Measure can do without.
type MeasureOptions struct {
	// Devices are the devices of a pod whose container is older than this process, so that
	// it was not made here. It is called from List, Watch and Sample, has to be quick, and
	// returns an error while it cannot tell. Default: they are not known until the pod is
	// started again.
	Devices func(ctx context.Context, podID string) ([]string, error)
	// Logger hears of a GPU that cannot be read. Default: slog.Default.
	Logger *slog.Logger
}

// measured is what Measure returns.
type measured struct {
	pods.Runtime

	driver *Driver
	ask    func(ctx context.Context, podID string) ([]string, error)
	log    *slog.Logger

	mu      sync.Mutex
	devices map[string][]string // by pod; without an entry they are not known
	dark    map[string]bool     // devices whose last measurement failed
}

// notifying is measured on a runtime with the power pods.Notifier.
type notifying struct {
	*measured

	within pods.Notifier
}

var (
	_ pods.Runtime  = (*measured)(nil)
	_ pods.Sampler  = (*measured)(nil)
	_ pods.Notifier = (*notifying)(nil)
)

// Measure adds to rt, the Runtime of this machine, what its GPUs do: the Sample of a pod
// has the load of each device of its Spec, in that order, and the State of one with
// devices the driver's CUDA version. All else is done by rt, whose powers pods.As finds.
// The driver stays the caller's; once it is closed, loads are 0. o may be nil.
func Measure(rt pods.Runtime, d *Driver, o *MeasureOptions) pods.Runtime {
	var opts MeasureOptions
	if o != nil {
		opts = *o
	}
	r := &measured{
		Runtime: rt, driver: d, ask: opts.Devices, log: opts.Logger,
		devices: make(map[string][]string), dark: make(map[string]bool),
	}
	if r.log == nil {
		r.log = slog.Default()
	}
	if n, ok := pods.As[pods.Notifier](rt); ok {
		return &notifying{r, n}
	}
	return r
}

// Unwrap is the runtime that was wrapped.
func (r *measured) Unwrap() pods.Runtime { return r.Runtime }

// CUDAVersion is the driver's: what a pod that is particular about it may ask for.
func (r *measured) CUDAVersion() string { return r.driver.Version().CUDA }

// Ensure implements pods.Runtime.
func (r *measured) Ensure(ctx context.Context, s pods.Spec) error {
	r.mu.Lock()
	r.devices[s.PodID] = s.Devices
	r.mu.Unlock()
	return r.Runtime.Ensure(ctx, s)
}

// Remove implements pods.Runtime.
func (r *measured) Remove(ctx context.Context, podID string, grace time.Duration) error {
	err := r.Runtime.Remove(ctx, podID, grace)
	if err == nil {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.devices, podID)
	}
	return err
}

// List implements pods.Runtime.
func (r *measured) List(ctx context.Context) ([]pods.State, error) {
	list, err := r.Runtime.List(ctx)
	for i := range list {
		r.stamp(ctx, &list[i])
	}
	return list, err
}

// Watch implements pods.Runtime.
func (r *measured) Watch(ctx context.Context, f func(pods.State)) error {
	return r.Runtime.Watch(ctx, func(st pods.State) {
		r.stamp(ctx, &st)
		f(st)
	})
}

// Notify implements pods.Notifier. A runtime that calls back at the instant of a change
// has no containers that are older than this process.
func (n *notifying) Notify(f func(pods.State)) (stop func()) {
	return n.within.Notify(func(st pods.State) {
		if list, known := n.known(st.PodID); known {
			n.mark(&st, list)
		}
		f(st)
	})
}

func (r *measured) stamp(ctx context.Context, st *pods.State) {
	if st.Phase == pods.Coming || st.Phase == pods.Up {
		r.mark(st, r.of(ctx, st.PodID))
	}
}

// mark sets the CUDA version of a container that has devices.
func (r *measured) mark(st *pods.State, devices []string) {
	if len(devices) > 0 {
		st.CUDA = r.CUDAVersion()
	}
}

func (r *measured) known(podID string) (list []string, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	list, known = r.devices[podID]
	return list, known
}

// of are the devices of a pod, as far as they are known.
func (r *measured) of(ctx context.Context, podID string) []string {
	list, known := r.known(podID)
	if known || r.ask == nil {
		return list
	}
	list, err := r.ask(ctx, podID)
	if err != nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if newer, known := r.devices[podID]; known {
		return newer // an Ensure meanwhile
	}
	r.devices[podID] = list
	return list
}

// Sample implements pods.Sampler. What the runtime within measures stays as it is but for
// the GPUs; without a runtime that measures, there are the GPUs alone.
func (r *measured) Sample(ctx context.Context, podID string) (s pods.Sample, ok bool) {
	within, measures := pods.As[pods.Sampler](r.Runtime)
	if measures {
		if s, ok = within.Sample(ctx, podID); !ok {
			return s, false
		}
	}
	devices := r.of(ctx, podID)
	if len(devices) == 0 {
		return s, measures
	}
	s.GPUs = make([]pods.GPUSample, len(devices))
	for i, id := range devices {
		s.GPUs[i] = r.load(ctx, id)
	}
	return s, true
}

// load is 0 of a GPU that cannot be read, of which the log hears once.
func (r *measured) load(ctx context.Context, uuid string) pods.GPUSample {
	s, err := r.driver.Load(uuid)
	r.mu.Lock()
	was := r.dark[uuid]
	r.dark[uuid] = err != nil
	r.mu.Unlock()
	if err != nil && !was && !errors.Is(err, ErrClosed) {
		r.log.WarnContext(ctx, "nvidia: a GPU cannot be read", "gpu", uuid, "err", err)
	}
	return s
}
