package registries

import (
	"cmp"
	"time"

	"github.com/podyard/podyard/internal/secret"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Registry is what a user sees of a stored credential.
type Registry struct {
	ID      string // 14 lower-case letters and digits
	Owner   string // the user whose key made it
	Name    string
	Created time.Time
}

// Compare orders registries as lists do: by Created, and then by ID.
func Compare(a, b Registry) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// A Credential logs in to a registry. It prints as [redacted]: convert its fields where
// they are used.
type Credential struct {
	Username Secret
	Password Secret
}

// A Secret prints as [redacted]. Convert it to a string where it is used.
type Secret = secret.Text

// What a service and its store answer.
var (
	ErrNotFound = problem.New(problem.NotFound, "registry not found")
	ErrExists   = problem.New(problem.Conflict, "registry id is taken")
	ErrInUse    = problem.New(problem.BadRequest, "registry is in use by a pod")
)

// A CreateRequest is the body of a create. All three are required and not empty.
type CreateRequest struct {
	Name     string
	Username Secret
	Password Secret
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request

	// Violations are those the decoder found; the rules add theirs, and the service reports
	// all of them at once.
	Violations problem.Violations
}

// Fields are the documented fields of a CreateRequest, in order.
func Fields() []string { return []string{"name", "username", "password"} }

func (r *CreateRequest) check() error {
	for _, f := range []struct{ path, value string }{
		{"/name", r.Name},
		{"/username", string(r.Username)},
		{"/password", string(r.Password)},
	} {
		if f.value == "" {
			r.Violations.Add(problem.Invalid, f.path, "must have at least 1 character")
		}
	}
	return r.Violations.Err(Fields())
}

// Holding is what a credential takes of its owner's budgets (docs/decisions.md 37).
func (r *Registry) Holding() budget.Holding {
	return budget.Holding{User: r.Owner, Of: [2]budget.Amount{{Budget: budget.Registries, N: 1}}}
}
