// Package httpapi serves podyard over HTTP: the control API (pods, volumes, templates,
// SSH keys, billing, registries, catalog, endpoints), the jobs API with the worker
// protocol, and the legacy reset, each an http.Handler to be mounted anywhere, under a
// prefix too, alone or together.
//
// A handler decodes, calls a service and encodes; the rules are in the services. What is
// here is the wire: keys and scopes, quotas and rates, sizes, strict decoding, problem
// documents, the form of every answer.
//
// Requests are checked in this order: route (404, 405), key (401), quota (429), scope
// (403), existence (404), rate (429), media type, size and arrival of the body (415, 413,
// 408), syntax (400), schema (422), rules (400), state (409), capacity (400).
//
// # Beyond the interface
//
// An endpoint has operations of ours, for the scopes that its other reads have (redeliver:
// its writes):
//
//   - GET /v2/serverless/{id}/decisions is what the scaler decided of late, newest first: at,
//     how many workers are wanted, how many to start, which to stop and to drain, the reason
//     in words, and when it looks again (next, or null).
//   - GET /v2/serverless/{id}/decisions?jobId={job} is {"why":"..."}: what one of the caller's
//     jobs waits for, in words for people and not for programs: the workers there are, the
//     scaler's reason, and how the last worker ended if it did so by itself. Of a job that has
//     a worker or has ended it says that; another user's job is a 404. It is the one place
//     that says so: the job itself has its status only.
//   - GET /v2/serverless/{id}/deliveries/{job} is the attempts to deliver a job's webhook, and
//     POST .../redeliver makes another one.
//
// # Serving
//
// Nothing listens: hand the handler to a server of your own. Give that server a
// ReadHeaderTimeout and no WriteTimeout, because several operations hold a request for
// minutes. The time that a body may take is Options.BodyTimeout; a ReadTimeout would end
// the requests that are held, too.
package httpapi
