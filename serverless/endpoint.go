package serverless

import (
	"context"
	"iter"
	"maps"
	"time"

	"github.com/podyard/podyard/problem"
)

// An Endpoint is a queue with a name, and how its workers are made and how many.
//
// One whose Image is empty has no workers of its own: functions in the process serve it,
// or workers that somebody else starts.
type Endpoint struct {
	ID      string
	Owner   string // empty: shared, made by the program's configuration
	Name    string
	Created time.Time

	Container      Container
	GPU            *EndpointGPU  // with an image, exactly one of GPU and CPU
	CPU            []EndpointCPU // eligible machines, in order of preference
	DataCenterIDs  []string      // preferred; empty: any
	NetworkVolumes []string

	Workers     WorkerLimits
	Scaling     Scaling
	ExecTimeout time.Duration // of jobs that do not say; 0 is DefaultExecTimeout
	FlashBoot   FlashBoot

	// Version grows with every change that takes a new worker to have effect. Releases is
	// their history, newest last.
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

// EndpointGPU selects GPUs by pool.
type EndpointGPU struct {
	Pools               []string
	ExcludedTypes       []string
	Count               int // for each worker
	AllowedCUDAVersions []string
	MinCUDAVersion      string
}

// EndpointCPU is one eligible CPU machine.
type EndpointCPU struct {
	ID     string // flavor
	VCPU   int
	Memory int // GB
}

// WorkerLimits bound how many workers there are.
type WorkerLimits struct {
	Min, Max int           // Max 0 pauses the endpoint
	Idle     time.Duration // a worker without a job for so long is one too many
}

// A ScalingType is the signal that the number of workers follows.
type ScalingType string

// The signals.
const (
	QueueDelay   ScalingType = "QUEUE_DELAY"   // how long the oldest job has waited
	RequestCount ScalingType = "REQUEST_COUNT" // how many jobs there are for each worker
)

// Scaling is how the number of workers is decided.
type Scaling struct {
	Type  ScalingType
	Delay time.Duration // of QueueDelay, at least half a second
	Count int           // of RequestCount, at least 1
}

// FlashBoot is a mode of the hosted service. It is kept and changes nothing here.
type FlashBoot string

// The modes.
const (
	FlashBootOff      FlashBoot = "OFF"
	FlashBootOn       FlashBoot = "FLASHBOOT"
	FlashBootPriority FlashBoot = "PRIORITY_FLASHBOOT"
)

// A Release is a change that new workers have and old ones do not.
type Release struct {
	ID      string
	Version int
	User    string // who made it; empty: the program
	Created time.Time
	Diff    []Change
}

// A Change is one setting of a release, as JSON values; nil where there was none.
type Change struct {
	Field    string
	Old, New []byte
}

// What an EndpointStore answers.
var (
	ErrNoEndpoint     = problem.New(problem.NotFound, "endpoint not found")
	ErrEndpointExists = problem.New(problem.Conflict, "endpoint id is taken")
)

// An EndpointStore keeps endpoints. It is safe for concurrent use, copies what it is
// given and returns copies. Get is called for every request.
type EndpointStore interface {
	// Create adds e; ErrEndpointExists if its ID is taken.
	Create(ctx context.Context, e *Endpoint) error
	// Get returns the endpoint or ErrNoEndpoint.
	Get(ctx context.Context, id string) (*Endpoint, error)
	// List yields the endpoints, by Created and then ID.
	List(ctx context.Context) iter.Seq2[*Endpoint, error]
	// Update stores what fn leaves, atomically. fn must not change ID, may run more than
	// once, does no I/O and calls no store.
	Update(ctx context.Context, id string, fn func(*Endpoint) error) (*Endpoint, error)
	// Delete removes it; ErrNoEndpoint if it is not there.
	Delete(ctx context.Context, id string) error
}

// Clone returns a copy that shares nothing with e but the values of changes, which
// nobody changes.
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
	c.CPU = append([]EndpointCPU(nil), e.CPU...)
	c.DataCenterIDs = append([]string(nil), e.DataCenterIDs...)
	c.NetworkVolumes = append([]string(nil), e.NetworkVolumes...)
	c.Releases = append([]Release(nil), e.Releases...)
	return &c
}

// reserved are the first segments of the control API's paths, which an endpoint id would
// hide (it follows /v2/ too).
var reserved = map[string]bool{
	"pods": true, "serverless": true, "templates": true, "network-volumes": true,
	"registries": true, "catalog": true, "billing": true, "clusters": true,
	"account": true, "openapi.json": true,
}

// IsReserved reports whether an endpoint cannot have this id because it is the first
// segment of a path of the control API.
func IsReserved(id string) bool { return reserved[id] }

// CheckEndpointID is nil for an id that an endpoint can have: 1 to 63 letters, digits,
// '-' and '_', and not the first segment of a path of the control API.
func CheckEndpointID(id string) error {
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
