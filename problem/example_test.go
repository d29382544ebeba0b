package problem_test

import (
	"errors"
	"fmt"

	"github.com/podyard/podyard/problem"
)

// A domain says what is wrong and of which kind; httpapi makes a status of it.
func ExampleNew() {
	errNoPod := problem.New(problem.NotFound, "pod not found")
	err := fmt.Errorf("pods: stop %q: %w", "p1", errNoPod)
	fmt.Println(problem.KindOf(err).Status(), problem.Of(err).Detail, errors.Is(err, errNoPod))
	// Output: 404 pod not found true
}

// What is no problem.Error is a 500 that says nothing of the inside.
func ExampleOf() {
	d := problem.Of(errors.New("dial tcp 10.0.0.1:5432: connection refused"))
	fmt.Println(d.Status, d.Detail)
	// Output: 500 internal error
}

// Violations collects everything that is wrong with a request, in the documented order.
func ExampleViolations() {
	var v problem.Violations
	v.Add(problem.Invalid, "/disk", "must be at least %d", 1)
	v.Add(problem.Invalid, "/name", "is required")
	for _, s := range problem.Of(v.Err([]string{"name", "disk"})).Errors {
		fmt.Println(s)
	}
	// Output:
	// /name: is required
	// /disk: must be at least 1
}
