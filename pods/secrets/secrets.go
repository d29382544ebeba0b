package secrets

import (
	"cmp"
	"crypto/sha256"
	"encoding/base32"
	"regexp"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/internal/secret"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Bounds of a secret.
const (
	MaxName        = 191        // characters
	MaxValue       = 16<<20 - 1 // bytes of UTF-8
	MaxDescription = 1<<16 - 1  // bytes of UTF-8
	reservedPrefix = "runpod"   // no name begins so, in any case
	overhead       = 1024       // bytes of a budget that each secret takes besides its texts
)

// What a service and its store answer.
var (
	ErrNotFound = problem.New(problem.NotFound, "secret not found")
	ErrExists   = problem.New(problem.Conflict, "a secret with this name exists")
)

// A Value prints as [redacted]. Convert it to a string where it is used.
type Value = secret.Text

// A Secret is a value with a name.
type Secret struct {
	ID          string // see IDOf
	Owner       string // the user whose key made it
	Name        string
	Description string // empty: none
	Created     time.Time
	// ValueSet is when the value was last set.
	ValueSet time.Time
	// Size is how many bytes the value has.
	Size  int
	Value Value `json:"-"` // lists do not have it
}

// Compare orders secrets as lists do: by Created, and then by ID.
func Compare(a, b Secret) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}

// Clone returns a copy that shares nothing that can be changed.
func (s Secret) Clone() Secret { return s }

// Listed returns s without its value.
func (s Secret) Listed() Secret {
	s.Value = ""
	return s
}

// Holding is what a secret takes of its owner's budgets (docs/decisions.md 37).
func (s *Secret) Holding() budget.Holding {
	return budget.Holding{User: s.Owner, Of: [2]budget.Amount{{Budget: budget.SecretBytes, N: int64(s.Size+len(s.Name)+len(s.Description)) + overhead}}}
}

// IDOf returns the id of the secret of owner with a name, whatever its case: 14 lower-case letters and
// digits.
func IDOf(owner, name string) string {
	sum := sha256.Sum256([]byte("podyard secret\x00" + owner + "\x00" + strings.ToLower(name)))
	return strings.ToLower(base32.StdEncoding.EncodeToString(sum[:]))[:14]
}

// A CreateRequest asks for a secret.
type CreateRequest struct {
	Name        string
	Value       Value
	Description *string

	// Violations are faults that a decoder found. They are reported together with the faults of
	// the values. A field has one fault at most.
	Violations problem.Violations
}

// An UpdateRequest changes a secret. A nil field changes nothing; an empty description is none.
type UpdateRequest struct {
	Value       *Value
	Description *string

	// Violations are faults that a decoder found, as in [CreateRequest].
	Violations problem.Violations
}

// Fields are the documented fields of requests, in order.
func Fields() []string { return []string{"name", "value", "description"} }

// NamePattern is what a name must match.
const NamePattern = `^[a-zA-Z_][a-zA-Z0-9_.\-/]*$`

var nameForm = regexp.MustCompile(NamePattern)

func (r *CreateRequest) check() error {
	faults := r.Violations
	switch {
	case r.Name == "" || len(r.Name) > MaxName:
		faults.Add(problem.Invalid, "/name", "must have 1 to %d characters", MaxName)
	case !nameForm.MatchString(r.Name):
		faults.Add(problem.Invalid, "/name", "must begin with a letter or _, and go on with letters, digits, _, ., - and /")
	case strings.HasPrefix(strings.ToLower(r.Name), reservedPrefix):
		faults.Add(problem.BadRequest, "/name", "must not begin with RUNPOD, in any case")
	}
	checkValue(&faults, r.Value)
	if r.Description != nil {
		checkDescription(&faults, *r.Description)
	}
	return faults.Err(Fields())
}

func (r *UpdateRequest) check() error {
	faults := r.Violations
	if r.Value != nil {
		checkValue(&faults, *r.Value)
	}
	if r.Description != nil {
		checkDescription(&faults, *r.Description)
	}
	if err := faults.Err(Fields()); err != nil {
		return err
	}
	if r.Value == nil && r.Description == nil {
		faults.Add(problem.Invalid, "", "the body must name at least one of value, description")
	}
	return faults.Err(Fields())
}

func checkValue(faults *problem.Violations, v Value) {
	switch {
	case v == "" || len(v) > MaxValue:
		faults.Add(problem.Invalid, "/value", "must have 1 to %d bytes of UTF-8", MaxValue)
	case !utf8.ValidString(string(v)):
		faults.Add(problem.Invalid, "/value", "must be valid UTF-8")
	case strings.ContainsRune(string(v), 0):
		faults.Add(problem.Invalid, "/value", "must not have the character NUL, which no variable can have")
	}
}

func checkDescription(faults *problem.Violations, d string) {
	if len(d) > MaxDescription {
		faults.Add(problem.Invalid, "/description", "must have at most %d bytes of UTF-8", MaxDescription)
	}
}
