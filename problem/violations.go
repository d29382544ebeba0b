package problem

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Violations collects every fault of one request. The decoder of a body and the rules
// of a domain add to the same one, so that one answer lists all of them in the order
// in which the interface documents the fields.
//
// The zero value is ready. It is not safe for concurrent use.
type Violations struct {
	list    []violation
	invalid bool // list has one of the schema
	more    bool // there were more than Listed
}

// Listed is how many faults are kept: whoever gets everything wrong a hundred thousand
// times is told of the first ones.
const Listed = 100

type violation struct {
	path string
	kind Kind
	text string
}

// Add records a fault at a JSON pointer ("/gpu/count"; "" is the whole body). The
// first fault of a place is kept and later ones are dropped: a field of the wrong type
// is not also reported as missing.
//
// k is [Invalid] for a fault of the schema and [Malformed] for a rule across fields.
func (v *Violations) Add(k Kind, path, format string, args ...any) {
	if v.Has(path) {
		return
	}
	// One of the schema is kept in any case: it decides the kind of the error.
	if len(v.list) >= Listed && (v.invalid || k != Invalid) {
		v.more = true
		return
	}
	v.invalid = v.invalid || k == Invalid
	v.list = append(v.list, violation{path, k, fmt.Sprintf(format, args...)})
}

// Has reports whether a fault was recorded at path or at a place that contains it.
// Faults of the whole body do not count: they say nothing about one field.
func (v *Violations) Has(path string) bool {
	return slices.ContainsFunc(v.list, func(x violation) bool {
		return x.path == path || x.path != "" && strings.HasPrefix(path, x.path) && path[len(x.path)] == '/'
	})
}

// Err is nil when nothing was recorded. Any fault of the schema makes the answer
// Invalid (422) and leaves out the rules across fields, which mean little for a body
// of the wrong shape; otherwise it is Malformed (400).
//
// order lists the pointers of the documented fields without their leading slash
// ("name", "gpu", "gpu/id"); faults elsewhere come last, in the order found.
func (v *Violations) Err(order []string) error {
	if v == nil || len(v.list) == 0 {
		return nil
	}
	e := &Error{Kind: Malformed, Detail: "Request breaks a rule."}
	list := slices.Clone(v.list)
	if v.invalid {
		e.Kind, e.Detail = Invalid, "Request validation failed."
		list = slices.DeleteFunc(list, func(x violation) bool { return x.kind != Invalid })
	}
	slices.SortStableFunc(list, func(a, b violation) int {
		return cmp.Compare(rank(a.path, order), rank(b.path, order))
	})
	for _, x := range list {
		text := clip(x.text, maxText)
		if x.path != "" {
			text = clip(x.path, maxPath) + ": " + text
		}
		e.Errors = append(e.Errors, text)
	}
	if v.more {
		e.Errors = append(e.Errors, "there are more faults than these")
	}
	if e.Kind == Malformed {
		e.Detail = strings.Join(e.Errors, "; ")
	}
	return e
}

// How much is told of a place and of what is wrong there, in bytes: both may have in them
// what the client sent.
const (
	maxPath = 200
	maxText = 500
)

func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}

// rank is the position in order of the longest entry that is path or contains it.
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
