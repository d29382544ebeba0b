// Package fleet starts and stops the workers of endpoints. Decide computes how many workers
// an endpoint should have. A Fleet starts and stops worker processes. State is the state
// machine of a worker. A Scaler connects these.
//
// A backend implements Fleet. Package serverless creates the Scaler, over a queue, a store of
// endpoints and a registry of workers.
//
// The states of a worker:
//
//	requested --> launching --> starting --> idle <--> busy
//	    ^             |             |           |         |
//	    |             v             |           +-> draining
//	    +-------- throttled         |                 |
//	                                +--> stopping <---+   its process may still run
//	                                |        |
//	  failed, lost: it ended by itself       v
//	                      +-------------> ended --> gone
//
// Every state in which a process may run leads to failed or lost when the process ends by
// itself, and to ended when the process was asked to end. The jobs of a failed or lost worker
// count a delivery. The jobs of any other worker return to the queue without a counted
// delivery.
package fleet
