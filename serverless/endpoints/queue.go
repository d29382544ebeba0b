package endpoints

import "time"

// QueueSettings are the settings of an endpoint's queue (docs/decisions.md 40). They are those of a
// job when it is submitted.
type QueueSettings struct {
	// DeadLetter is how long a copy of a job that failed for good is kept: 0 for none, at most
	// queue.MaxDeadLetter.
	DeadLetter time.Duration `json:",omitzero"`
}
