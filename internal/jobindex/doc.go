// Package jobindex keeps the jobs of a queue in memory, without their payloads: the states,
// the list of jobs of each endpoint, the order of claims, the deadlines and the counters. The
// time of an operation does not depend on the number of jobs. The records have no pointers, so a
// million jobs cost the garbage collector nothing.
//
// # The order of claims
//
// queue.Choose decides it. What is ready is kept in a tree, so that what it asks for is found
// without a search (docs/decisions.md 39):
//
//	endpoint (order):    heap of owners by turn
//	owner:               ten levels, one for each priority
//	level:               heap of lines by turn, heap of lines by their oldest job
//	line (one key):      list of jobs by Seq, heap of jobs that were queued again
//
// A claim takes the first owner, compares the oldest jobs of its levels, takes the first line of
// the highest one, and its oldest job. A change of a line costs the logarithm of the number of
// lines in its level, and that of the number of owners. An endpoint with one owner and no
// priorities and keys has one line: a claim takes the head of one list.
//
// The list of a line goes through the records, so a ready job costs no more memory than any
// other. Jobs that were queued again are older than the end of the list and are in a heap. A ref
// there to a job that has left is dropped when it is first.
//
// A heap has only lines and owners with a job that can be claimed under the rules of the
// endpoint. A job is counted as ready or running where its record says so (place), and the place
// follows the state in Commit, whatever the operation was. So each end of a job frees its place
// once. A key at its limit takes its lines, at most ten, out of the heaps, an owner at its limit
// itself. Rules are those of the last call; new limits look at every key of the endpoint once.
//
// A turn is found from the oldest job and the last claim, and not from the order of events. So it
// does not matter whether jobs past their ttl were deleted already, nor in which order lost jobs
// came back, and an index that was loaded goes on in almost the same order: it has forgotten the
// last claims only.
//
// # Listings
//
// The jobs of an endpoint are in a list of chunks of 512 in the order of Seq, and those of each
// owner in a list of their own as soon as there is a second owner. A chunk has a bitmap for each
// status, and a list counts its jobs by status, in the commit of each move. So a page of the jobs
// of one owner and some statuses is found without a look at other jobs, however many are left out
// before it. Jobs that are Gone, but not deleted yet, are the due ones of the wheel.
//
// The package decides nothing else; queue.State.Apply does. backend/memory and backend/disk use
// it.
package jobindex
