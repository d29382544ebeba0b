package ratelimit

import "time"

// An Operation is an operation with a limit (docs/interface.md 8.3). The
// zero value is any other operation, which has no limit.
type Operation uint8

// The operations of the jobs API that have limits. A wait for a status counts as Status.
const (
	Unlimited Operation = iota
	RunSync
	Run
	Status
	Stream
	Cancel
	PurgeQueue
	OpenAI
	Requests
	Schedules // what is done with schedules, all together
	Actions
	Events
	Batches    // what is done with batches, all together
	operations // number of operations
)

// Period is the time in which an empty bucket fills.
const Period = 10 * time.Second

// A Limit is the limit of one operation.
type Limit struct {
	Operation  Operation
	Name       string // in the headers
	Requests   int    // per Period
	Concurrent int    // requests at once; 0 is no limit
}

var limits = [operations]Limit{
	RunSync:    {RunSync, "runsync", 2000, 400},
	Run:        {Run, "run", 1000, 200},
	Status:     {Status, "status", 2000, 400},
	Stream:     {Stream, "stream", 2000, 400},
	Cancel:     {Cancel, "cancel", 100, 20},
	PurgeQueue: {PurgeQueue, "purge-queue", 2, 0},
	OpenAI:     {OpenAI, "openai", 2000, 400},
	Requests:   {Requests, "requests", 10, 2},
	Schedules:  {Schedules, "schedules", 100, 20},
	Actions:    {Actions, "actions", 10, 2},
	Events:     {Events, "events", 20, 20},
	Batches:    {Batches, "batch", 100, 20},
}

// Limits returns the limits of docs/interface.md 8.3, one for each limited operation.
func Limits() []Limit {
	rows := limits
	return rows[Unlimited+1:]
}

// String returns the name of o in headers.
func (o Operation) String() string {
	if o == Unlimited || o >= operations {
		return "unlimited"
	}
	return limits[o].Name
}
