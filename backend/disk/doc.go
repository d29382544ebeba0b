// Package disk keeps everything in one directory, in one Pebble database: pods, volumes,
// templates, SSH keys, billing, registries, endpoints, jobs, their chunks and webhooks.
// What a call has answered survives the end of the process and of the power.
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
//
// # What is damaged
//
// [Store.Check] finds every record that its checksum refuses. The store itself meets one
// when it reads it, twice before it believes it, and then:
//
//   - The input of a queued job, its webhook or what only workers see of it: the job can be
//     given to nobody. Whoever comes upon it, a claim or a Get, ends it as FAILED, durably
//     and with its webhook (serverless.OpDamage), and the claim gives another job instead.
//   - The same of a job that runs or has ended: it is left out of what is read. The job goes
//     on, and fails if it comes back to the queue.
//   - An output: reading the job answers serverless.ErrDamaged, a 503. The job is listed, and
//     can be retried and cancelled; its webhook is not sent, and the log of its attempts says
//     why.
//   - A chunk: the stream is handed out up to it, and answers serverless.ErrDamaged from
//     there. The job and its output have nothing to do with it.
//   - The entry of a webhook on its way: it is not sent, the log says so, and it is read
//     again whenever a lease of it is over. Other webhooks are sent.
//   - What opening reads, which is everything but payloads and the log of webhooks: the
//     store does not open. A backup has it ([Restore]).
//
// No job, pod or webhook but the one that is damaged notices. A read that fails without
// damage, of a disk that is away, changes nothing: it is an error, and made again.
package disk
