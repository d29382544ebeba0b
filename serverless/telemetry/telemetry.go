// Package telemetry has what a service of jobs reports of its work to whoever makes metrics or
// traces of it. Package prometheus below backend is an [Observer].
package telemetry

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// An Observer gets what has happened to jobs, workers and webhooks. Its methods are called
// after the commit and outside locks, by many goroutines at once. They must not block, and must
// not change what a value refers to.
//
// An Observer sees the work of this process. Servers that share a store have one each.
type Observer interface {
	Job(JobEvent)
	Worker(WorkerEvent)
	Webhook(WebhookEvent)
	Loop(LoopEvent)
}

// A JobChange is what has happened to a job.
type JobChange uint8

// The changes of a job.
const (
	JobSubmitted JobChange = iota
	JobClaimed             // a worker has it
	JobRequeued            // it is queued again: see Cause
	JobEnded               // State.Status is terminal
	JobExpired             // its ttl has passed before it had ended, and it is deleted
	JobChunk               // its worker has added a chunk of Bytes bytes to its stream
)

// A Cause says why a job is queued again.
type Cause string

// The causes.
const (
	Lost     Cause = "lost"     // its worker was lost
	Released Cause = "released" // its worker gave it back
	Snoozed  Cause = "snoozed"  // its worker put it off
	Retry    Cause = "retry"    // an attempt has failed, or its user has retried it
	Restart  Cause = "restart"  // its server was restarted
)

// A JobEvent is a change of one job. What its pointers refer to is valid only until Job returns. None
// of them is nil.
type JobEvent struct {
	Change JobChange
	Cause  Cause // of JobRequeued
	Bytes  int   // of the input (JobSubmitted), the output (JobEnded) or the chunk
	*queue.Ref
	State *queue.State // after the change
	// Trace is the trace context of the job. It is zero for an end in a process that has not
	// claimed the job.
	Trace *queue.Trace
}

// A WorkerChange is what has happened to the workers of an endpoint.
type WorkerChange uint8

// The changes of workers.
const (
	Scaled        WorkerChange = iota // the scaler has decided: Want, Start, Stop, Drain, Reason
	WorkerStarted                     // the fleet has answered a start: Result
	WorkerJoined                      // a worker has asked for its first job: Took is its cold start
	WorkerLost                        // a worker has ended by itself, or is not heard of any more
)

// The results of a start.
const (
	StartOK     = "ok"
	StartNoRoom = "no_room" // the fleet has no capacity
	StartFailed = "failed"
)

// A WorkerEvent is a change of the workers that a fleet has for an endpoint.
type WorkerEvent struct {
	Change   WorkerChange
	Endpoint string
	Worker   queue.WorkerID // empty: Scaled
	At       queue.Instant
	Result   string
	Took     time.Duration // since the worker was decided

	Want, Start, Stop, Drain int    // numbers of workers
	Reason                   string // of the decision, or of the loss
}

// A WebhookEvent is one attempt to deliver a webhook.
type WebhookEvent struct {
	queue.Ref
	Trace   queue.Trace
	At      queue.Instant // its end
	Took    time.Duration
	Try     int  // the number of the attempt, from 1
	Status  int  // of the answer; 0: none
	Failed  bool // Status is no success, or there was no answer
	Dropped bool // it failed, and no other attempt follows
}

// The loops of a service.
const (
	LoopExpire = "expire" // deadlines of jobs
	LoopScaler = "scaler"
	LoopOutbox = "outbox" // webhooks
)

// A LoopEvent is one round of a loop.
type LoopEvent struct {
	Loop string
	Lag  time.Duration // how late the round began
	Err  error         // nil: it succeeded
}
