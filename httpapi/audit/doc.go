// Package audit keeps what was refused and what was changed over the interface, one JSON
// object a line (docs/decisions.md 35).
//
// A [Log] is files in a directory, a [Memory] is for programs that keep nothing. Both take
// [Record]s from the handlers of httpapi, many at a time, and give the newest ones back.
//
// A failed write never stops a request. It is logged once, and the next line that can be
// written is followed by one with the number of missing lines. Refusals are limited for each
// address and in all, so that a client without a key cannot fill the disk. They have files of
// their own, so that many refusals do not push out changes.
package audit
