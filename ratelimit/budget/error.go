package budget

import (
	"fmt"

	"github.com/podyard/podyard/problem"
)

// An Error refuses what would go over a budget; nothing was changed. Its kind is
// problem.TooManyRequests, and its text is for the user.
type Error struct {
	Budget Budget
	Limit  int64
	Used   int64 // before the refused request
	Asked  int64 // by the refused request
	// Short says that Limit is lower than usual, because the disk of the server is nearly full.
	Short bool
}

// Error says what is full, how full, and what makes room.
func (e *Error) Error() string {
	r := rows[e.Budget]
	if e.Short {
		return fmt.Sprintf("the disk of the server is nearly full, and the budget %s is %d %s until there is room: %d are used, and this needs %d more: %s", r.Name, e.Limit, r.Unit, e.Used, e.Asked, r.Frees)
	}
	return fmt.Sprintf("the budget %s is full: %d of %d %s are used, and this needs %d more: %s", r.Name, e.Used, e.Limit, r.Unit, e.Asked, r.Frees)
}

// Is reports whether target is an equal Error, for errors.Is.
func (e *Error) Is(target error) bool {
	other, ok := target.(*Error)
	return ok && *other == *e
}

// RetryAfter is how many seconds to wait; 0: waiting does not help.
func (e *Error) RetryAfter() int {
	if e.Asked > e.Limit {
		return 0
	}
	return rows[e.Budget].Wait
}

// Unwrap returns the problem that a client sees.
func (e *Error) Unwrap() error { return problem.New(problem.TooManyRequests, e.Error()) }
