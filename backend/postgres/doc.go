// Package postgres stores everything in one PostgreSQL database, in its schema podyard. An
// acknowledged change is as durable as the database makes a commit.
//
//   - A change is one transaction at READ COMMITTED, and nothing is visible before its commit.
//     A record that several callers change at once has a version: a change that was made on
//     an old version is made again on the new one.
//   - [Open] brings the schema up to date. Several servers may start at the same time.
//   - Ids and texts are stored as bytes, because a text of PostgreSQL has neither NUL nor
//     invalid UTF-8.
//   - Many calls of the queue at the same time share a transaction. Moves of a job lock its row, and
//     queue.State.Apply decides them. Several servers claim the jobs of an endpoint at the same
//     time if all are of one owner, key and priority and no limit is set; otherwise one after
//     another, so that the order is exact and no limit is ever exceeded.
//   - When the database cannot be reached, calls return problem.Unavailable. After a restart
//     of the database they work again without further steps. If a connection breaks during a
//     commit, the outcome is unknown, and the error is [ErrUnknown].
package postgres
