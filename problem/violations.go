package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Violations collects every fault of one request. The decoder of a body and the rules of a
// domain add to the same Violations, so that one answer lists all faults in the documented
// order of the fields.
//
// The zero value is ready. It is not safe for concurrent use.
type Violations struct {
	list      []violation
	invalid   bool // list has a fault of kind Invalid
	truncated bool // there were more than MaxViolations
}

// MaxViolations is the most faults that are kept of one request.
const MaxViolations = 100

type violation struct {
	path string
	kind Kind
	text string
}

// Add records a fault at a JSON pointer ("/gpu/count"; "" is the whole body). It keeps only
// the first fault of a place, so that a field of the wrong type is not also reported as
// missing. k is [Invalid] for a fault of the schema and [BadRequest] for a rule across
// fields.
func (v *Violations) Add(k Kind, path, format string, args ...any) {
	if v.Has(path) {
		return
	}
	// The first Invalid fault is always kept, because it decides the kind of the error.
	if len(v.list) >= MaxViolations && (v.invalid || k != Invalid) {
		v.truncated = true
		return
	}
	v.invalid = v.invalid || k == Invalid
	v.list = append(v.list, violation{path, k, fmt.Sprintf(format, args...)})
}

// Has reports whether there is a fault at path or at a place that contains path. It ignores
// faults of the whole body, which say nothing about one field.
func (v *Violations) Has(path string) bool {
	return slices.ContainsFunc(v.list, func(x violation) bool {
		return x.path == path || x.path != "" && strings.HasPrefix(path, x.path) && path[len(x.path)] == '/'
	})
}

// AddBelow adds the faults of a part of the request, whose places are within that part. path is
// the place of the part, and order that of Err for the part.
func (v *Violations) AddBelow(path string, part *Violations, order []string) {
	list := slices.Clone(part.list)
	slices.SortStableFunc(list, func(a, b violation) int {
		return cmp.Compare(rank(a.path, order), rank(b.path, order))
	})
	for _, x := range list {
		v.Add(x.kind, path+x.path, "%s", x.text)
	}
	v.truncated = v.truncated || part.truncated
}

// AddAt adds the faults of another Violations, each at the place that at returns for its own.
func (v *Violations) AddAt(other *Violations, at func(path string) string) {
	for _, x := range other.list {
		v.Add(x.kind, at(x.path), "%s", x.text)
	}
	v.truncated = v.truncated || other.truncated
}

// Err returns the faults as one error, or nil if there are none. With any fault of the schema
// the error is Invalid (422) and leaves out the rules across fields, which mean little for a
// body of the wrong shape. Otherwise it is BadRequest (400).
//
// order lists the documented fields as pointers without the leading slash ("name", "gpu",
// "gpu/id"). Faults of other fields come last, in the order of Add.
func (v *Violations) Err(order []string) error {
	if v == nil || len(v.list) == 0 {
		return nil
	}
	e := &Error{Kind: BadRequest, Detail: "Request breaks a rule."}
	list := slices.Clone(v.list)
	if v.invalid {
		e.Kind, e.Detail = Invalid, "Request validation failed."
		list = slices.DeleteFunc(list, func(x violation) bool { return x.kind != Invalid })
	}
	slices.SortStableFunc(list, func(a, b violation) int {
		return cmp.Compare(rank(a.path, order), rank(b.path, order))
	})
	for _, x := range list {
		text := truncate(x.text, maxText)
		if x.path != "" {
			text = truncate(x.path, maxPath) + ": " + text
		}
		e.Errors = append(e.Errors, text)
	}
	if v.truncated {
		e.Errors = append(e.Errors, "there are more faults than these")
	}
	if e.Kind == BadRequest {
		e.Detail = strings.Join(e.Errors, "; ")
	}
	return e
}

// Limits in bytes of a place and of its text, which may contain what the client sent.
const (
	maxPath = 200
	maxText = 500
)

func truncate(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// rank returns the position in order of the longest entry that is path or contains it.
func rank(path string, order []string) int {
	best, length := len(order), -1
	path = strings.TrimPrefix(path, "/")
	for i, f := range order {
		if len(f) > length && (path == f || strings.HasPrefix(path, f+"/")) {
			best, length = i, len(f)
		}
	}
	return best
}
