// Package serverless runs jobs: it queues them, leases them to workers and keeps their results.
// It follows docs/interface.md 2.8, 3.2, 4.2 and 8.
//
// # The smallest program
//
// A [Service] needs a queue and a store of endpoints. The endpoint "shout" is a Go function
// here. Run and Serve run until ctx ends:
//
//	jobs := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
//	if err := jobs.EnsureEndpoint(ctx, "shout"); err != nil {
//		return err
//	}
//	go jobs.Run(ctx)
//	go jobs.Serve(ctx, "shout", serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) {
//		return bytes.ToUpper(t.Input), nil
//	}), nil)
//	j, err := jobs.SubmitAndWait(ctx, "alice", "shout", serverless.Request{Input: []byte(`{"text":"hi"}`)})
//
// Then j.Status is COMPLETED and j.Output is {"TEXT":"HI"}. Package httpapi serves the same
// Service over HTTP (httpapi.NewJobs), and examples/embed is a whole program.
//
// # Submit
//
// [Service.Submit] queues a job and returns at once. [Service.SubmitAndWait] waits for the
// result. [Service.Get], [Service.Wait], [Service.Cancel] and [Service.Retry] act on one job,
// [Service.Purge], [Service.Requests] and [Service.Health] on the jobs of an endpoint. The owner
// in these methods is the user who asks. One user never finds the jobs of another.
//
// A job is IN_QUEUE, then IN_PROGRESS, then COMPLETED, FAILED, CANCELLED or TIMED_OUT. Package
// queue has the diagram of all moves. A job runs again if its worker is lost, and fails after
// queue.MaxDeliveries lost workers, so a worker may get the same job more than once.
//
// # Serve
//
// [Service.Serve] runs a [Worker] in this process. [JSON] makes a Worker from a function over Go
// values. The context of a job ends when the job is cancelled, takes too long, or must stop for
// another reason; context.Cause says which.
//
// # Workers elsewhere
//
// A worker in another process uses the worker protocol over HTTP: package httpapi/worker runs a
// Worker that way, and the Python SDK works unchanged. The HTTP routes call [Service.Take],
// [Service.Ping], [Service.Report] and [Service.WaitStops]. An endpoint with an image
// ([Service.CreateEndpoint]) gets its workers from a [Fleet]: the scaler starts and stops them as
// the queue and the settings of the endpoint require. [Service.Why] says what a job waits for.
//
// # Streams
//
// A Worker sends chunks with [Task.Emit] and an interim output with [Task.Progress].
// [Service.Stream] waits for chunks and hands each of them to one reader, in order.
//
// # Webhooks
//
// A job with a Webhook is posted to this URL when it has ended, at least once, by
// [Options].Sender. The outbox of the queue keeps a delivery until it is settled, also over a
// restart if the queue is durable. [Service.Deliveries] returns the attempts, and
// [Service.Redeliver] sends a webhook again.
//
// # Seams
//
// A program can replace each part of a Service:
//
//   - [JobQueue] stores jobs. It is implemented by backend/memory and backend/disk. The contract
//     is in package queue, the test suite in package serverlesstest.
//   - [EndpointStore] stores endpoints: their records and rules are in package endpoints.
//   - [Fleet] starts and stops worker processes: the contract and the scaler are in package fleet.
//   - [Sender] posts webhooks. [Clock] is the only source of time.
//
// Package workers has the registry of the workers of each endpoint. The packages import each
// other in one direction only: fleet imports workers, endpoints and queue, and package serverless
// imports all of them.
package serverless
