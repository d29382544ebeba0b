package endpoints

import (
	"context"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// An Endpoint is a named queue with the settings of its workers.
//
// An endpoint with an empty Image has no managed workers: Go functions in the process serve
// it (serverless.Service.Serve), or workers that somebody else starts.
type Endpoint struct {
	ID      string
	Owner   string // empty: shared, declared by the program
	Name    string
	Created time.Time

	Container      Container
	GPU            *GPU     // with an image, exactly one of GPU and CPU
	CPU            []CPU    // eligible machines, in order of preference
	DataCenterIDs  []string // preferred; empty: any
	NetworkVolumes []string

	Workers     WorkerLimits
	Scaling     Scaling
	ExecTimeout time.Duration // default for its jobs; 0: queue.DefaultExecTimeout
	FlashBoot   FlashBoot
	Cordon      Cordon         // users do not see it
	Queue       *QueueSettings `json:",omitempty"` // nil: nobody has set them; see Endpoint.QueueSettings
	Type        Type           `json:",omitempty"` // empty: QueueType

	// Version increases with every release. Releases is the history, newest last.
	Version  int
	Releases []Release
}

// A Container is what a worker runs.
type Container struct {
	Image    string
	Args     string
	Disk     int // GB
	Ports    []string
	Env      map[string]string
	Registry string // id of a registry credential, or empty
}

// GPU selects GPUs by pool.
type GPU struct {
	Pools               []string
	ExcludedTypes       []string
	Count               int // GPUs of each worker
	AllowedCUDAVersions []string
	MinCUDAVersion      string
}

// CPU is one eligible CPU machine.
type CPU struct {
	ID     string // flavor
	VCPU   int
	Memory int // GB
}

// WorkerLimits limit the number of workers.
type WorkerLimits struct {
	Min, Max int           // Max 0 pauses the endpoint
	Idle     time.Duration // a worker without a job for this long is stopped
}

// A Cordon is what an operator has said about the workers of an endpoint. It lasts until the
// operator takes it back.
type Cordon string

// The cordons.
const (
	NotCordoned Cordon = ""
	Cordoned    Cordon = "cordoned" // no worker is started
	Drained     Cordon = "drained"  // and those that are there end, each after its job
)

// A ScalingType says which signal decides the number of workers.
type ScalingType string

// The signals.
const (
	QueueDelay   ScalingType = "QUEUE_DELAY"   // the time that the oldest job has waited
	RequestCount ScalingType = "REQUEST_COUNT" // the number of jobs per worker
)

// Scaling says how the number of workers is decided.
type Scaling struct {
	Type  ScalingType
	Delay time.Duration // for QueueDelay; at least 500 ms
	Count int           // for RequestCount; at least 1
}

// FlashBoot is a setting of the hosted service. It is stored and has no effect here.
type FlashBoot string

// The modes.
const (
	FlashBootOff      FlashBoot = "OFF"
	FlashBootOn       FlashBoot = "FLASHBOOT"
	FlashBootPriority FlashBoot = "PRIORITY_FLASHBOOT"
)

// A Release is a change that applies to new workers only.
type Release struct {
	ID      string
	Version int
	User    string // the user who made the change; empty: the program
	Created time.Time
	Diff    []Change
}

// A Change is one setting that a release changed. Old and New are JSON values; nil means that
// there was none.
type Change struct {
	Field    string
	Old, New []byte
}

// Errors of a Store.
var (
	ErrNotFound = problem.New(problem.NotFound, "endpoint not found")
	ErrExists   = problem.New(problem.Conflict, "endpoint id is taken")
)

// A Store stores endpoints. It is safe for concurrent use, copies its arguments and returns
// copies. Get is called for every request, so it must be fast.
type Store interface {
	// Create adds e. It returns ErrExists if the ID is in use.
	Create(ctx context.Context, e *Endpoint) error
	// CreateKeyed is Create for a request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[*Endpoint]
	// Get returns the endpoint or ErrNotFound.
	Get(ctx context.Context, id string) (*Endpoint, error)
	// List yields all endpoints, ordered by Created and then ID.
	List(ctx context.Context) iter.Seq2[*Endpoint, error]
	// Update stores the endpoint as fn leaves it, atomically, and returns it. fn must not
	// change ID. fn may run more than once, does no I/O and calls no store. Update returns
	// ErrNotFound, or the error of fn.
	Update(ctx context.Context, id string, fn func(*Endpoint) error) (*Endpoint, error)
	// Delete removes the endpoint. It returns ErrNotFound if there is none.
	Delete(ctx context.Context, id string) error
}

// Clone returns a deep copy of e. Only the values of changes are shared, which are never
// modified.
func (e *Endpoint) Clone() *Endpoint {
	c := *e
	c.Container.Ports = append([]string(nil), e.Container.Ports...)
	if e.Container.Env != nil {
		c.Container.Env = make(map[string]string, len(e.Container.Env))
		maps.Copy(c.Container.Env, e.Container.Env)
	}
	if e.GPU != nil {
		g := *e.GPU
		g.Pools = append([]string(nil), e.GPU.Pools...)
		g.ExcludedTypes = append([]string(nil), e.GPU.ExcludedTypes...)
		g.AllowedCUDAVersions = append([]string(nil), e.GPU.AllowedCUDAVersions...)
		c.GPU = &g
	}
	if e.Queue != nil {
		c.Queue = new(*e.Queue)
	}
	c.CPU = append([]CPU(nil), e.CPU...)
	c.DataCenterIDs = append([]string(nil), e.DataCenterIDs...)
	c.NetworkVolumes = append([]string(nil), e.NetworkVolumes...)
	c.Releases = append([]Release(nil), e.Releases...)
	return &c
}

// reserved are the first path segments of the control API. An endpoint id follows /v2/ too
// and would hide them.
var reserved = map[string]bool{
	"pods": true, "serverless": true, "templates": true, "network-volumes": true,
	"registries": true, "catalog": true, "billing": true, "clusters": true,
	"account": true, "admin": true, "openapi.json": true,
	"global-volumes": true, "sandboxes": true, "tags": true,
}

// Reserved returns the ids that no endpoint can have, in alphabetical order.
func Reserved() []string { return slices.Sorted(maps.Keys(reserved)) }

// IsReserved reports whether id is the first path segment of the control API, which no
// endpoint may have as its id.
func IsReserved(id string) bool { return reserved[id] }

// CheckID returns an error if id cannot be the id of an endpoint. An id has 1 to 63 letters,
// digits, '-' and '_', and is not reserved.
func CheckID(id string) error {
	if reserved[id] {
		return problem.Newf(problem.Invalid, "endpoint id %q is reserved", id)
	}
	if len(id) < 1 || len(id) > 63 {
		return problem.Newf(problem.Invalid, "an endpoint id has 1 to 63 characters")
	}
	for _, c := range []byte(id) {
		if !('a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9' || c == '-' || c == '_') {
			return problem.Newf(problem.Invalid, "endpoint id %q has a character that is not a letter, a digit, '-' or '_'", id)
		}
	}
	return nil
}

// Holding is what an endpoint takes of its owner's budgets, with the settings in
// its releases (docs/decisions.md 37).
func (e *Endpoint) Holding() budget.Holding {
	env := budget.Env(e.Container.Env) + budget.Texts(e.Name, e.Container.Image, e.Container.Args)
	for i := range e.Releases {
		for _, c := range e.Releases[i].Diff {
			env += int64(len(c.Old) + len(c.New))
		}
	}
	return budget.Holding{User: e.Owner, Of: [2]budget.Amount{
		{Budget: budget.Endpoints, N: 1}, {Budget: budget.EndpointEnvBytes, N: env},
	}}
}
