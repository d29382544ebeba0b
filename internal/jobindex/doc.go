// Package jobindex keeps the jobs of a queue in memory, without their payloads: the states,
// the list of jobs of each endpoint, the deadlines and the counters. The time of an operation
// does not depend on the number of jobs. The memory has no pointers, so a million jobs cost
// the garbage collector nothing.
//
// The package decides nothing; queue.State.Apply does. backend/memory and backend/disk use
// it.
package jobindex
