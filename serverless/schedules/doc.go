// Package schedules has jobs that start by the clock: cron expressions with time zones, and
// what happens when a job is still running, or when no server ran (docs/decisions.md 42).
//
// A [Service] keeps schedules in a [Store] and submits their jobs through [Jobs].
// serverless.Service has one and runs it; a program uses serverless.Options.Schedules and
// serverless.Service.Schedules.
//
// # Once for each instant
//
// An instant of a schedule is submitted first, and recorded in the schedule afterwards. The id
// of its job is made of the schedule and the instant, and a queue refuses an id that is taken.
// So whoever finds an instant that is not recorded submits it again without harm: a server
// after a crash, or another server with the same stores.
package schedules
