// Package shard spreads the jobs of endpoints over several queues of any kind, such as several
// databases. All jobs of an endpoint are in one queue, its shard. Several servers may use the same
// shards.
//
// # Where an endpoint is
//
// The first job of an endpoint, or the first worker that asks for one, pins the endpoint: a record
// in the control store says which shard has it. Rendezvous hashing chooses the shard among those
// that are open and answer. A pin changes only by Move. So another shard gets new endpoints and
// moves nothing by itself, and the order of the shards in Options has no meaning.
//
// Every server has all pins in memory. It reads their changes once a second, and when it is asked
// for an endpoint that it does not know. A call of an endpoint therefore costs what it costs
// without this package.
//
// # How an endpoint moves
//
//  1. Hold: the pin says that a move begins. New jobs of the endpoint wait until every server has
//     seen that and its submits that were under way have ended: about a second. Claims, reports and
//     reads go on. A server that does not answer any more delays it by up to 15 seconds.
//  2. Drain: new jobs go to the new shard. The jobs that are there stay on the old one, which is
//     asked too: workers get its jobs first, reads and reports look at the new shard and then at
//     the old one, counts are sums, listings have the jobs of the new shard before those of the
//     old one.
//  3. The end: the old shard has no job and no dead letter of the endpoint any more, and 24 hours
//     have passed, so that it has no Idempotency-Key that counts.
//
// A job id and an Idempotency-Key are checked on both shards during a drain. Limits of running jobs
// are kept: what is unfinished on the old shard lowers the limits for the new one, for every user and
// key as for the one that has most there, so during a drain there may be fewer jobs at work than
// the limits allow. State.Seq of a job on the new shard is greater than that of every job on the old one.
// Turns of owners and keys begin anew. If the server that moves an endpoint dies, another one goes
// on in Run. If the old shard fails during the hold, the endpoint stays where it was.
//
// # Failures
//
// A shard that does not answer affects its endpoints only: their calls return its error, with its
// name. What concerns all shards, such as Expire, Deliveries and Watch, leaves it out, and asks it
// again after a second; it returns an error if no shard answers. Health says which shards fail.
// Without the control store everything goes on for 14 seconds. After that, until it is back, no
// new jobs are taken, and a job that is not found is reported as unavailable.
//
// # What is different from one queue
//
//   - Jobs of one Enqueue that are on several shards are not added in one commit: if one shard
//     refuses, those that another one has added are deleted again.
//   - Two requests with one Idempotency-Key for endpoints on two shards, at two servers at the same
//     instant, may both succeed. FindKey asks all shards.
//   - A unique key (queue.Unique) is one of a shard: while an endpoint is drained, a job on its new shard
//     may have the key of one on the old.
//   - Deliveries are in the order in which they are due on each shard, not over all.
//   - Tokens have the number of their shard in bits 53 to 62.
//   - Budgets of stored jobs hold over all shards for what one server submits. What other servers
//     submit counts a second later. What workers report is refused by what a user has on the shard of
//     the job alone.
package shard
