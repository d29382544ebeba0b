// Package batches has batches of jobs: many requests that are collected, started together and
// counted (docs/decisions.md 41).
//
// A [Service] keeps batches in a [Store] and their requests as jobs in a [Queue].
// serverless.Service has one and runs it; a program uses serverless.Options.Batches and
// serverless.Service.Batches.
//
// # Requests are jobs
//
// A request is a job whose id is made of the batch and the request's number. In a draft the job
// is delayed without end. A batch is finalized by one write of its record, and its jobs are
// started afterwards, in steps: whoever finds a finalized batch with requests that were not
// started goes on with them, also after a crash and on another server, because a job that was
// started is not started twice.
//
// # Counts
//
// The record has the outcome of each request, so the counts stay when the jobs are deleted. The
// events of the queue say which jobs have ended. What was not written at a crash is found again
// in the jobs, which are kept until the batch has ended.
package batches
