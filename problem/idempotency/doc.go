// Package idempotency makes it safe to repeat a request that creates something
// (docs/decisions.md 38). A client sends a key of its own choice with the request. If the
// client does not get the answer, it sends the request again with the same key, and the
// service returns what the first request created.
//
// A store writes the [Record] of a key in the same commit as what the request created. So
// there is never one without the other, also after a crash. A database needs a table with a
// unique index on Record.Key and one transaction.
//
// A service calls [Do] around a creation. Do finds the record of an earlier request, refuses
// another request with the same key, and refuses a second request while the first one is
// under way.
package idempotency
