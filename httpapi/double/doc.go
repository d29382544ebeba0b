// Package double is the service as a test double: the product's own services and handlers
// on memory, with a clock that stands still until it is moved. No rule is written twice:
// what the product refuses is refused, and what it does after ten minutes is done when the
// clock has gone on by ten minutes. In Go tests, package apitest starts one in a line;
// examples/server -test ADDR is one for every other language, by the area /_test
// ([Server.Admin]).
//
// # Time
//
// [Server.Advance] goes from due instant to due instant: ttl, retention, execution timeouts,
// leases, webhook tries, stages of pods, windows of quotas, utilisation. Seven days with
// little to do cost microseconds. At each instant it waits until everything has come to rest:
// workers, deliveries, requests that are about to be answered. At rest is a worker that
// waits for a job, or by [Server.Sleep]; a held request whose job has not ended. A worker
// that waits in another way is waited for once, for Options.Settle of wall time, and then
// counts as resting.
//
// Requests are held as in the product, to the earlier of virtual and wall time: a client
// with one thread is never stuck. Remote workers live by the wall's time: those that were
// heard of in the last 30 s of it lose nothing by an Advance.
//
// In a testing/synctest bubble use [Server.Transport] or [Server.Client]: they have no
// sockets, and the bubble's time is then the wall's.
//
// # The same bytes
//
// Ids, ports, jitter, keys, signatures and probabilities come from Options.Seed. The same
// seed and the same calls, one after another, give the same bytes: a request waits for what
// the ones before it have begun in this process (for a tenth of a second at most).
//
// # Faults
//
// [FaultNames] lists what can go wrong, by name. A [Fault] has a count, a probability and
// what it matches. Those of requests happen around the handler; those of pods, workers,
// stores and webhooks beneath the services, which then do what they do about them.
//
// # Scripts
//
// [Server.Endpoint] is an endpoint without a worker: outcomes in order, for inputs that
// match.
//
// # Scaling
//
// [Server.Image] says what workers of an image run. Endpoints with that image, made by
// POST /v2/serverless or [Server.Declare], have workers as in the product: the scaler starts
// them for jobs, in containers that take their cold start, replaces them at a release, backs
// off when they crash, and ends them when they are idle, each at its instant of the clock.
// The faults of pods happen to them, too. [Server.ImageScript] is one without a function.
//
// # Journal
//
// [Server.FindRequests], [Server.FindJobs] and [Server.FindWebhooks] select what happened,
// and explain what came near. Every request and answer is kept; every job, also when it has
// been deleted; every attempt to deliver a webhook, with its signature and timestamp
// verified. The last 10,000 of each are kept, and 256 KB of each body. "[redacted]" stands
// for what is secret: keys, passwords of registries, values of env, s3Config, the keys of
// an account, and user, password and query values in the URLs of webhooks.
//
// # What it answers
//
// COVERAGE.md beside this file has every operation with its test. It is generated of
// [Operations] and checked.
package double
