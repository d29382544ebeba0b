// Package worker runs jobs of an endpoint in another program. Such a program, with a
// serverless.Worker and this package, is a remote worker, as an image with a stock SDK is.
//
//	err := worker.Run(ctx, serverless.WorkerFunc(resize), &worker.Options{
//		URL: "https://gpu.example.com/v2", Endpoint: "resize", Key: key, Concurrency: 4,
//	})
//
// If a fleet starts the program as an image, the environment has these options: see
// [FromEnv].
//
// The package is a client of the worker protocol (docs/interface.md 4.3). It waits for jobs
// in a request that the service holds open, reports its jobs to the service every few
// seconds, and stops jobs when the service says so.
package worker
