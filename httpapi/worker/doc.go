// Package worker runs jobs of an endpoint somewhere else: a program with a
// serverless.Worker and this package is a remote worker, as an image with one of the
// stock SDKs is.
//
//	err := worker.Run(ctx, serverless.WorkerFunc(resize), &worker.Options{
//		URL: "https://gpu.example.com/v2", Endpoint: "resize", Key: key, Concurrency: 4,
//	})
//
// A program that a fleet starts as its image finds all of it in its environment: see
// FromEnv.
//
// It is a client of the worker protocol: it waits for jobs in a request that the service
// holds, tells every few seconds which jobs it has, and drops those that it is told to.
package worker
