package ratelimit

import "time"

// An Operation is one that section 8.3 of the interface limits. The zero value is any
// other: it has no limit.
type Operation uint8

// The operations of the jobs API that have limits. Waiting for a status counts as Status.
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
	operations // how many there are
)

// Period is the time over which a bucket is refilled.
const Period = 10 * time.Second

// A Limit is a row of the table of section 8.3.
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
}

// Limits is the table of section 8.3, one row for each limited operation.
func Limits() []Limit {
	rows := limits
	return rows[Unlimited+1:]
}

// String is the name of o as headers have it.
func (o Operation) String() string {
	if o == Unlimited || o >= operations {
		return "unlimited"
	}
	return limits[o].Name
}
