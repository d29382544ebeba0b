// Package server combines everything into one value: services on the stores and hosts that
// a program chooses, and their handlers. One call of Run starts everything and stops it in
// the right order.
//
// New gets stores, hosts and an authenticator. Options.Store is what backend.Open returns, or one
// backend by its own package: this package imports none of them.
// A program that needs all backends and a configuration file uses the package config below
// this one.
//
// # Two ways to listen
//
// The library opens no listener. Either the program opens listeners and passes them to Run,
// each with a handler. The handler may be a mux with other routes:
//
//	mux.Handle("/v2/", srv.Handler())
//	err := srv.Run(ctx, server.On(listener, mux))
//
// Or the program mounts Handler in its own http.Server and calls Run without listeners.
// Then it must shut its http.Server down after Run has returned, not before: until then,
// workers in other processes deliver their results.
//
//	err := srv.Run(ctx)
//	err = errors.Join(err, own.Shutdown(context.WithoutCancel(ctx)))
//
// The context of Run must not be the BaseContext of that http.Server. Otherwise requests
// end before the jobs that they wait for. The handlers end waiting requests at the right
// time by themselves.
//
// # Shutdown
//
// When the context of Run ends, GET /readyz answers 503. After Options.DrainWait the server
// stops in this order. No work is lost:
//
//  1. New work is refused with 503 and Retry-After, and no worker is started. Reads are
//     still served, and so are the requests that workers need to finish their jobs. A
//     worker that asks for a job waits.
//  2. Jobs in progress have Options.Drain to end. The workers of this process then put
//     their unfinished jobs back into the queue. A worker in another process keeps its job
//     until its lease ends.
//  3. Runtimes are closed: their processes end, and the services record how. Containers
//     keep running. Clients that read a log, a stream or a result have a quarter of a
//     second to read the rest.
//  4. Waiting requests are answered: runsync with the job's current state, a stream poll
//     without chunks, a log with its end.
//  5. Listeners are closed when all requests are answered, at most a second later.
//  6. Services stop, and then the stores are closed, after a second also if a service still
//     waits for its store.
//
// Then Run returns nil. If no job needs longer, the shutdown takes well under a second.
// Otherwise it takes at most Options.Drain and three seconds.
package server
