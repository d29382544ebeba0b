// Package events keeps what has happened to the jobs and workers of endpoints, for a short
// time, so that readers can follow it (docs/decisions.md 43).
//
// A [Log] gets hints of a queue ([queue.Event]) and reads the state of the job that each of
// them names. A queue sends hints after its commit, so readers see only what is durable. Nothing
// is kept of an endpoint that nobody reads: its feed begins with the first reader, and ends a
// while after the last one.
//
// Readers pull, each at its own pace. One that is too slow is cut off; nobody waits for it.
package events
