package pods

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem"
)

// A Runtime brings the containers of one host to what the specs say. Backends implement it:
// processes, containers, a simulation.
//
// Methods name the pod, are idempotent, and return when the work is accepted; Watch and List
// show the result. There is never more than one call at a time for a pod, but many for
// different pods. Input is valid: the service has checked it.
//
// A failure of one pod (an image that cannot be pulled, a command that does not exist) is a
// ContainerState with PhaseFailed, not an error: an error means that the host did not take the call and
// that the service will repeat it.
type Runtime interface {
	Capabilities() Capabilities
	// Ensure makes sure that there is a container of exactly this generation that was started
	// for this Run. With the same Gen and Run it returns nil, whatever has become of the
	// container. With the same Gen and a larger Run it starts the container again, with its
	// disk. With another Gen it replaces the container: the disk is wiped and the mounts are
	// kept.
	Ensure(ctx context.Context, s Spec) error
	// Stop asks the container to end, and after grace kills it and everything it started. The
	// disk stays until another generation or Remove. It returns nil for a container that does
	// not run.
	Stop(ctx context.Context, podID string, grace time.Duration) error
	// Remove kills and destroys container, disk and host-local storage, and detaches network
	// volumes. It returns when nothing of the pod is left, and nil for an absent pod.
	Remove(ctx context.Context, podID string, grace time.Duration) error
	// List returns all containers of this runtime now, also those of no known pod. It is called
	// at the start and when changes may have been missed.
	List(ctx context.Context) ([]ContainerState, error)
	// Watch calls f on each change until ctx ends or the engine is lost. For each pod the calls
	// come one at a time and in order; f must not block. After an error other than ctx's the
	// caller calls List and then Watch again. Changes after the call of Watch are not missed.
	Watch(ctx context.Context, f func(ContainerState)) error
}

// Capabilities says what a Runtime can do.
type Capabilities struct {
	GPUs            bool // hands devices to containers
	DiskLimit       bool // enforces Spec.Disk
	PrivateNetworks bool // joins pods of one user in a private network, see Spec.NetworkAlias
	Pull            bool // pulls images
}

// A Spec is one container. The Runtime owns its slices and maps.
type Spec struct {
	PodID string
	Owner string
	Gen   uint64
	Run   uint64
	Image string
	// Entrypoint and Args are the command: instead of the ENTRYPOINT and of the CMD of the image.
	// An empty one is the image's, except that an Entrypoint without Args drops its CMD.
	Entrypoint []string
	Args       []string
	Env        map[string]string
	// PlatformEnv names the variables of Env whose values the platform set. All others are
	// the owner's.
	PlatformEnv []string
	Ports       []Port
	// PortEnv are variables with the number on which the program must listen to be reached at a
	// port of Ports, by its Private. In a container the two numbers are the same.
	PortEnv    map[string]int
	Disk       int // GB
	Mounts     []Mount
	GPUType    string
	GPUs       int      // how many of GPUType
	Devices    []string // names of the GPUs, as many as GPUs; empty where they have no names
	VCPU       int      // with a GPU pod those of its share; 0 is no limit
	Memory     int      // GB; 0 is no limit
	ShmSize    int      // MB of /dev/shm; 0: half of Memory
	User       string   // instead of the image's; empty: that one
	ExposeHTTP Exposure // empty: that of the host
	// Grace is how long the container before this one may take to end. 0: as the Runtime has it;
	// negative: no time.
	Grace      time.Duration
	Credential Credential
	AlwaysPull bool // pull also when the image is on the host
	LocalPorts bool // publish all ports on loopback only, for programs of this machine
	// NetworkAlias, if not empty, makes the container join the private network of Owner. Other
	// containers of Owner find it there under this name; no other owner's do. It is empty for a
	// Runtime without the capability PrivateNetworks.
	NetworkAlias string
}

// A Port is a port of the container to be published.
type Port struct {
	// Private is its number inside; from 70000 on it is a name: the number inside is the public one.
	Private  int
	Protocol string // tcp, udp, http
}

// A Mount is a directory for the container.
type Mount struct {
	VolumeID string // network volume; empty: host-local storage of this pod
	Path     string // absolute, clean, inside the container
	Size     int    // GB, 0 unless host-local
}

// A Phase is the progress of a container.
type Phase uint8

// The phases of a container.
const (
	PhasePulling  Phase = iota // the image is being fetched, the container made
	PhaseStarting              // it runs and is not healthy yet
	PhaseHealthy               // it runs and is healthy
	PhaseExited                // it has ended: see ExitCode, Stopped
	PhaseFailed                // it could not be made or started, or its host had to end it: see Reason
)

var phaseNames = [...]string{"pulling", "starting", "healthy", "exited", "failed"}

// String returns the name of the phase, such as healthy.
func (p Phase) String() string {
	if int(p) < len(phaseNames) {
		return phaseNames[p]
	}
	return "Phase(" + strconv.Itoa(int(p)) + ")"
}

// A ContainerState is what a Runtime sees of one container.
type ContainerState struct {
	PodID string
	Gen   uint64
	Run   uint64
	Phase Phase
	// ExitCode is that of a container that has ended: 128+n after signal n.
	ExitCode int
	// Stopped means that the container has ended because of Stop or Remove, or because its host
	// was shut down in order.
	Stopped bool
	OOM     bool // killed for its memory
	Killed  bool `json:",omitzero"` // it did not end within the grace of a stop
	// HostWent means that it has ended only because its engine or its host went away.
	HostWent bool   `json:",omitzero"`
	Reason   string // for the user: why it failed, how it ended, or how far the pull of its image is
	Started  time.Time
	Ports    []PortMapping
	CUDA     string
	IP       string    // in the private network of its owner; empty without one, and once it has ended
	At       time.Time // by the host's clock; rules follow the service's clock
}

// A Credential logs in to an image registry. It prints as [redacted].
type Credential struct {
	Registry string // host; empty: the one the image names
	Username string
	Password Secret
}

// A Secret prints as [redacted]. Convert it to a string where it is used.
type Secret string

// String hides s.
func (Secret) String() string { return redacted }

// Format hides s whatever the verb: with a wrong one fmt would print the value itself.
func (Secret) Format(f fmt.State, _ rune) { io.WriteString(f, redacted) }

// LogValue hides s.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides s: a secret is stored by converting it first.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

const redacted = "[redacted]"

// An Admitter is an optional interface of a Runtime that does not run everything that a user
// asks for, because its images are programs of its host and not containers.
type Admitter interface {
	// Admit adds a fault for each part of s that its owner may not ask for, at "/args",
	// "/entrypoint", "/podyard/user" and "/env/NAME", as [problem.BadRequest]. It reads PodID, Owner, Image, Entrypoint,
	// Args, Env, PlatformEnv and User of s. It is called before a pod or an endpoint is stored. Ensure makes the
	// same checks, because the rules may have changed since.
	//
	// The empty owner is the program itself, which may ask for anything.
	Admit(s Spec, faults *problem.Violations)
}

// OwnerEnv returns the variables of s that the owner chose.
func (s *Spec) OwnerEnv() map[string]string {
	env := maps.Clone(s.Env)
	for _, name := range s.PlatformEnv {
		delete(env, name)
	}
	return env
}

// LogReader is an optional interface of a Runtime that keeps the output of its containers.
type LogReader interface {
	// Logs yields lines, oldest first: the last q.Tail of those after q.After. With q.Follow it
	// then yields new ones as they come, until the pod is removed or ctx ends, which is no
	// error. An unknown pod has no lines.
	Logs(ctx context.Context, podID string, q LogQuery) iter.Seq2[LogLine, error]
}

// A LogQuery selects lines.
type LogQuery struct {
	// After and AfterSeq skip lines of an earlier instant, and lines of the same instant whose
	// Seq is not above AfterSeq. Zero: nothing is skipped.
	After    time.Time
	AfterSeq uint64
	Tail     int // -1: all
	Follow   bool
}

// A Sampler is an optional interface of a Runtime that measures loads.
type Sampler interface {
	// Sample is the load of the pod's container now; ok is false when it is not known.
	Sample(ctx context.Context, podID string) (s Sample, ok bool)
}

// A Sample is percentages from 0 to 100.
type Sample struct {
	CPU    int // of the vCPUs the pod has, or of the host's
	Memory int // of the memory the pod has, or of the host's
	GPUs   []GPUSample
}

// A GPUSample is the load of one GPU.
type GPUSample struct {
	Util       int
	MemoryUtil int
}

// As returns an optional interface of rt (LogReader, Sampler, Notifier and others), or of a
// Runtime that rt wraps. A wrapper has a method Unwrap() Runtime.
func As[T any](rt Runtime) (T, bool) { return unwrap.As[T](rt) }

// Interfaces of other packages, which pods does not import.
type (
	// PullSecrets finds registry credentials. registries.Service is one.
	PullSecrets interface {
		// PullSecret returns the user name and password of a credential of owner, or an
		// error of kind problem.NotFound.
		PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error)
	}
	// Volumes finds network volumes. One that also has the methods VolumeServer and SettleVolume of
	// volumes.Service is for several servers, which do not share what is in volumes. Without them,
	// pods with a volume are placed at the server that is asked.
	Volumes interface {
		// Volume says in which data center a volume of owner is, or an error of kind
		// problem.NotFound.
		Volume(ctx context.Context, owner, id string) (dataCenter string, err error)
	}
	// Templates finds what pods are made from.
	Templates interface {
		// PodTemplate returns a template that owner may use, or an error of kind
		// problem.NotFound.
		PodTemplate(ctx context.Context, owner, id string) (Template, error)
	}
	// PublicKeys finds the SSH keys of users.
	PublicKeys interface {
		// PublicKeys returns the public keys of owner, each a line of authorized_keys.
		PublicKeys(ctx context.Context, owner string) ([]string, error)
	}
	// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns
	// a stop that reports whether it prevented the call. f must not block. It is one type in all packages.
	Clock = clock.Clock
)
