package accounts

import (
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// The bounds of keys (docs/interface.md 8.5).
const (
	MaxKeys    = 100                // of a user
	MaxScopes  = 100                // of a key
	MaxScope   = 200                // bytes of a scope
	MaxUser    = 255                // bytes of the name of a user
	MaxOverlap = 7 * 24 * time.Hour // how long a rotated secret is accepted
)

// AllUsers is the name of no user: it stands for all of them.
const AllUsers = "*"

// A Caller is whoever asks for a change of keys: what its own key allows.
type Caller struct {
	User    string
	Scopes  []Permission
	Expires time.Time // the end of its key; zero: none
}

// Operator reports whether the caller has the scope operator.
func (c Caller) Operator() bool { return allow(c.Scopes, Permission{Area: AreaOperator}) }

// exceeds names the scopes that the caller cannot give. An operator gives all: whoever can
// rotate the key of everybody has every scope there is.
func (c Caller) exceeds(scopes []string) error {
	if c.Operator() {
		return nil
	}
	var faults []string
	for i, s := range scopes {
		if p, err := ParseScope(s); err != nil || !allow(c.Scopes, p) {
			faults = append(faults, "/scopes/"+strconv.Itoa(i)+": the key of this request does not have "+s)
		}
	}
	if faults == nil {
		return nil
	}
	return &problem.Error{Kind: problem.Forbidden, Detail: strings.Join(faults, "; "), Errors: faults}
}

// outlived refuses an end of a key that is later than the end of the caller's own; no end is the
// latest. Otherwise a key that ends could make, or rotate and so take over, one that goes on after
// it. This holds for operators too: a key that was given to somebody for a day is no more than that.
func (c Caller) outlived(expires time.Time) error {
	if c.Expires.IsZero() || !expires.IsZero() && !expires.After(c.Expires) {
		return nil
	}
	return problem.Newf(problem.Forbidden, "/expires: the key of this request ends at %s, and that one ends later", c.Expires.UTC().Format(time.RFC3339))
}

// makes reports whether a key with these scopes makes pods or endpoints, and is no operator's.
func makes(scopes []string) bool {
	has := permissions(scopes)
	return !allow(has, Permission{Area: AreaOperator}) &&
		(allow(has, Permission{Area: "pods", Level: Write}) || allow(has, Permission{Area: "endpoints", Level: Write}))
}

// A CreateRequest is the body of a create.
type CreateRequest struct {
	User    string // empty: the caller's. Another one needs an operator
	Scopes  []string
	Expires time.Time // zero: never
	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request

	// Violations are those the decoder found; the rules add theirs, and the service reports
	// all of them at once.
	Violations problem.Violations
}

// An UpdateRequest is the body of an update. What is nil stays.
type UpdateRequest struct {
	Scopes     []string
	Expires    *time.Time // zero: never
	Violations problem.Violations
}

// A RotateRequest is the body of a rotation.
type RotateRequest struct {
	// Overlap is how long the secret that is replaced is accepted, up to MaxOverlap.
	Overlap    time.Duration
	Violations problem.Violations
}

// Fields are the documented fields of requests, in order.
func Fields() []string { return []string{"user", "scopes", "expires", "overlap"} }

// check checks the request. known says that the user is there already.
func (r *CreateRequest) check(now time.Time, known bool) error {
	v := &r.Violations
	if r.User != "" {
		check := CheckUser
		if known {
			check = checkKnown
		}
		if err := check(r.User); err != nil {
			v.Add(problem.Invalid, "/user", "%v", err)
		}
	}
	if r.Scopes == nil {
		v.Add(problem.Invalid, "/scopes", "is required")
	} else {
		checkScopes(v, r.Scopes)
	}
	if !r.Expires.IsZero() {
		checkExpires(v, r.Expires, now)
	}
	return v.Err(Fields())
}

func (r *UpdateRequest) check(now time.Time) error {
	v := &r.Violations
	if r.Scopes != nil {
		checkScopes(v, r.Scopes)
	}
	if r.Expires != nil && !r.Expires.IsZero() {
		checkExpires(v, *r.Expires, now)
	}
	return v.Err(Fields())
}

func (r *RotateRequest) check() error {
	if r.Overlap < 0 || r.Overlap > MaxOverlap {
		r.Violations.Add(problem.Invalid, "/overlap", "must be from 0 to %d ms (7 days)", MaxOverlap.Milliseconds())
	}
	return r.Violations.Err(Fields())
}

func checkScopes(v *problem.Violations, scopes []string) {
	if n := len(scopes); n == 0 || n > MaxScopes {
		v.Add(problem.Invalid, "/scopes", "must have 1 to %d scopes", MaxScopes)
	}
	seen := map[string]bool{}
	for i, s := range scopes {
		place := "/scopes/" + strconv.Itoa(i)
		_, err := ParseScope(s)
		switch {
		case len(s) > MaxScope:
			v.Add(problem.Invalid, place, "must have at most %d bytes", MaxScope)
		case err != nil:
			v.Add(problem.Invalid, place, "%v", err)
		case seen[s]:
			v.Add(problem.Invalid, place, "is there twice")
		}
		seen[s] = true
	}
}

func checkExpires(v *problem.Violations, expires, now time.Time) {
	if !now.Before(expires) {
		v.Add(problem.Invalid, "/expires", "must be in the future")
	}
	if expires.UTC().Year() > 9999 {
		v.Add(problem.Invalid, "/expires", "must be before the year 10000 in UTC")
	}
}
