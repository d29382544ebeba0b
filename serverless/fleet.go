package serverless

import (
	"context"
	"iter"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Fleet starts and stops worker processes. It is level-triggered: its calls are
// idempotent by worker id and answer when the work is accepted; what became of it shows
// in Workers and Watch. It is safe for concurrent use.
type Fleet interface {
	// Start has a worker. A worker that is there already: nil. ErrNoRoom says that nothing
	// can take it now.
	Start(ctx context.Context, w WorkerSpec) error
	// Stop asks a worker to end, kills it after grace, and forgets it. An absent one: nil.
	Stop(ctx context.Context, endpoint string, id WorkerID, grace time.Duration) error
	// Workers lists all it has, of all endpoints, whoever started them: a scaler that
	// restarts adopts them. Those that ended by themselves are listed until Stop.
	Workers(ctx context.Context) ([]FleetWorker, error)
	// Watch calls f when a worker has changed, until ctx ends or the fleet is lost (an
	// error: list again). f must not block. Changes after Watch was called are not missed.
	Watch(ctx context.Context, f func(FleetWorker)) error
}

// ErrNoRoom is a Fleet without capacity.
var ErrNoRoom = problem.New(problem.Unavailable, "no capacity for a worker")

// A WorkerSpec is one worker process.
type WorkerSpec struct {
	Endpoint       string
	Owner          string // of the endpoint
	ID             WorkerID
	Release        int // Endpoint.Version it is made of
	Container      Container
	GPU            *EndpointGPU
	CPU            []EndpointCPU
	DataCenterIDs  []string
	NetworkVolumes []string
	Env            map[string]string // in addition to Container.Env, and before it: the worker protocol's
}

// A FleetWorker is what a Fleet has of a worker.
type FleetWorker struct {
	Endpoint   string
	ID         WorkerID
	Release    int
	Image      string
	State      FleetState
	Exit       string // how it ended or why it could not start
	Stopped    bool   // it has ended because it or its host was asked to: nobody is to blame
	Started    time.Time
	DataCenter string
	GPUType    string
	GPUs       int
	CPU        string // flavor, of a worker without GPUs
	VCPUs      int
}

// A FleetState is how far a worker process is.
type FleetState uint8

// The states of a worker process.
const (
	FleetStarting FleetState = iota // being made
	FleetUp                         // it runs
	FleetEnded                      // it has ended by itself, or could not start
)

// WorkerImages is a power of a Fleet that makes workers of some images only. Endpoints with
// another are served by whoever comes for their jobs, as those without an image are.
type WorkerImages interface {
	// RunsImage reports whether the fleet has workers of an image. Service.Restaff is to be
	// called when that changes.
	RunsImage(image string) bool
}

// WorkerLogs is a power of a Fleet that keeps the output of its workers.
type WorkerLogs interface {
	// WorkerLogs yields lines, oldest first: those after q.After, and of these the last
	// q.Tail. With q.Follow it then yields new ones, until the worker is gone or ctx ends.
	WorkerLogs(ctx context.Context, endpoint string, id WorkerID, q LogQuery) iter.Seq2[LogLine, error]
}

// A LogQuery selects lines: those after an instant, or at it with a Seq above AfterSeq.
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
