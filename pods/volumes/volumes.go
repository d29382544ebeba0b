package volumes

import (
	"slices"
	"time"

	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Volume is storage in a data center.
type Volume struct {
	ID         string // 14 lower-case letters and digits
	Owner      string // the user whose key made it
	Name       string
	Size       int    // GB, MinSize to MaxSize; it only grows
	DataCenter string // fixed at creation, as is Type
	Type       catalog.VolumeType
	Created    time.Time
	// Sizes are all sizes it has had, with their beginnings, the present one last.
	Sizes []SizeSpan
	// Server is which of several servers has what is in the volume (Options.Server). Empty: nobody
	// has mounted it yet, or there is only one server.
	Server string `json:",omitempty"`
	// Deleted volumes exist for nobody. They are kept until what is in them is removed.
	Deleted bool `json:",omitempty"`
}

// SizeSpan is a size from an instant on.
type SizeSpan struct {
	From time.Time
	Size int // GB
}

// Clone returns a copy of v that shares nothing with it.
func (v Volume) Clone() Volume {
	v.Sizes = slices.Clone(v.Sizes)
	return v
}

// Bounds of a volume in GB.
const (
	MinSize = 10
	MaxSize = 4096
)

// Errors of a Service and a Store.
var (
	ErrNotFound = problem.New(problem.NotFound, "network volume not found")
	ErrExists   = problem.New(problem.Conflict, "network volume id is taken")
	ErrInUse    = problem.New(problem.BadRequest, "network volume is in use by a pod or an endpoint; a terminated pod uses it until its processes have ended")
)

// A CreateRequest asks for a volume. All fields but Type are required.
type CreateRequest struct {
	Name       string
	Size       int // GB
	DataCenter string
	Type       catalog.VolumeType // empty: the first one of the data center

	// Idempotency is the key of the request (docs/decisions.md 38). Nil: it has none.
	Idempotency *idempotency.Request

	// Violations are faults that a decoder found. They are reported together with the faults of
	// the values. A field has one fault at most.
	Violations problem.Violations
}

// An UpdateRequest changes the fields that are not nil. At least one must be set.
type UpdateRequest struct {
	Name *string
	Size *int // GB, not below the present one

	// Violations are faults that a decoder found, as in [CreateRequest].
	Violations problem.Violations
}

// Fields are the documented fields: faults are reported in this order.
func Fields() []string { return []string{"name", "size", "dataCenter", "type"} }

// Holding is what a volume takes of its owner's budgets (docs/decisions.md 37).
func (v *Volume) Holding() budget.Holding {
	if v.Deleted {
		return budget.Holding{}
	}
	return budget.Holding{User: v.Owner, Of: [2]budget.Amount{{Budget: budget.Volumes, N: 1}}}
}
