// Package disk keeps everything in one directory, in one Pebble database: pods,
// volumes, templates, SSH keys, billing, registries, endpoints, jobs, their chunks and
// webhooks. What a call has answered survives the end of the process and the loss of
// power.
//
//   - The disk has the truth; memory has a small index. Payloads are read when they are
//     asked for.
//   - A change is reserved under a lock, committed outside of it, and published under
//     it: nothing is seen before it is durable. Callers that come at the same time
//     share a sync. Claims and renewals are written without one.
//   - Every record carries a checksum over its key and value, beside the checksums of
//     the database. A record that does not match its checksum is an error and never an
//     answer.
//   - A write or a sync that fails ends the use of the database: nothing is written any
//     more, and every call answers problem.Unavailable. [Store.Recover], which
//     [Store.Run] calls, then opens the directory again, from what is on disk.
//   - New work is refused before the disk is full.
//
// # Damaged files
//
// A table of the database has a parity file beside it. A block of the table that does not
// match its checksum is restored from that file when a caller, a compaction or the opening of
// the store reads it, and nothing is lost. One of 16 to 64 parts of 4 KiB can be restored from
// the others. Neighbouring parts belong to different groups, so a damaged stretch of 64 KiB of
// a large table is restored, too.
//
// A log of commits, or of tables (a manifest), has a mirror beside it. The opening restores a
// log from its mirror, also one that is missing, or that is damaged in other places than its
// mirror, and flips back a single bit that was flipped in both. A log that cannot be restored is
// refused: the database alone would take the damage for the end of the log and silently forget
// what comes after it. [Repair] writes it anew. Damage of the last records cannot be told from
// a write that power has interrupted.
//
// A marker that is missing is put back. The options that the database writes for itself are not
// needed. A manifest that cannot be restored is refused, and [Repair] makes the database anew of
// its tables and logs.
//
// A part of a table that cannot be restored is isolated when the store is opened, and so is a
// table that is missing. A running store that reads such a part fails, and [Store.Recover] opens
// it again. The keys of the part are taken out of the database. An older value of such a key, in
// another table, may be outdated and is given up, too; a newer value stays. So no damage of a
// table keeps the store from opening, or a compaction from going on.
//
// While a record of a kind is lost, no caller is told that a record of that kind does not exist:
// the answer is ErrDamaged, a list ends with that error, and nothing is claimed that a lost pod
// may have. The counts of an endpoint are without lost jobs. [Check] names what is lost. [Repair]
// names and drops it: from then on it does not exist.
//
// # Damaged records
//
// [Check] and [Store.Check] find every record that does not match its checksum. In
// operation the store meets such a record when it reads it. It reads twice before it believes the
// damage, and then:
//
//   - The input of a queued job, its webhook, or what only workers see of it: no worker
//     can have the job. Whoever meets it, a claim or a Get, ends it as FAILED, durably
//     and with its webhook (queue.OpDamage), and the claim gives another job instead.
//   - The same of a job that runs or has ended: it is left out of what is read. The job
//     goes on, and fails if it comes back to the queue.
//   - An output: reading the job answers serverless.ErrDamaged, a 503. The job is
//     listed, and can be retried and cancelled. Its webhook is not sent, and the log of
//     its attempts says why.
//   - A chunk: the stream is handed out up to it, and answers serverless.ErrDamaged
//     from there. The job and its output are not affected.
//   - The entry of a webhook on its way: the webhook is not sent, the log says so, and
//     the entry is read again whenever a lease of it is over. Other webhooks are sent.
//   - The state of a job, a pod, an endpoint or another record that memory has, too: it
//     is lost, as above.
//   - A number that only grows, of tokens or jobs: a number beyond all that are in use
//     replaces it.
//
// Only the damaged job, pod or webhook is affected. A read that fails without damage,
// of a disk that is away, changes nothing: it is an error, and can be repeated.
package disk
