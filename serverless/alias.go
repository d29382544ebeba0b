package serverless

import (
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// The types of the packages below that users of a Service meet. Package queue has the state
// machine of a job and the interface of a queue, package endpoints the records and rules of
// endpoints, and package fleet the worker processes and the scaler.
type (
	// A Job is a job with its payloads.
	Job = queue.Job
	// A JobID is the id of a job within its endpoint.
	JobID = queue.JobID
	// A Ref identifies a job by its endpoint and its id.
	Ref = queue.Ref
	// A Status is the status of a job.
	Status = queue.Status
	// A RetryPolicy says how often a job that fails is run, and when.
	RetryPolicy = queue.RetryPolicy
	// A WorkerID is the id of a worker.
	WorkerID = queue.WorkerID
	// An Instant is a time in Unix milliseconds; 0 is never.
	Instant = queue.Instant
	// A Trace is the W3C trace context of the request that submitted a job.
	Trace = queue.Trace
	// A JobQueue stores jobs. backend/memory, backend/disk and backend/postgres implement it.
	JobQueue = queue.JobQueue
	// A Delivery is a webhook that is to be sent.
	Delivery = queue.Delivery
	// An Attempt is the result of one try to send a Delivery.
	Attempt = queue.Attempt
	// Stats counts the jobs of an endpoint.
	Stats = queue.Stats
	// An Endpoint is a named queue with the settings of its workers.
	Endpoint = endpoints.Endpoint
	// An EndpointStore stores endpoints.
	EndpointStore = endpoints.Store
	// A Fleet starts and stops worker processes.
	Fleet = fleet.Fleet
)

// The statuses of a job. Those from Completed on are terminal.
const (
	InQueue    = queue.InQueue
	InProgress = queue.InProgress
	Completed  = queue.Completed
	Failed     = queue.Failed
	Cancelled  = queue.Cancelled
	TimedOut   = queue.TimedOut
)

// Limits and defaults of a job. Package queue documents each of them.
const (
	DefaultExecTimeout = queue.DefaultExecTimeout
	MinExecTimeout     = queue.MinExecTimeout
	MaxExecTimeout     = queue.MaxExecTimeout
	DefaultTTL         = queue.DefaultTTL
	MinTTL             = queue.MinTTL
	MaxTTL             = queue.MaxTTL
	MinRetain          = queue.MinRetain
	MaxRetain          = queue.MaxRetain
	MaxStartAfter      = queue.MaxStartAfter
	MinStatusTTL       = queue.MinStatusTTL
	DefaultWait        = queue.DefaultWait
	MinWait            = queue.MinWait
	MaxWait            = queue.MaxWait
	RunRetention       = queue.RunRetention
	MinSyncRetention   = queue.MinSyncRetention
	MaxSyncRetention   = queue.MaxSyncRetention
)

// Errors of a Service. Test for them with errors.Is.
var (
	ErrNotFound       = queue.ErrNotFound
	ErrLeaseLost      = queue.ErrLeaseLost
	ErrStatus         = queue.ErrStatus
	ErrStreamFull     = queue.ErrStreamFull
	ErrDamaged        = queue.ErrDamaged
	ErrNoEndpoint     = endpoints.ErrNotFound
	ErrEndpointExists = endpoints.ErrExists
	ErrSharedEndpoint = endpoints.ErrShared
	ErrForgotten      = problem.New(problem.Unavailable, "the store failed before the job was durable: submit it again")
)

// At returns the instant of t, rounded down to the millisecond.
func At(t time.Time) Instant { return queue.At(t) }
