// Package server is the whole service as one value: services on the stores and hosts that a
// program chooses, the handlers on them, and one Run that starts everything and ends it in
// the right order.
//
// New takes stores, hosts and an authenticator; it imports none of their backends. A program
// that wants all backends from a configuration file uses package config beside this one.
//
// # Two ways to listen
//
// The library opens no listener. A program gives the listeners that it has opened to Run,
// each with a handler, which may be a mux with routes of its own:
//
//	mux.Handle("/v2/", srv.Handler())
//	err := srv.Run(ctx, server.On(listener, mux))
//
// Or the program mounts Handler in an http.Server of its own and calls Run without
// listeners. Then the program shuts its http.Server down after Run has returned, and not
// before: until then workers in other processes bring their results.
//
//	err := srv.Run(ctx)
//	err = errors.Join(err, own.Shutdown(context.WithoutCancel(ctx)))
//
// The context of Run must not be the BaseContext of that http.Server, because requests would
// end before the jobs that they wait for. A request that is held ends when Run says so: the
// handlers see to that by themselves.
//
// # The end
//
// When the context of Run ends, GET /readyz answers 503, and after Options.DrainWait the
// service ends in this order, and nothing is lost:
//
//  1. New work is refused with 503 and Retry-After, and no worker is started. Reading goes
//     on, and so does what workers need to finish the jobs that they have. A worker that
//     asks for a job waits.
//  2. Jobs that are in progress have Options.Drain to end. What does not end in time is
//     handed back to the queue by the workers of this process; a worker elsewhere keeps its
//     job until its lease ends.
//  3. Runtimes are closed: processes end, and the services note how. Containers go on. Who
//     reads a log, a stream or a result has a quarter of a second to read the rest.
//  4. Requests that are still held answer with what there is: a runsync with its job as it
//     is, a poll without chunks, a log with its end.
//  5. Listeners are closed when everything was answered, at most a second later.
//  6. Services end, and then the stores are closed.
//
// Run returns nil then. Without a job that needs longer, the end takes well under a second;
// with one, Options.Drain and three seconds at most.
package server
