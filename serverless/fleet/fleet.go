package fleet

import (
	"context"
	"iter"
	"strconv"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A Fleet starts and stops worker processes. Its calls are idempotent by worker id. They
// return when the work is accepted; Workers and Watch show the result. It is safe for
// concurrent use.
type Fleet interface {
	// Start starts a worker. It returns nil if the worker exists already, and ErrNoCapacity
	// if nothing can take it now.
	Start(ctx context.Context, w WorkerSpec) error
	// Stop asks a worker to end, kills it after grace, and then forgets it. It returns nil
	// for an unknown worker.
	Stop(ctx context.Context, endpoint string, id queue.WorkerID, grace time.Duration) error
	// Workers lists the workers of all endpoints, including those of earlier processes, which
	// a new scaler may adopt. A worker that ended by itself is listed until Stop, which may come
	// minutes later, and holds nothing of its host.
	Workers(ctx context.Context) ([]Instance, error)
	// Watch calls f with each changed worker until ctx ends or the fleet is lost. Then it
	// returns an error; changes may have been missed, and the caller lists again. f must not
	// block. No change after the call of Watch is missed before it returns.
	Watch(ctx context.Context, f func(Instance)) error
}

// ErrNoCapacity is returned by Start if nothing can take the worker now.
var ErrNoCapacity = problem.New(problem.Unavailable, "no capacity for a worker")

// A WorkerSpec describes a worker process to start.
type WorkerSpec struct {
	Endpoint       string
	Owner          string // of the endpoint
	ID             queue.WorkerID
	Release        int // the Endpoint.Version that it runs
	Container      endpoints.Container
	GPU            *endpoints.GPU
	CPU            []endpoints.CPU
	DataCenterIDs  []string
	NetworkVolumes []string
	Env            map[string]string // variables of the worker protocol; they override Container.Env
	// Listener says where a worker of a load-balancing endpoint listens. The fleet publishes
	// these ports. nil: the endpoint has a queue.
	Listener *endpoints.Listener
}

// An Instance is a worker process as its Fleet reports it.
type Instance struct {
	Endpoint   string
	ID         queue.WorkerID
	Release    int
	Image      string
	State      InstanceState
	Exit       string // why it ended or could not start
	Stopped    bool   // it ended because it or its host was asked to, which is not a failure
	Started    time.Time
	DataCenter string
	GPUType    string
	GPUs       int
	CPU        string // flavor, for a worker without GPUs
	VCPUs      int
}

// An InstanceState is the state of a worker process.
type InstanceState uint8

// The states of a worker process.
const (
	InstanceStarting InstanceState = iota // being created
	InstanceRunning                       // running
	InstanceEnded                         // ended by itself, or could not start
)

var instanceNames = [...]string{"starting", "running", "ended"}

// String returns the name of the state, such as running.
func (s InstanceState) String() string {
	if int(s) < len(instanceNames) {
		return instanceNames[s]
	}
	return "InstanceState(" + strconv.Itoa(int(s)) + ")"
}

// WorkerImages is an optional interface of a Fleet that starts workers of some images only.
// The endpoints with other images have no managed workers.
type WorkerImages interface {
	// RunsImage reports whether the fleet starts workers of an image. Call Scaler.Resync when
	// the answer changes.
	RunsImage(image string) bool
}

// WorkerPorts is an optional interface of a Fleet that publishes the ports of its workers. An
// endpoint of the type LOAD_BALANCER needs it.
type WorkerPorts interface {
	// WorkerAddress returns the address, as host:port, at which this program reaches a TCP port
	// of a worker. ok is false while it is not known. It must not block.
	WorkerAddress(endpoint string, id queue.WorkerID, port int) (address string, ok bool)
}

// Bound is an optional interface of a Fleet of one of several servers, some of whose workers only
// one server can start.
type Bound interface {
	// Elsewhere reports whether only other servers can start workers that mount one of these
	// network volumes.
	Elsewhere(ctx context.Context, volumes []string) (bool, error)
}

// RoomHolders is an optional interface of a Fleet that knows who has the room of its hosts.
type RoomHolders interface {
	// RoomHolders returns how many workers of each endpoint have a place on the hosts, and how many
	// pods do.
	RoomHolders(ctx context.Context) (workers map[string]int, pods int, err error)
}

// WorkerLogs is an optional interface of a Fleet that keeps the output of its workers.
type WorkerLogs interface {
	// WorkerLogs yields the last q.Tail lines after q.After, oldest first. With q.Follow it
	// then yields new lines until the worker is gone or ctx ends.
	WorkerLogs(ctx context.Context, endpoint string, id queue.WorkerID, q LogQuery) iter.Seq2[LogLine, error]
}

// A LogQuery selects log lines after the instant After, or at After with a Seq above
// AfterSeq.
type LogQuery struct {
	After    time.Time
	AfterSeq uint64
	Tail     int // -1: all
	Follow   bool
}

// A LogLine is one line of output.
type LogLine struct {
	At   time.Time
	Seq  uint64
	Text string
}

// As returns an optional interface (WorkerImages, WorkerPorts, WorkerLogs, RoomHolders, Bound) of f, or of a Fleet that f
// wraps. A wrapper has a method Unwrap() Fleet.
func As[T any](f Fleet) (T, bool) { return unwrap.As[T](f) }
