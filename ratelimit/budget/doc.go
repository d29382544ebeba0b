// Package budget has the limits of what one user may hold at once: jobs and their bytes,
// records, keys, and what requests in flight take (docs/decisions.md 37).
//
// [Limits] has the numbers, and a [Set] has the Limits of every user. The code that counts asks
// the Set for the Limits of a user, and returns an [Error] for a request that would exceed one.
// A store counts in its
// own atomic write, so that its counts hold over restarts and for every server that shares the
// store. What is counted by one process only has [Row.Process].
//
// The zero value of Limits and a nil Set limit nothing.
package budget
