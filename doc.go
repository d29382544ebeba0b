// Package podyard is documentation only: what the packages are for and how they fit
// together. README.md has the commands to try, and docs/ has the pages: the interface, the
// decisions behind it, the architecture, operating, testing, security.
//
// # Domains
//
// A pod is compute that somebody rents: a container with a lifecycle, on a host.
// A job is a JSON object that goes into the queue of an endpoint and comes out with an
// output. Package pods has the rules of the first, package serverless those of the second,
// and package registries keeps credentials for private images. They do not know each
// other's rules. They import the standard library and what all packages stand on, such as
// package problem and a clock: no HTTP, no database, no engine. A domain that needs another
// domain declares a small interface, and the program connects them.
//
// # Layers
//
//	examples/...                          programs
//	httpapi/server, httpapi/double        the service, wired; the service as a test double
//	httpapi                               the interface on the wire
//	backend                               opens the stores at an address
//	backend/...                           stores, queues, runtimes: one foreign thing each
//	pods, serverless, registries          the rules
//	ratelimit, problem,                   what they all stand on
//	internal/...
//
// Each package imports only what is below it. httpapi and the backends know the domains and
// not each other. A test over the import graph (layers_test.go) holds this and says for
// each package what it may import.
//
// # Users and backends
//
// A user of the library calls a Service of a domain: pods.Service, serverless.Service,
// registries.Service. It has the validation, the ownership and the limits.
//
// A backend implements what a Service stands on: pods.PodStore, pods.Runtime,
// serverless.JobQueue, serverless.EndpointStore, registries.Store and the stores in the
// subpackages of pods, such as volumes. These interfaces are narrow, and are promised valid
// input. The rules that a backend must keep are public suites of tests, such as podstest,
// serverlesstest and volumestest. The test of a backend is a constructor and a call of its
// suite.
//
// # Who decides
//
// For jobs: queue.State is the small part of a job, and State.Apply is the whole state
// machine, a pure function of state, instant and operation. A queue calls it inside its own
// atomic section and stores what it returns. So backends own atomicity, order and
// durability, and no rule is written twice.
//
// For workers: fleet.Decide says how many workers an endpoint should have, and why. It is a
// pure function too.
//
// For pods: a request writes the desired state. Each host belongs to one program, and only
// the loop of that program calls the runtime of the host and writes the observed state.
// Runtime.Ensure creates, starts, restarts, resets and recovers a pod. To call it again is
// safe.
//
// A change is shown only after its store has saved it, as durably as it can. An error of a
// whole call means that the outcome is unknown. Ids come from the service, so a repetition is
// safe.
//
// # Time and goroutines
//
// A service follows one clock, the system's unless another is given. It does its background
// work in Run(ctx), which returns when everything it started has ended. Below httpapi
// nothing asks the system for the time, except where processes really run. So a day of
// leases and retries is tested in a moment, in a bubble of testing/synctest.
//
// # Errors
//
// What a user reads is a problem.Error with a kind, made in a domain. Package httpapi turns
// kinds into statuses, in one place. Everything else is a 500 that says nothing, with its
// chain in the log.
//
// # Citations
//
// Comments cite docs/interface.md and docs/decisions.md by the numbers of their headings.
//
// # Where to start reading
//
//   - examples/embed, the smallest program, and examples/server, everything wired.
//   - pods/pods.go, pods/store.go and pods/runtime.go: the types and the two seams of pods.
//   - serverless/queue/state.go, apply.go and queue.go: the state machine of jobs, its moves,
//     and its seam.
//   - httpapi/operations.go and httpapi/router.go: which operations there are, and how a
//     request gets to its own.
//   - docs/architecture.md: a job's way and a pod's way through the packages, and the table
//     "Where is what": where each rule is, and what to change to add a field or an operation.
package podyard
