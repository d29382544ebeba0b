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
//     queue.State.Apply decides them. Claims of an endpoint are made by one server at a time, so that the
//     order is exact and no limit is ever exceeded. The order is in rows, of which a claim reads the
//     first ones (see jobs_lines.go), so it costs the same whatever waits.
//   - When the database cannot be reached, calls return [ErrUnreachable], and when it refuses for now
//     what it may do later, [ErrNotNow]: in both cases nothing was changed. If a connection breaks
//     or is silent during a commit, the outcome is unknown, and the error is [ErrUnknown]. All three
//     are problem.Unavailable. Calls work again without further steps as soon as the database does.
//   - Each call has an end, because a connection may be silent for ever: see times. Connections that
//     are as old as one that is lost are replaced.
package postgres
