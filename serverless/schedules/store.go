package schedules

import (
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// Errors of schedules. Test for them with errors.Is.
var (
	ErrNotFound = problem.New(problem.NotFound, "schedule not found")
	ErrExists   = problem.New(problem.Conflict, "schedule id is taken")
)

// A Store keeps schedules. Update does not change Endpoint. Package schedulestest has its rules.
type Store interface {
	idempotency.Records[Schedule]
}
