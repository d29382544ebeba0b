// Package worker runs jobs of an endpoint in another program: a program with a
// serverless.Worker and this package is a remote worker, as an image with one of the
// stock SDKs is.
//
//	err := worker.Run(ctx, serverless.WorkerFunc(resize), &worker.Options{
//		URL: "https://gpu.example.com/v2", Endpoint: "resize", Key: key, Concurrency: 4,
//	})
//
// A program that a fleet starts as its image finds these options in its environment:
// see [FromEnv].
//
// The package is a client of the worker protocol (docs/interface.md 4.3). It waits for
// jobs in a request that the service holds, tells the service every few seconds which
// jobs it has, and stops those that it is told to stop.
package worker
