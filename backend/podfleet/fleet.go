// Package podfleet starts workers of serverless endpoints as containers: it is a
// serverless.Fleet on the hosts of package pods, and the only place that knows both
// domains.
//
// A worker is a container of its host's Runtime. Its id is "worker.", the endpoint, a
// full stop, and the worker's id. A pods.Service on the same Runtime leaves such
// containers alone when its Options.Foreign is [IsWorker].
//
// # Where a worker goes
//
// A worker goes to the first host with room. Hosts in the endpoint's data centers come
// before others, and of the endpoint's machines and GPU types the first that fits is
// taken. A pods.Placer places workers, as it places pods, and what they take is in the
// store of pods, as reservations. So a GPU belongs to a pod or to a worker and never to
// both. The same holds for everything that they share on a host: named GPUs, counts,
// memory, vCPUs.
//
// A reservation exists as long as its container may: it is written before the runtime
// is asked for the container, and released when the runtime has said that nothing is
// left. A fleet takes over the reservations of an earlier process. A reservation whose
// container is gone is released with the first list. A container without a reservation
// (its creation outlived its server) has no right to what it uses: it is listed as
// ended, and the scaler removes it.
//
// A worker mounts the network volume of its endpoint that is in its host's data center,
// at /runpod-volume. An endpoint with volumes gets workers only in data centers where
// it has one.
package podfleet

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// Options are what a Fleet can be told. The zero value, and nil, work.
type Options struct {
	// Secrets finds registry credentials. Default: none, and none exists.
	Secrets pods.PullSecrets
	// Volumes finds network volumes. Default: none, and none exists.
	Volumes pods.Volumes
	// Overcommit is how many vCPUs are promised for each of a host, as
	// for pods. Default catalog.Overcommit.
	Overcommit float64
}

// A Fleet is a serverless.Fleet. It is safe for concurrent use.
type Fleet struct {
	store   pods.PodStore
	placer  *pods.Placer
	secrets pods.PullSecrets // may be nil
	volumes pods.Volumes     // may be nil

	mu           sync.Mutex
	adopted      bool                          // places has those of an earlier process
	reservations map[string]*workerReservation // by pod id
}

var (
	_ fleet.Fleet      = (*Fleet)(nil)
	_ fleet.WorkerLogs = (*Fleet)(nil)

	_ endpoints.Admission = (*Fleet)(nil)
)

// New returns a fleet on hosts, whose GPUs and CPU flavors are of c; store is that of the
// pods on them. An error says what is wrong with the hosts. o may be nil.
func New(store pods.PodStore, c catalog.Catalog, hosts []pods.Host, o *Options) (*Fleet, error) {
	if o == nil {
		o = &Options{}
	}
	placer, err := pods.NewPlacer(store, c, hosts, o.Overcommit)
	if err != nil {
		return nil, fmt.Errorf("podfleet: %w", err)
	}
	return &Fleet{store: store, placer: placer, secrets: o.Secrets, volumes: o.Volumes, reservations: map[string]*workerReservation{}}, nil
}

const podIDPrefix = "worker."

// volumePath is where images for workers look for a network volume.
const volumePath = "/runpod-volume"

// PodID is the id that a worker has as a container.
func PodID(endpoint string, id queue.WorkerID) string {
	return podIDPrefix + endpoint + "." + string(id)
}

// IsWorker reports whether a container is a worker. It is for pods.Options.Foreign.
func IsWorker(podID string) bool {
	_, _, ok := parsePodID(podID)
	return ok
}

// Worker is which worker of which endpoint a container is, or the holder of a reservation; ok
// is false for one that is no worker.
func Worker(podID string) (endpoint string, id queue.WorkerID, ok bool) { return parsePodID(podID) }

// parsePodID is the inverse of PodID: an endpoint's id has no full stop.
func parsePodID(podID string) (endpoint string, id queue.WorkerID, ok bool) {
	rest, ok := strings.CutPrefix(podID, podIDPrefix)
	endpoint, name, two := strings.Cut(rest, ".")
	return endpoint, queue.WorkerID(name), ok && two && endpoint != "" && name != ""
}

// Start implements serverless.Fleet.
func (f *Fleet) Start(ctx context.Context, w fleet.WorkerSpec) error {
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
	if spec.Credential, err = f.credential(ctx, w); err != nil {
		return err
	}
	volumes, err := f.volumesOf(ctx, &w)
	if err != nil {
		return err
	}
	h, err := f.reserve(ctx, podID, &w, volumes)
	if err != nil {
		return err
	}
	for _, id := range h.Volumes {
		spec.Mounts = append(spec.Mounts, pods.Mount{VolumeID: id, Path: volumePath})
	}
	if h.GPU != nil {
		spec.GPUType, spec.GPUs, spec.Devices = h.GPU.ID, h.GPU.Count, slices.Clone(h.Placement.Devices)
	} else {
		spec.VCPU, spec.Memory = h.CPU.VCPU, h.CPU.Memory
	}
	spec.Env, spec.PlatformEnv = environ(&w, h)
	host, _ := f.placer.Host(h.Placement.Host)
	if err := host.Runtime.Ensure(ctx, spec); err != nil {
		// Whether it is there is not known: the place is free when Stop has said so.
		return fmt.Errorf("podfleet: start worker %q of %q: %w", w.ID, w.Endpoint, err)
	}
	return nil
}

func (f *Fleet) credential(ctx context.Context, w fleet.WorkerSpec) (pods.Credential, error) {
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

// volumesOf is the network volumes of an endpoint by data center, of several in one the
// first; nil for none.
func (f *Fleet) volumesOf(ctx context.Context, w *fleet.WorkerSpec) (map[string]string, error) {
	if len(w.NetworkVolumes) == 0 {
		return nil, nil
	}
	if f.volumes == nil {
		return nil, fmt.Errorf("podfleet: no network volumes here, and endpoint %q names one", w.Endpoint)
	}
	at := map[string]string{}
	for _, id := range w.NetworkVolumes {
		dc, err := f.volumes.Volume(ctx, w.Owner, id)
		if err != nil {
			return nil, fmt.Errorf("podfleet: network volume %q: %w", id, err)
		}
		if at[dc] == "" {
			at[dc] = id
		}
	}
	return at, nil
}

// environ is what a worker finds in its environment: the user's variables, those of every
// pod, and those of the worker protocol. fixed names those that are not the user's, in order.
func environ(w *fleet.WorkerSpec, h *pods.Reservation) (all map[string]string, fixed []string) {
	platform := map[string]string{"RUNPOD_DC_ID": h.Placement.DataCenter}
	if h.GPU != nil {
		platform["RUNPOD_GPU_COUNT"] = strconv.Itoa(h.GPU.Count)
	} else {
		platform["RUNPOD_CPU_COUNT"] = strconv.Itoa(h.CPU.VCPU)
	}
	for _, id := range h.Volumes { // one at most
		platform["RUNPOD_VOLUME_ID"] = id
	}
	maps.Copy(platform, w.Env)
	all = make(map[string]string, len(w.Container.Env)+len(platform))
	maps.Copy(all, w.Container.Env)
	maps.Copy(all, platform)
	return all, slices.Sorted(maps.Keys(platform))
}

// Stop implements serverless.Fleet. It returns when nothing of the worker is left, or
// with ctx; then it goes on or is to be repeated.
func (f *Fleet) Stop(ctx context.Context, endpoint string, id queue.WorkerID, grace time.Duration) error {
	podID := PodID(endpoint, id)
	var errs []error
	for _, rt := range f.runtimesOf(podID) {
		errs = append(errs, rt.Remove(ctx, podID, grace))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("podfleet: stop worker %q of %q: %w", id, endpoint, err)
	}
	return f.release(ctx, podID)
}

// runtimesOf is where a worker is, or may be.
func (f *Fleet) runtimesOf(podID string) []pods.Runtime {
	if h, ok := f.reservationOf(podID); ok {
		host, _ := f.placer.Host(h.Placement.Host)
		return []pods.Runtime{host.Runtime}
	}
	return f.runtimes()
}

// runtimes is each Runtime once: hosts may share one.
func (f *Fleet) runtimes() (list []pods.Runtime) {
	seen := map[pods.Runtime]bool{}
	for _, h := range f.placer.Hosts() {
		if !seen[h.Runtime] {
			seen[h.Runtime] = true
			list = append(list, h.Runtime)
		}
	}
	return list
}

// Workers implements serverless.Fleet. An error of one host is an error of the call: what
// it does not list would be taken for gone.
func (f *Fleet) Workers(ctx context.Context) (list []fleet.Instance, err error) {
	left, err := f.adoptReservations(ctx) // first: what is started meanwhile is not missed in the lists
	if err != nil {
		return nil, err
	}
	for _, rt := range f.runtimes() {
		states, err := rt.List(ctx)
		if err != nil {
			return nil, fmt.Errorf("podfleet: list workers: %w", err)
		}
		for i := range states {
			delete(left, states[i].PodID)
			if w, ok := f.fleetWorker(&states[i], rt); ok {
				list = append(list, w)
			}
		}
	}
	if err := f.releaseOrphans(ctx, left); err != nil {
		return nil, err
	}
	return list, nil
}

// Watch implements serverless.Fleet.
func (f *Fleet) Watch(ctx context.Context, fn func(fleet.Instance)) error {
	if _, err := f.adoptReservations(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watches sync.WaitGroup
	for _, rt := range f.runtimes() {
		watches.Go(func() {
			cancel(rt.Watch(ctx, func(st pods.ContainerState) {
				if w, ok := f.fleetWorker(&st, rt); ok {
					fn(w)
				}
			}))
		})
	}
	watches.Wait()
	return context.Cause(ctx)
}

// fleetWorker is a container as a worker; ok is false for one that is none.
func (f *Fleet) fleetWorker(st *pods.ContainerState, rt pods.Runtime) (w fleet.Instance, ok bool) {
	endpoint, id, ok := parsePodID(st.PodID)
	if !ok {
		return w, false
	}
	w = fleet.Instance{Endpoint: endpoint, ID: id, Release: int(st.Gen), Started: st.Started}
	switch st.Phase {
	case pods.PhaseStarting, pods.PhaseHealthy:
		w.State = fleet.InstanceRunning
	case pods.PhaseExited, pods.PhaseFailed:
		w.State, w.Exit, w.Stopped = fleet.InstanceEnded, exitReason(st), st.Stopped
	}
	h, held := f.reservationOf(st.PodID)
	if !held {
		// On its way out, or a stranger.
		if w.State != fleet.InstanceEnded {
			w.State, w.Exit, w.Stopped = fleet.InstanceEnded, "it holds nothing of its host", true
		}
		w.DataCenter = f.dataCenterOf(rt)
		return w, true
	}
	w.Image, w.DataCenter = h.Image, h.Placement.DataCenter
	if h.GPU != nil {
		w.GPUType, w.GPUs = h.GPU.ID, h.GPU.Count
	} else {
		w.CPU, w.VCPUs = h.CPU.ID, h.CPU.VCPU
	}
	return w, true
}

// dataCenterOf is where a runtime is, if it is in one place.
func (f *Fleet) dataCenterOf(rt pods.Runtime) (dc string) {
	for _, h := range f.placer.Hosts() {
		if h.Runtime == rt {
			return h.DataCenter
		}
	}
	return ""
}

// exitReason is how a container ended, for people.
func exitReason(st *pods.ContainerState) string {
	switch {
	case st.OOM:
		return "killed for its memory"
	case st.Reason != "":
		return st.Reason
	}
	return "exit code " + strconv.Itoa(st.ExitCode)
}

// WorkerLogs implements serverless.WorkerLogs, where the host's Runtime keeps output.
func (f *Fleet) WorkerLogs(ctx context.Context, endpoint string, id queue.WorkerID, q fleet.LogQuery) iter.Seq2[fleet.LogLine, error] {
	return func(yield func(fleet.LogLine, error) bool) {
		podID := PodID(endpoint, id)
		for _, rt := range f.runtimesOf(podID) {
			logs, ok := pods.As[pods.LogReader](rt)
			if !ok {
				continue
			}
			for line, err := range logs.Logs(ctx, podID, pods.LogQuery(q)) {
				if !yield(fleet.LogLine(line), err) {
					return
				}
			}
		}
	}
}
