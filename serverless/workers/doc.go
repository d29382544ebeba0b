// Package workers has the registry of the workers of each endpoint: workers in this process,
// and workers that use the worker protocol. It records which jobs they hold, until when they
// count as alive, whether they are draining, and which jobs they must stop.
//
// A Registry is in memory and belongs to one process. It never changes a lease in the queue:
// methods that end or renew leases return the operations for the queue.
package workers
