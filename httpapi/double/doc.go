// Package double is the service as a test double: the services and handlers of the product on
// memory stores, with a clock that stands still until it is moved. No rule is written twice. It
// refuses what the product refuses, and what the product does after ten minutes happens when
// the clock was moved by ten minutes. In Go tests, package apitest starts a double in one line.
// For every other language, examples/server -test ADDR is one, with the area /_test
// ([Server.Admin]).
//
// # Time
//
// [Server.Advance] goes from one due instant to the next: ttl, retention, execution timeouts,
// leases, attempts of webhooks, stages of pods, windows of quotas, utilisation. Seven days with
// little to do take microseconds. At each instant it waits until everything is at rest:
// workers, deliveries, and requests that are about to be answered. A worker is at rest when it
// waits for a job or in [Server.Sleep]; a held request is at rest until its job has ended. For
// a worker that waits in another way it waits once, for Options.Settle of wall time; then that
// worker counts as at rest.
//
// Requests are held as in the product, until the end in virtual or in wall time, whichever
// comes first, so that a client with one thread never blocks for good. Remote workers follow
// wall time: a worker that made a request in the last 30 s loses no job by an Advance.
//
// In a testing/synctest bubble use [Server.Transport] or [Server.Client]. They have no sockets,
// and the time of the bubble is then the wall time.
//
// # The same bytes
//
// Ids, ports, jitter, keys, signatures and probabilities come from Options.Seed. The same seed
// and the same calls, one after another, give the same bytes. For that a request waits for the
// work that earlier requests have started in this process, for at most a tenth of a second.
//
// # Faults
//
// [FaultNames] lists what can go wrong, by name. A [Fault] has a count, a probability and what
// it matches. Faults of requests happen around the handler. Faults of pods, workers, stores and
// webhooks happen beneath the services, which then react as in the product.
//
// A fault has the same answer as the real failure. [FaultStore] is a 503 on every operation
// that needs a store. [FaultNoCapacity] is the 400 of full hosts, for a pod that is made,
// started, or reset without compute; workers wait for capacity or go to another data center.
// [FaultRateLimited] has the headers of the limit of its operation. Package backend/fault makes
// the faults of stores, with the same rules for counts and probabilities. The seed replays
// them; apitest prints the seed of a test that failed.
//
// # Scripts
//
// [Server.Endpoint] is an endpoint without a worker. It has outcomes in order, for inputs that
// match.
//
// # Scaling
//
// [Server.Image] sets what the workers of an image run. Endpoints with that image, made by POST
// /v2/serverless or [Server.Declare], have workers as in the product. The scaler starts them
// for jobs, in containers with a cold start, replaces them at a release, backs off when they
// crash, and ends them when they are idle, each at its instant of the clock. [Server.ImageHTTP]
// does the same for the workers of load-balancing endpoints; their health checks are made in
// order, one at a time. The faults of pods apply to them too. [Server.ImageScript] is an image with outcomes and without a function.
//
// # Journal
//
// [Server.FindRequests], [Server.FindJobs] and [Server.FindWebhooks] select what happened, and
// explain near misses. The journal has every request with its answer, every job, also a deleted
// one, and every attempt to deliver a webhook, with its signature and timestamp verified. The
// last 10,000 of each are kept, and 256 KB of each body. "[redacted]" stands for secrets: keys,
// passwords of registries, values of env, s3Config, the keys of an account, and user, password
// and query values in the URLs of webhooks.
//
// # What it answers
//
// The double answers every operation of docs/interface.md with the handlers of the product.
// COVERAGE.md beside this file lists what is refused because the product does not offer it.
package double
