// Package joblog keeps what jobs print: the lines that a worker prints with the id of a job
// (docs/decisions.md 63). A Service buffers lines and writes the newest of each job to a Store, at most
// once a second. It knows workers and the queue only by what it is told.
package joblog
