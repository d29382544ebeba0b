// Package postgres stores everything in one PostgreSQL database, in its schema podyard. An
// acknowledged change is as durable as the database makes a commit.
//
//   - A change is one transaction at READ COMMITTED, and nothing is visible before its commit.
//     A record that several callers change at once has a version: a change that was made on
//     an old version is made again on the new one.
//   - [Open] brings the schema up to date. Several servers may start at the same time.
//   - Ids and texts are stored as bytes, because a text of PostgreSQL has neither NUL nor
//     invalid UTF-8.
//   - When the database cannot be reached, calls return problem.Unavailable. After a restart
//     of the database they work again without further steps. If a connection breaks during a
//     commit, the outcome is unknown, and the error is [ErrUnknown].
package postgres
