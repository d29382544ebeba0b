// Package disk keeps everything in one directory, in one Pebble database: pods,
// registries, endpoints, jobs, their chunks and webhooks. What a call has answered
// survives the end of the process and of the power.
//
//   - Truth is on disk; memory holds a small index. Payloads are read when asked for.
//   - A change is reserved under a lock, committed outside of it, published under it:
//     nothing is seen before it is durable. Callers that come at the same time share a
//     sync. Claims and renewals are written without one.
//   - Every record carries a checksum over its key and value, besides those of the
//     database. What a checksum refuses is an error, never an answer.
//   - A write or a sync that fails ends the use of the database: nothing is written any
//     more, every call answers problem.Unavailable, and [Store.Recover] (which
//     [Store.Run] calls) opens the directory again, from what is on disk.
//   - New work is refused before the disk is full.
package disk
