// Package audit keeps what was refused and what was changed over the interface, one JSON
// object a line (docs/decisions.md 35).
//
// A [Log] is files in a directory, a [Memory] is for programs that keep nothing. Both take
// [Record]s from the handlers of httpapi, many at a time, and give the newest ones back.
//
// What cannot be kept never stops a request: a failed write is logged once, and after the
// next line that can be written another counts what is missing. Refusals are bounded for each address and in
// all, because whoever has no key must not fill a disk. They have files of their own, so that
// a flood of them does not push changes out.
package audit
