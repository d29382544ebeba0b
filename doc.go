// Package podyard is documentation only: what the packages are for, how they fit
// together, and why they are as they are. README.md has the commands to try.
//
// # Two domains and their neighbours
//
// A pod is compute that somebody rents: a container with a lifecycle, on a host.
// A job is a JSON object that goes into an endpoint's queue and comes out with an output.
// The packages pods and serverless hold the rules of each and know nothing of the other;
// registries, with the credentials for private images, is the third domain. They import
// the standard library, package problem and a clock: no HTTP, no database, no engine.
// Where a domain needs a neighbour it declares an interface of one or two methods, and
// the program that wires them joins the two.
//
// # Layers
//
//	examples/...                          programs
//	httpapi                               the interface on the wire
//	backend/...                           stores, queues, runtimes: one foreign thing each
//	pods, serverless, registries          the rules
//	ratelimit, problem, internal/...      what they all stand on
//
// Each imports what is below it. httpapi and the backends do not know each other either:
// both know the domains. A test over the import graph (layers_test.go) holds this, and
// says for each package what it may import.
//
// A concrete Service has the validation, the ownership and the limits of its domain.
// What a backend implements is narrow, and is promised valid input: pods.Store,
// pods.Runtime, serverless.JobQueue, serverless.EndpointStore, registries.Store. The
// rules that a backend must keep are suites of tests: podstest, serverlesstest,
// registriestest, and those below pods. The test of a backend is a constructor and a call
// of its suite.
//
// # Who decides
//
// Of jobs: serverless.State is the small part of a job, and State.Apply is the whole
// state machine, a pure function of state, instant and operation. A queue calls it inside
// its own atomic section and stores what it returns. So backends own atomicity, order and
// durability, and no rule is written twice.
//
// Of pods: a request writes what is wanted, and only the loop of the program that has the
// host calls its runtime and writes what was seen. One idempotent call, Runtime.Ensure,
// is create, start, restart, reset and recovery.
//
// Nothing is visible before it is as durable as its store makes it. An error of a whole
// call means that the outcome is unknown; ids come from the service, so a repetition is
// safe.
//
// # Time and goroutines
//
// A service follows one clock, the system's unless another is given, and does its
// background work in Run(ctx), which returns when everything it started has ended. Below
// httpapi nothing asks the system for the time, except where processes really run: so a
// day of leases and retries is tested in a moment, in a bubble of testing/synctest.
//
// # Errors
//
// What a user reads is a problem.Error with a kind, made in a domain; httpapi turns kinds
// into statuses, in one place. Everything else is a 500 that says nothing, with its chain
// in the log.
//
// # Sections
//
// Sections and decisions that comments cite are those of the description of the interface
// that the library was written by, which is not part of it.
//
// # Where to start reading
//
//   - examples/embed, the smallest program, and examples/server, everything wired.
//   - pods/pods.go, pods/store.go and pods/runtime.go: the types and the two seams of pods.
//   - serverless/state.go and serverless/queue.go: the state machine of jobs, and its seam.
//   - pods/transitions.go and pods/sync.go; serverless/service.go: what the services do.
//   - httpapi/api.go: how a request gets to its operation, and in which order it is checked.
//
// # What was designed otherwise at first
//
// The walls were drawn before the code. Where the code found a better one it was moved:
//
//   - The store of pods is pods.Store and not PodStore, which repeated its package.
//   - A Claim was the name of an exclusive thing, unique over all pods. It is a quantity
//     with a limit, and an exclusive thing is one of one. So GPUs with names, stock that
//     is only counted, and memory are one mechanism, and the store that has to refuse
//     what exceeds a limit has one rule for all three.
//   - Claims were those of pods. What workers of endpoints took of the same hosts was known
//     to their fleet alone, and forgotten with it, so a GPU was listed for pods or for
//     workers. A Hold is a record beside the pods, its claims are in the same ledger, and
//     the rules of placement are pods.Placer, which both use. It is not a store of its own,
//     because one refusal has to see both; and a worker is not a pod of another kind,
//     because all that lists, acts on or bills pods would have to leave it out again.
//   - JobQueue.Drain handed out chunks and moved the cursor in one call, so chunks whose
//     answer could not be written were lost. It was split: Chunks looks, and OpDrain, an
//     operation of the job like any other and fenced like it, moves the cursor once the
//     answer was written.
//   - JobQueue.Purge takes an owner, because a user purges only what is theirs, and goes
//     on from a cursor, because one that starts over has to look again and again at the
//     jobs of others that it must leave.
//   - State has four more members. Queued: the delay of a job that was retried counts
//     from the retry. Lost: a worker that lost a job is not given it again. Reason: why a
//     job ended that no worker ended, of fixed size where a text would not be. Restarts:
//     the crashes of the server it was running at, so that a job that brings the server
//     down is found out.
package podyard
