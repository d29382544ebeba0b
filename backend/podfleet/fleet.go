// Package podfleet makes workers of serverless endpoints out of containers: a
// serverless.Fleet on the hosts of package pods. It is the one place that knows both.
//
// A worker is a container of its host's Runtime under an id of its own, "worker.", the
// endpoint, a full stop, the worker. A pods.Service on the same Runtime leaves such
// containers alone when its Options.Foreign is IsWorker.
//
// # What a worker is given
//
// The first host with room gets it, hosts in the endpoint's data centers before others,
// and among its machines the first that fits. Workers have the whole of a host to
// themselves: what pods take of it is not known here. So a GPU is either listed for pods or for
// workers. What the workers of an earlier process take is not known either; they are
// listed and stopped as any other.
//
// Network volumes are mounted at /runpod-volume, of several only the first.
package podfleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
)

// Options are what a Fleet can be told. The zero value, and nil, work.
type Options struct {
	// Secrets finds registry credentials. Default: none, and none exists.
	Secrets pods.PullSecrets
	// Overcommit is how many vCPUs are promised for each of a host. Default
	// catalog.Overcommit.
	Overcommit float64
}

// A Fleet is a serverless.Fleet. It is safe for concurrent use.
type Fleet struct {
	hosts      []pods.Host
	catalog    catalog.Catalog
	secrets    pods.PullSecrets
	overcommit float64

	mu     sync.Mutex
	places map[string]*place // by pod id
}

var (
	_ serverless.Fleet      = (*Fleet)(nil)
	_ serverless.WorkerLogs = (*Fleet)(nil)
)

// New returns a fleet on hosts, whose GPUs and CPU flavors are of c. o may be nil.
func New(c catalog.Catalog, hosts []pods.Host, o *Options) *Fleet {
	f := &Fleet{hosts: hosts, catalog: c, overcommit: catalog.Overcommit, places: map[string]*place{}}
	if o != nil {
		f.secrets = o.Secrets
		if o.Overcommit > 0 {
			f.overcommit = o.Overcommit
		}
	}
	return f
}

const prefix = "worker."

// volumePath is where images for workers look for a network volume.
const volumePath = "/runpod-volume"

// PodID is the id that a worker has as a container.
func PodID(endpoint string, id serverless.WorkerID) string {
	return prefix + endpoint + "." + string(id)
}

// IsWorker reports whether a container is a worker. It is for pods.Options.Foreign.
func IsWorker(podID string) bool {
	_, _, ok := worker(podID)
	return ok
}

// worker is the inverse of PodID: an endpoint's id has no full stop.
func worker(podID string) (endpoint string, id serverless.WorkerID, ok bool) {
	rest, ok := strings.CutPrefix(podID, prefix)
	endpoint, name, two := strings.Cut(rest, ".")
	return endpoint, serverless.WorkerID(name), ok && two && endpoint != "" && name != ""
}

// Start implements serverless.Fleet.
func (f *Fleet) Start(ctx context.Context, w serverless.WorkerSpec) error {
	podID := PodID(w.Endpoint, w.ID)
	spec := pods.Spec{
		PodID: podID, Owner: w.Owner, Gen: uint64(w.Release), Run: 1,
		Image: w.Container.Image, Disk: w.Container.Disk,
	}
	var err error
	if spec.Args, err = pods.SplitArgs(w.Container.Args); err != nil {
		return fmt.Errorf("podfleet: args of a worker of %q: %w", w.Endpoint, err)
	}
	for _, text := range w.Container.Ports {
		number, protocol, ok := container.ParsePort(text)
		if !ok {
			return fmt.Errorf("podfleet: %q is no port", text)
		}
		spec.Ports = append(spec.Ports, pods.Port{Private: number, Protocol: protocol})
	}
	if spec.Pull, err = f.credential(ctx, w); err != nil {
		return err
	}
	if len(w.NetworkVolumes) > 0 {
		spec.Mounts = []pods.Mount{{VolumeID: w.NetworkVolumes[0], Path: volumePath}}
	}
	p, err := f.take(podID, &w)
	if err != nil {
		return err
	}
	spec.VCPU, spec.Memory = p.vcpu, p.memory
	spec.GPUType, spec.GPUs, spec.Devices = p.gpu, p.gpus, p.devices
	spec.Env = environ(&w, p)
	if err := p.host.Runtime.Ensure(ctx, spec); err != nil {
		// Whether it is there is not known: the place is free when Stop has said so.
		return fmt.Errorf("podfleet: start worker %q of %q: %w", w.ID, w.Endpoint, err)
	}
	return nil
}

func (f *Fleet) credential(ctx context.Context, w serverless.WorkerSpec) (pods.Credential, error) {
	if w.Container.Registry == "" {
		return pods.Credential{}, nil
	}
	if f.secrets == nil {
		return pods.Credential{}, fmt.Errorf("podfleet: no registry credentials here, and endpoint %q names one", w.Endpoint)
	}
	registry, username, password, err := f.secrets.PullSecret(ctx, w.Owner, w.Container.Registry)
	if err != nil {
		return pods.Credential{}, fmt.Errorf("podfleet: registry credential %q: %w", w.Container.Registry, err)
	}
	return pods.Credential{Registry: registry, Username: username, Password: pods.Secret(password)}, nil
}

// environ is what a worker finds in its environment: the user's variables, those of every
// pod, and those of the worker protocol.
func environ(w *serverless.WorkerSpec, p *place) map[string]string {
	env := make(map[string]string, len(w.Container.Env)+len(w.Env)+4)
	maps.Copy(env, w.Container.Env)
	env["RUNPOD_DC_ID"] = p.host.DataCenter
	if p.gpus > 0 {
		env["RUNPOD_GPU_COUNT"] = strconv.Itoa(p.gpus)
	} else {
		env["RUNPOD_CPU_COUNT"] = strconv.Itoa(p.vcpu)
	}
	if len(w.NetworkVolumes) > 0 {
		env["RUNPOD_VOLUME_ID"] = w.NetworkVolumes[0]
	}
	maps.Copy(env, w.Env)
	return env
}

// Stop implements serverless.Fleet. It returns when nothing of the worker is left, or
// with ctx; then it goes on or is to be repeated.
func (f *Fleet) Stop(ctx context.Context, endpoint string, id serverless.WorkerID, grace time.Duration) error {
	podID := PodID(endpoint, id)
	var errs []error
	for _, rt := range f.runtimesOf(podID) {
		errs = append(errs, rt.Remove(ctx, podID, grace))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("podfleet: stop worker %q of %q: %w", id, endpoint, err)
	}
	f.release(podID)
	return nil
}

// runtimesOf is where a worker is, or may be.
func (f *Fleet) runtimesOf(podID string) []pods.Runtime {
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.places[podID]; p != nil {
		return []pods.Runtime{p.host.Runtime}
	}
	return f.runtimes()
}

// runtimes is each Runtime once: hosts may share one.
func (f *Fleet) runtimes() (list []pods.Runtime) {
	seen := map[pods.Runtime]bool{}
	for i := range f.hosts {
		if rt := f.hosts[i].Runtime; !seen[rt] {
			seen[rt] = true
			list = append(list, rt)
		}
	}
	return list
}

// Workers implements serverless.Fleet. An error of one host is an error of the call: what
// it does not list would be taken for gone.
func (f *Fleet) Workers(ctx context.Context) (list []serverless.FleetWorker, err error) {
	for _, rt := range f.runtimes() {
		states, err := rt.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("podfleet: list workers: %w", err)
		}
		for i := range states {
			if w, ok := f.show(&states[i], rt); ok {
				list = append(list, w)
			}
		}
	}
	return list, nil
}

// Watch implements serverless.Fleet.
func (f *Fleet) Watch(ctx context.Context, fn func(serverless.FleetWorker)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watches sync.WaitGroup
	for _, rt := range f.runtimes() {
		watches.Go(func() {
			cancel(rt.Watch(ctx, func(st pods.State) {
				if w, ok := f.show(&st, rt); ok {
					fn(w)
				}
			}))
		})
	}
	watches.Wait()
	return context.Cause(ctx)
}

// show is a container as a worker; ok is false for one that is none.
func (f *Fleet) show(st *pods.State, rt pods.Runtime) (w serverless.FleetWorker, ok bool) {
	endpoint, id, ok := worker(st.PodID)
	if !ok {
		return w, false
	}
	w = serverless.FleetWorker{Endpoint: endpoint, ID: id, Release: int(st.Gen), Started: st.Started}
	switch st.Phase {
	case pods.Coming, pods.Up:
		w.State = serverless.FleetUp
	case pods.Down, pods.Failed:
		w.State, w.Exit, w.Stopped = serverless.FleetEnded, ending(st), st.Stopped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if p := f.places[st.PodID]; p != nil {
		w.Image, w.DataCenter, w.GPUType, w.GPUs = p.image, p.host.DataCenter, p.gpu, p.gpus
		return w, true
	}
	for i := range f.hosts {
		if f.hosts[i].Runtime == rt {
			w.DataCenter = f.hosts[i].DataCenter
			break
		}
	}
	return w, true
}

// ending is how a container ended, for people.
func ending(st *pods.State) string {
	switch {
	case st.OOM:
		return "killed for its memory"
	case st.Reason != "":
		return st.Reason
	}
	return "exit code " + strconv.Itoa(st.ExitCode)
}

// WorkerLogs implements serverless.WorkerLogs, where the host's Runtime keeps output.
func (f *Fleet) WorkerLogs(ctx context.Context, endpoint string, id serverless.WorkerID, q serverless.LogQuery) iter.Seq2[serverless.LogLine, error] {
	return func(yield func(serverless.LogLine, error) bool) {
		podID := PodID(endpoint, id)
		for _, rt := range f.runtimesOf(podID) {
			logs, ok := pods.As[pods.Logs](rt)
			if !ok {
				continue
			}
			for line, err := range logs.Logs(ctx, podID, pods.LogQuery(q)) {
				if !yield(serverless.LogLine(line), err) {
					return
				}
			}
		}
	}
}
