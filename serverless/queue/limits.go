package queue

import "time"

// Limits and defaults of a job (docs/interface.md 8).
const (
	// An execution timeout bounds one run of a job.
	DefaultExecTimeout = 600_000 * time.Millisecond
	MinExecTimeout     = 5 * time.Second
	MaxExecTimeout     = 7 * 24 * time.Hour

	// A ttl counts from the submission of a job.
	DefaultTTL = 24 * time.Hour
	MinTTL     = 10 * time.Second
	MaxTTL     = 7 * 24 * time.Hour
	// MinStatusTTL is the smallest ttl that a status request may set.
	MinStatusTTL = time.Second

	// A priority decides which jobs of one owner are claimed first: those with the highest.
	DefaultPriority = 5
	MaxPriority     = 9
	// DefaultAgeing is how long a job waits for each priority that it rises.
	DefaultAgeing = 60_000 * time.Millisecond
	// MaxKey is the longest key of a job in characters.
	MaxKey = 128

	// A retry policy says how often a job runs, and bounds the time between two attempts.
	MaxAttempts   = 20
	MaxFactor     = 10
	DefaultFactor = 2
	DefaultJitter = 0.5
	DefaultDelay  = time.Second
	// DefaultMaxDelay is the longest time between two attempts if the policy has none.
	DefaultMaxDelay = 300 * time.Second

	// MaxDeadLetters is how many dead letters an owner has on an endpoint at most, MaxDeadLetter
	// how long one is kept at most.
	MaxDeadLetters = 1000
	MaxDeadLetter  = 30 * 24 * time.Hour

	// LoserWait is how long only other workers get a job that its worker has lost. It is the default
	// length of a lease.
	LoserWait = 30 * time.Second

	// MinSnooze is the shortest time for which a worker puts a job off.
	MinSnooze = time.Second

	// A wait bounds how long a client waits for the result of a job.
	DefaultWait = 90 * time.Second
	MinWait     = time.Second
	MaxWait     = 300 * time.Second

	// The result of run is kept for RunRetention. The result of runsync is kept for the
	// requested wait, but at least MinSyncRetention and at most MaxSyncRetention.
	RunRetention     = 30 * time.Minute
	MinSyncRetention = time.Minute
	MaxSyncRetention = 5 * time.Minute
	// A retain says how long a result is kept instead, from the end of the job and also past its ttl.
	MinRetain = time.Minute
	MaxRetain = 30 * 24 * time.Hour

	// MaxStartAfter is how far ahead a job may begin.
	MaxStartAfter = 366 * 24 * time.Hour
)
