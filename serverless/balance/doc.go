// Package balance chooses the workers of load-balancing endpoints for requests
// (docs/decisions.md 44). It knows no HTTP: package httpapi sends the requests.
//
// # Rotation
//
// A worker is in rotation while its last health check succeeded. A check answers with a
// status: 200 is healthy, 204 is starting, everything else is unhealthy. A worker that could
// not be reached leaves the rotation until its next check.
//
// # Choice
//
// A request gets the worker with the fewest requests in flight, and of several the one that
// has waited longest for a request. Without a worker in rotation a request waits. Requests
// that wait are served in their order.
//
// # Draining
//
// A worker that will be stopped gets no new requests. Its requests in flight may continue for
// DrainTime; then they are cancelled. The scaler stops a worker only when it has no request.
package balance
