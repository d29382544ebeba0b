// Package disk stores everything in one directory, in one Pebble database: pods, volumes,
// templates, SSH keys, billing, registries, endpoints, jobs, their chunks and webhooks. An
// acknowledged change survives the end of the process and a power failure, except claims and
// lease renewals, which are not synced. These survive the end of the process when they are older
// than 100 ms.
//
//   - Memory contains a small index. Payloads are only on disk, and are read when a caller
//     needs them.
//   - A change is reserved under a lock, committed without the lock, and published under the
//     lock. So no change is visible before it is durable. Concurrent callers share a sync.
//   - Claims, renewals, chunks of streams and reads of them need no sync. They are visible at
//     once, and written in the background, in order with all later changes of their jobs.
//   - A job whose caller waits for its end (queue.DurableAtEnd) is written when somebody but a
//     worker sees it, or with its end.
//   - Every record has a checksum over its key and value, besides the checksums of the
//     database. A record that does not match its checksum is an error and is never returned.
//   - After a failed write or sync the database is not used any more: nothing is written, and
//     every call returns problem.Unavailable. [Store.Run] then calls [Store.Recover], which
//     opens the directory again from what is on disk.
//   - New work is refused before the disk is full, and before it has no inodes left. What finds no
//     room all the same waits for it while [Store.Run] runs, and the store is read meanwhile. A
//     reserve is given up for that and for deletions.
//
// # Damaged files
//
// The store keeps, names and restores. It does not heal: what a disk has damaged is lost, unless
// there is a backup (see [Store.Backup]) or a file system with checksums and copies below.
//
// Opening the store isolates a part of a table that does not match its checksum, and a table that is
// missing. A running store that reads such a part fails, and [Store.Recover] opens it again. The keys
// of the part are removed from the database. Another table may have an older value of such a key.
// That value may be outdated, so it is removed, too; a newer value stays. So a damaged table prevents
// neither the opening of the store nor a compaction.
//
// A log of commits, or a log of tables (a manifest), that is damaged before its end keeps the store
// from opening: the database alone would take the damage for the end of the log and silently drop the
// records after it. [Repair] rewrites the log without what cannot be read, and rebuilds the database
// from its tables and logs if the manifest is damaged or missing. Damage to the last records of the
// log that was in use at a crash, or of a manifest, looks the same as a write that was interrupted by
// a power failure: they are lost, and nothing says so. Nor is it noticed when the newest log is
// missing as a whole.
//
// The options files of the database are not needed.
//
// While a record of a kind is lost, no call answers that a record of that kind does not exist:
// it returns ErrDamaged instead. A list ends with that error, and resources that a lost pod
// may have claimed cannot be claimed. The counts of an endpoint do not include lost jobs.
// [Check] lists what is lost. [Repair] lists and drops it; from then on it does not exist.
//
// # Damaged records
//
// [Check] and [Store.Check] find every record that does not match its checksum. A running
// store finds such a record when it reads it. It reads the record twice before it treats it as
// damaged, and then:
//
//   - The input of a queued job, its webhook, or its data for workers only: no worker can run
//     the job. The call that finds the damage, a claim or a Get, ends the job as FAILED,
//     durably and with its webhook (queue.OpDamage). A claim returns another job instead.
//   - The same data of a running or ended job: it is left out of the answer. The job
//     continues, and fails if it returns to the queue.
//   - An output: reading the job returns serverless.ErrDamaged, a 503. The job is listed, and
//     can be retried and cancelled. Its webhook is not sent, and the log of its attempts says
//     why.
//   - A chunk: the stream is returned up to the chunk, and then returns serverless.ErrDamaged.
//     The job and its output are not affected.
//   - The entry of a pending webhook: the webhook is not sent, the log says so, and the entry
//     is read again whenever its lease has ended. Other webhooks are sent.
//   - An attempt in the log of a job: reading the log returns serverless.ErrDamaged. The job
//     continues.
//   - A dead letter has its state in memory too, and its payloads are those of its job.
//   - The state of a job, a pod, an endpoint or another record that is also in memory: it is
//     lost, as described above.
//   - A counter of tokens or jobs that only grows: it is set to a number larger than all that
//     are in use.
//
// Only the damaged job, pod or webhook is affected. A read that fails without damage, for
// example because the disk is disconnected, changes nothing: it returns an error and can be
// repeated.
package disk
