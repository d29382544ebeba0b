// Package podfleet starts workers of serverless endpoints as containers: it is a
// serverless.Fleet on the hosts of package pods. Only this package knows both domains.
//
// A worker is a container of its host's Runtime. The container's id is "worker.", the
// endpoint, a full stop, and the worker's id. A pods.Service on the same Runtime ignores
// such containers if its Options.Foreign is [IsWorker].
//
// # Placement
//
// A worker is placed on the first host with room. Hosts in the endpoint's data centers are
// tried before others. Of the endpoint's machines and GPU types, the first that fits is
// used. A pods.Placer places workers, as it places pods, and the store of pods keeps their
// reservations. So a GPU is never given to two containers, pod or worker. The same is true
// for everything that pods and workers share on a host: named GPUs, counts, memory, vCPUs.
//
// A reservation exists as long as its container may run. It is written before the request
// to the runtime, and released when the runtime has confirmed that the container has ended, or
// that nothing is left of it. The container and its log may stay for a while. A fleet
// adopts the reservations of an earlier process. The first list releases a reservation
// whose container is gone. A container without a reservation (its server crashed before the
// creation finished) may not use its host: it is listed as ended, and the scaler removes
// it.
//
// A worker mounts the endpoint's network volume in its host's data center at
// /runpod-volume. An endpoint with volumes gets workers only in data centers where it has a
// volume. Where several servers have hosts, it gets workers only from the server that has what is in
// the volume, which is the one that mounted it first.
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

// Options configures a Fleet. The zero value and nil work.
type Options struct {
	// Secrets finds registry credentials. Default: there are none.
	Secrets pods.PullSecrets
	// EnvSecrets finds values for variables. Default: variables are as they were written.
	EnvSecrets pods.EnvSecrets
	// Volumes finds network volumes. Default: there are none.
	Volumes pods.Volumes
	// Server is pods.Options.ServerInstance, or else ServerName, where several servers have
	// hosts. Workers then mount only volumes whose contents are at this server, if Volumes is
	// one for several servers: see pods.Volumes. Default: there is one server.
	Server string
	// Overcommit is how many vCPUs are given out for each vCPU of a host, as for pods.
	// Default catalog.Overcommit.
	Overcommit float64
	// Deterministic is that of the serverless.Options: the store does not block, and what a dead
	// worker held is free when Watch tells its end, in the same call.
	Deterministic bool
}

// A Fleet is a serverless.Fleet. It is safe for concurrent use.
type Fleet struct {
	store   pods.PodStore
	placer  *pods.Placer
	secrets pods.PullSecrets // may be nil
	values  pods.EnvSecrets  // may be nil
	volumes pods.Volumes     // may be nil
	server  string           // empty: the only one
	inline  bool             // Options.Deterministic

	mu           sync.Mutex
	adopted      bool                          // reservations of an earlier process were read
	reservations map[string]*workerReservation // by pod id
	ports        map[string][]pods.PortMapping // of running workers, by pod id
}

var (
	_ fleet.Fleet       = (*Fleet)(nil)
	_ fleet.WorkerLogs  = (*Fleet)(nil)
	_ fleet.WorkerPorts = (*Fleet)(nil)
	_ fleet.Bound       = (*Fleet)(nil)
	_ fleet.RoomHolders = (*Fleet)(nil)

	_ endpoints.Admission = (*Fleet)(nil)
)

// New returns a fleet on hosts, whose GPU types and CPU flavors are in c. store is the
// store of the pods on these hosts. An error says what is wrong with the hosts. o may be
// nil.
func New(store pods.PodStore, c catalog.Catalog, hosts []pods.Host, o *Options) (*Fleet, error) {
	if o == nil {
		o = &Options{}
	}
	placer, err := pods.NewPlacer(store, c, hosts, o.Overcommit)
	if err != nil {
		return nil, fmt.Errorf("podfleet: %w", err)
	}
	return &Fleet{store: store, placer: placer, secrets: o.Secrets, values: o.EnvSecrets, volumes: o.Volumes, server: o.Server, inline: o.Deterministic, reservations: map[string]*workerReservation{}, ports: map[string][]pods.PortMapping{}}, nil
}

const podIDPrefix = "worker."

// volumePath is where worker images expect a network volume.
const volumePath = "/runpod-volume"

// PodID returns the container id of a worker.
func PodID(endpoint string, id queue.WorkerID) string {
	return podIDPrefix + endpoint + "." + string(id)
}

// IsWorker reports whether a container is a worker. It is for pods.Options.Foreign.
func IsWorker(podID string) bool {
	_, _, ok := parsePodID(podID)
	return ok
}

// Worker returns the worker of a container id or of the holder of a reservation. ok is
// false if it is not a worker.
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
		Image: w.Container.Image, Disk: w.Container.Disk, LocalPorts: true,
	}
	var err error
	if spec.Entrypoint, spec.Args, err = pods.ParseCommand(w.Container.Args); err != nil {
		return fmt.Errorf("podfleet: args of a worker of %q: %w", w.Endpoint, err)
	}
	for _, text := range w.Container.Ports {
		number, protocol, ok := container.ParsePort(text)
		if !ok {
			return fmt.Errorf("podfleet: %q is no port", text)
		}
		spec.Ports = append(spec.Ports, pods.Port{Private: number, Protocol: protocol})
	}
	publish(&spec, w.Listener)
	if spec.Credential, err = f.credential(ctx, w); err != nil {
		return err
	}
	// A secret that does not exist is empty; who starts workers has no log for them.
	if w.Container.Env, _, err = pods.ExpandSecrets(ctx, f.values, w.Owner, w.Container.Env); err != nil {
		return fmt.Errorf("podfleet: environment of a worker of %q: %w", w.Endpoint, err)
	}
	volumes, err := f.volumesOf(ctx, &w)
	if err != nil {
		return err
	}
	h, err := f.reserve(ctx, podID, &w, volumes)
	if err != nil {
		return err
	}
	host, _ := f.placer.Host(h.Placement.Host)
	for _, id := range h.Volumes {
		spec.Mounts = append(spec.Mounts, pods.Mount{VolumeID: id, Path: volumePath})
	}
	if h.GPU != nil {
		spec.GPUType, spec.GPUs, spec.Devices = h.GPU.ID, h.GPU.Count, slices.Clone(h.Placement.Devices)
		spec.VCPU, spec.Memory = h.Placement.Limits(host, h.GPU.Count)
	} else {
		spec.VCPU, spec.Memory = h.CPU.VCPU, h.CPU.Memory
	}
	spec.Env, spec.PlatformEnv = environ(&w, h)
	if err := host.Runtime.Ensure(ctx, spec); err != nil {
		// The container may exist: the reservation stays until Stop has removed it.
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

// environ returns the environment of a worker: the user's variables, the variables of every
// pod, and those of the worker protocol. fixed has the sorted names of the variables that
// are not the user's.
func environ(w *fleet.WorkerSpec, h *pods.Reservation) (all map[string]string, fixed []string) {
	platform := map[string]string{"RUNPOD_DC_ID": h.Placement.DataCenter}
	if h.GPU != nil {
		platform["RUNPOD_GPU_COUNT"] = strconv.Itoa(h.GPU.Count)
	} else {
		platform["RUNPOD_CPU_COUNT"] = strconv.Itoa(h.CPU.VCPU)
	}
	for _, id := range h.Volumes { // at most one
		platform["RUNPOD_VOLUME_ID"] = id
	}
	maps.Copy(platform, w.Env)
	all = make(map[string]string, len(w.Container.Env)+len(platform))
	maps.Copy(all, w.Container.Env)
	maps.Copy(all, platform)
	return all, slices.Sorted(maps.Keys(platform))
}

// Stop implements serverless.Fleet. It returns when nothing of the worker is left, or when
// ctx ends. In the second case the removal may continue, and the caller must repeat Stop.
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

// runtimesOf returns the runtimes on which a worker may be.
func (f *Fleet) runtimesOf(podID string) []pods.Runtime {
	if h, ok := f.reservationOf(podID); ok {
		host, _ := f.placer.Host(h.Placement.Host)
		return []pods.Runtime{host.Runtime}
	}
	return f.runtimes()
}

// runtimes returns each Runtime once: hosts may share one.
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

// Workers implements serverless.Fleet. If one host fails, the call fails: otherwise the
// scaler would treat the missing workers as gone.
func (f *Fleet) Workers(ctx context.Context) (list []fleet.Instance, err error) {
	left, err := f.adoptReservations(ctx) // before the lists, so that a worker started meanwhile is not taken for an orphan
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
			w, ok := f.fleetWorker(&states[i], rt)
			if !ok {
				continue
			}
			if w.State == fleet.InstanceEnded {
				if err := f.giveBack(ctx, states[i].PodID); err != nil {
					return nil, err
				}
			}
			list = append(list, w)
		}
	}
	if err := f.releaseOrphans(ctx, left); err != nil {
		return nil, err
	}
	return list, nil
}

// Watch implements serverless.Fleet. The end of a worker is told when what it held is free, so that
// its successor finds room.
func (f *Fleet) Watch(ctx context.Context, fn func(fleet.Instance)) error {
	if _, err := f.adoptReservations(ctx); err != nil {
		return err
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var watches sync.WaitGroup
	end := func(w fleet.Instance, podID string) {
		if err := f.giveBack(ctx, podID); err != nil {
			cancel(err) // the caller lists the workers, which tries it again
		}
		fn(w)
	}
	for _, rt := range f.runtimes() {
		watches.Go(func() {
			cancel(rt.Watch(ctx, func(st pods.ContainerState) {
				w, ok := f.fleetWorker(&st, rt)
				switch {
				case !ok:
				case w.State != fleet.InstanceEnded:
					fn(w)
				case f.inline:
					end(w, st.PodID)
				default:
					watches.Go(func() { end(w, st.PodID) }) // the store may be slow, and other workers change meanwhile
				}
			}))
		})
	}
	watches.Wait()
	return context.Cause(ctx)
}

// fleetWorker converts a container to a worker. ok is false if it is not a worker.
func (f *Fleet) fleetWorker(st *pods.ContainerState, rt pods.Runtime) (w fleet.Instance, ok bool) {
	endpoint, id, ok := parsePodID(st.PodID)
	if !ok {
		return w, false
	}
	w = fleet.Instance{Endpoint: endpoint, ID: id, Release: int(st.Gen), Started: st.Started}
	f.notePorts(st)
	switch st.Phase {
	case pods.PhaseStarting, pods.PhaseHealthy:
		w.State = fleet.InstanceRunning
	case pods.PhaseExited, pods.PhaseFailed:
		w.State, w.Exit, w.Stopped = fleet.InstanceEnded, exitReason(st), st.Stopped
	}
	h, held := f.reservationOf(st.PodID)
	if !held {
		// It is being removed, or it has no reservation.
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

// dataCenterOf returns the data center of the first host with this runtime.
func (f *Fleet) dataCenterOf(rt pods.Runtime) (dc string) {
	for _, h := range f.placer.Hosts() {
		if h.Runtime == rt {
			return h.DataCenter
		}
	}
	return ""
}

// exitReason returns a text for users about how a container ended.
func exitReason(st *pods.ContainerState) string {
	switch {
	case st.OOM:
		return "killed for its memory"
	case st.Reason != "":
		return st.Reason
	}
	return "exit code " + strconv.Itoa(st.ExitCode)
}

// WorkerLogs implements fleet.WorkerLogs if the host's Runtime keeps output.
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
