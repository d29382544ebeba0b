// Package queue defines the state machine of a job and the interface of a job queue. Read it
// to write a backend; users of the library read package serverless.
//
// # States
//
// State is the fixed-size part of a job. State.Apply is the whole state machine: a pure
// function of the state, an instant and an operation.
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
// A job in any status is deleted when its ttl elapses (State.Expires). A job that has ended is
// deleted when its retention elapses (State.Retain after State.Finished), with KeepsResult only
// then. A lease that is lost for the MaxDeliveries-th time ends the job as FAILED.
//
// # A backend
//
// A backend implements JobQueue, which includes Outbox. The contract in short:
//
//   - Store State and the payloads of Job. Never compute a State: call State.Apply inside the
//     backend's own atomic section (a lock, or a transaction that has locked the row).
//   - Carry out every Effect that Apply returns in the same commit as the new State, also when
//     Apply returns an error. Send the events of the effect (Effect.Events) after the commit.
//   - Never show a State that is less durable than OpKind.Durable asks for.
//   - Take every instant from the caller. A backend reads no clock.
//   - Assign State.Seq in Enqueue, and again when the effect has NewSeq. A lost job keeps its Seq, so it
//     is the first of its key.
//   - Ask Choose which job is claimed, and keep the indexes that Heads describes, so that a claim
//     costs the same whatever waits.
//   - Issue a new Token for every claim, and never the same Token twice, also after a crash.
//   - Keep the Stats of each endpoint with Stats.Count, in the commit of each move.
//   - Index jobs by State.Due, so that Expire finds the jobs that need OpTick.
//   - When the store is opened after a crash, apply OpRecover to the running jobs whose workers
//     ended with the server.
//
// Package serverless/serverlesstest has the suite that proves it: TestJobQueue. The smallest
// implementation is backend/memory.
package queue
