package joblog

import (
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// Errors of stores. Test for them with errors.Is.
var (
	ErrNotFound = problem.New(problem.NotFound, "the job has no log")
	ErrExists   = problem.New(problem.Conflict, "the job has a log")
)

// A Store keeps logs; lists are without their lines. Update also returns a *budget.Error if the owner
// has no room for the log. Package joblogtest has its rules.
type Store interface {
	idempotency.Records[Log]
}
