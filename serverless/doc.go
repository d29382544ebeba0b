// Package serverless runs jobs: it queues them, gives them to workers and keeps what came
// of them, by the rules of sections 2.8, 3.2, 4.2 and 8 of the interface.
//
// State is the small part of a job, and State.Apply is the whole state machine, a pure
// function of the state, an instant and an operation:
//
//	            OpClaim                OpFinish
//	IN_QUEUE -------------> IN_PROGRESS -------------> COMPLETED, FAILED
//	  |  ^ ^                  |  |  |   RunUntil
//	  |  | |  lease lost,     |  |  +----------------> TIMED_OUT
//	  |  | +--OpRelease-------+  |
//	  |  |                       | OpCancel
//	  |  +--OpRetry-- FAILED, TIMED_OUT
//	  | OpCancel, OpPurge        v
//	  +----------------------> CANCELLED
//
// From every status a job is deleted when its ttl elapses, and from a terminal one when
// its retention does. A lease that is lost for the MaxDeliveries-th time ends in FAILED.
//
// A JobQueue stores states and payloads, and calls Apply inside its own atomic section: it
// owns atomicity, order and durability, and knows no rule. A Service is the rest: what
// users ask for, workers in the process (Serve) and elsewhere (Take, Ping, Report, Stops),
// the fleets of workers that an endpoint's settings ask for (Decide is that decision, a
// pure function too), deadlines, streams and webhooks.
package serverless
