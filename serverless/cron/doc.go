// Package cron reads cron expressions and finds their instants in a time zone.
//
// An expression has five fields: minute (0-59), hour (0-23), day of the month (1-31), month
// (1-12 or JAN-DEC) and day of the week (0-7 or SUN-SAT, where 0 and 7 are Sunday). A field is
// a list of parts with commas. A part is *, a value, a range 1-5, or one of them with a step:
// */15, 1-31/2, or 5/15, which is 5-59/15 in the minute. Letter case does not matter.
//
// A day must match both day fields. But if neither of them has a *, it must match one of them:
// "0 9 1 * MON" is nine o'clock on every first of a month and on every Monday.
//
// # Changes of the clock
//
// Some local times do not exist, and others occur twice, when the offset of a zone changes. If
// minute and hour have neither * nor a step, an expression names local times, and each of them
// counts once (docs/decisions.md 42):
//
//   - Local times that are skipped fire once, at the end of the gap.
//   - A local time that is repeated fires once, at the first occurrence.
//
// Any other expression is a rhythm, where elapsed time counts: it fires whenever the clock on
// the wall matches. So "0 * * * *" fires every hour, also in an hour that is repeated, and
// there is nothing to make up for after a gap.
//
// The data of time zones is built into programs that use this package.
package cron
