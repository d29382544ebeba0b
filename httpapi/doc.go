// Package httpapi serves podyard over HTTP. It has the control API (pods, volumes,
// templates, SSH keys, billing, registries, catalog, endpoints), the jobs API with the
// worker protocol, and the legacy reset. Each is an http.Handler that can be mounted
// anywhere, under a prefix too, alone or together with the others.
//
// A handler decodes, calls a service and encodes; the rules are in the services. This
// package has the wire: keys and scopes, quotas and rates, sizes, strict decoding,
// problem documents, the form of every answer.
//
// One table has every operation: its name, methods and path, the scope that it needs,
// and how it is limited. The routes are made from the table, so nothing else can be
// served. [Operations] returns it to programs that describe or count requests.
//
// Requests are checked in this order (docs/decisions.md 8): route (404, 405), key
// (401), quota (429), scope (403), existence (404), rate (429), media type, size and
// arrival of the body (415, 413, 408), syntax (400), schema (422), rules (400), state
// (409), capacity (400).
//
// # Additions
//
// The hosted service does not have these operations. They take the scope
// endpoints:read, and redeliver takes endpoints:write.
//
//   - GET /v2/serverless/{id}/decisions lists what the scaler decided lately, newest
//     first: the time (at), how many workers it wants, how many it starts, which ones
//     it stops and drains, the reason in words, and when it looks again (next, or
//     null).
//   - GET /v2/serverless/{id}/decisions?jobId={job} answers {"why":"..."}: what one of
//     the caller's jobs waits for, in words for people. The text names the workers
//     there are, the scaler's reason, and how the last worker ended if it ended by
//     itself. For a job that has a worker or has ended, the text says so. A job of
//     another user is a 404.
//   - GET /v2/serverless/{id}/deliveries/{job} lists the attempts to deliver the
//     webhook of a job. POST .../redeliver sends it again.
//   - GET /v2/serverless/{id}/deliveries lists the webhooks of the jobs that are kept.
//   - DELETE /v2/serverless/{id}/workers/{workerId} ends a worker after its jobs. It takes
//     endpoints:write.
//
// # Serving
//
// Nothing listens here: hand the handler to a server of your own. Give that server a
// ReadHeaderTimeout and no WriteTimeout, because several operations hold a request for
// minutes. Options.BodyTimeout limits the time in which a body must arrive. A
// ReadTimeout would end held requests, too.
package httpapi
