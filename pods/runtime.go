package pods

import (
	"context"
	"fmt"
	"io"
	"iter"
	"log/slog"
	"maps"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem"
)

// A Runtime makes the containers of one host be what the specs say. It is what a
// backend implements: processes, Docker, a cluster, a simulation.
//
// Methods name the pod, are idempotent, and return when the work is accepted; what
// became of it shows in Watch and List. There are never two calls at once for one pod,
// and many for different pods. Input is valid: the service has checked it.
//
// A failure of one pod (an image that cannot be pulled, a command that does not exist)
// is a State with Failed set, not an error: an error means that the host did not take
// the call and that the service will repeat it.
type Runtime interface {
	Capabilities() Capabilities
	// Ensure has a container of exactly this generation, started Run times at least. The
	// same Gen and Run: nil, whatever became of it. The same Gen and a larger Run starts
	// the container again, its disk as it was. Another Gen replaces the container: its
	// disk is wiped and its mounts are kept.
	Ensure(ctx context.Context, s Spec) error
	// Stop asks the container to end and kills it after grace, with everything it
	// started. The disk stays until another generation or Remove. A container that is
	// not running: nil.
	Stop(ctx context.Context, podID string, grace time.Duration) error
	// Remove kills and destroys container, disk and host-local storage, and detaches
	// network volumes. It returns when nothing of the pod is left. An absent pod: nil.
	Remove(ctx context.Context, podID string, grace time.Duration) error
	// List is the truth now, for start-up and after a gap: also what is ours and what no
	// store knows.
	List(ctx context.Context) ([]ContainerState, error)
	// Watch calls f on each change until ctx ends or the engine is lost, one call at a
	// time and in order for each pod; f must not block. An error other than ctx's means:
	// List again, then Watch again. Changes after Watch was called are not missed.
	Watch(ctx context.Context, f func(ContainerState)) error
}

// Capabilities says what a Runtime can do.
type Capabilities struct {
	GPUs            bool // hands devices to containers
	DiskLimit       bool // enforces Spec.Disk
	PrivateNetworks bool // joins pods of one user in a private network, see Spec.NetworkAlias
	Pull            bool // pulls images
}

// A Spec is one container. Its slices and maps are the Runtime's to keep: nobody
// changes them again.
type Spec struct {
	PodID string
	Owner string
	Gen   uint64
	Run   uint64
	Image string
	Args  []string // Config.Args, split as a shell would
	Env   map[string]string
	// PlatformEnv names the variables of Env whose values the platform set. All others are
	// the owner's.
	PlatformEnv []string
	Ports       []Port
	Disk        int // GB
	Mounts      []Mount
	GPUType     string
	GPUs        int      // how many of GPUType
	Devices     []string // GPUs, as the host names them: GPUs of them, or none where they have no names
	VCPU        int      // 0 for a GPU pod
	Memory      int      // GB; 0 is no limit
	Credential  Credential
	AlwaysPull  bool // pull even when the image is here
	// NetworkAlias, if not empty, has the container join the private network of Owner: others
	// of Owner that joined find it there under this name, and nothing of another owner
	// reaches it. It is empty for a Runtime that has not the capability Networks.
	NetworkAlias string
}

// A Port is a port of the container to be published.
type Port struct {
	Private  int
	Protocol string // tcp, udp, http
}

// A Mount is a directory for the container.
type Mount struct {
	VolumeID string // network volume; empty: host-local storage of this pod
	Path     string // absolute, clean, inside the container
	Size     int    // GB, 0 unless host-local
}

// A Phase is how far a container is.
type Phase uint8

// The phases of a container.
const (
	PhasePulling  Phase = iota // the image is being fetched, the container made
	PhaseStarting              // it runs and is not healthy yet
	PhaseHealthy               // it runs and is healthy
	PhaseExited                // it has ended: see ExitCode, Stopped
	PhaseFailed                // it could not be made or started, or its host had to end it: see Reason
)

// A ContainerState is what a Runtime sees of one container.
type ContainerState struct {
	PodID string
	Gen   uint64
	Run   uint64
	Phase Phase
	// ExitCode of a container that is Down: 128+n after signal n.
	ExitCode int
	// Stopped says that a container is Down because Stop or Remove was asked to end it, or
	// because its host went away in an orderly way.
	Stopped bool
	OOM     bool   // killed for its memory
	Reason  string // for the user: why it is Failed, how it ended
	Started time.Time
	Ports   []PortMapping
	CUDA    string
	IP      string    // in the private network of its owner; empty outside of one and once Down
	At      time.Time // the host's own stamp; the service's clock decides rules
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

// An Admitter is a power of a Runtime that does not run whatever a user asks for: one whose
// images are programs of its host, and not containers.
type Admitter interface {
	// Admit adds to faults what of s its owner may not ask for, at "/args" and "/env/NAME",
	// as [problem.BadRequest]. Of s it reads PodID, Owner, Image, Args, Env and PlatformEnv.
	// It is asked before a pod or an endpoint is stored. Ensure judges in the same way: what
	// is refused may have changed since.
	//
	// The empty owner is the program itself, which may ask for anything.
	Admit(s Spec, faults *problem.Violations)
}

// OwnerEnv is the variables of s that the owner chose.
func (s *Spec) OwnerEnv() map[string]string {
	env := maps.Clone(s.Env)
	for _, name := range s.PlatformEnv {
		delete(env, name)
	}
	return env
}

// LogReader is a power of a Runtime that keeps the output of its containers.
type LogReader interface {
	// Logs yields lines, oldest first: those after q.After, and of these the last q.Tail.
	// With q.Follow it then yields new ones as they come, until the pod is removed or ctx
	// ends, which is no error. An unknown pod has no lines.
	Logs(ctx context.Context, podID string, q LogQuery) iter.Seq2[LogLine, error]
}

// A LogQuery selects lines.
type LogQuery struct {
	// After leaves out the lines up to this one: those of an earlier instant, and those
	// of the same instant with a Seq not above AfterSeq. Zero: none left out.
	After    time.Time
	AfterSeq uint64
	Tail     int // -1: all
	Follow   bool
}

// A Sampler is a power of a Runtime that measures.
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

// What pods needs of its neighbours, without importing them.
type (
	// PullSecrets finds registry credentials. registries.Service is one.
	PullSecrets interface {
		// PullSecret returns the user name and password of a credential of owner, or an
		// error of kind problem.NotFound.
		PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error)
	}
	// Volumes finds network volumes.
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
	// A Clock tells the time; see internal/clock for its implementations.
	Clock interface {
		Now() time.Time
		// AfterFunc calls f, which must not block, once Now has reached t.
		AfterFunc(t time.Time, f func()) (stop func() bool)
	}
)
