package pods

import (
	"context"
	"iter"

	"github.com/podyard/podyard/problem"
)

// What a store answers.
var (
	ErrNotFound   = problem.New(problem.NotFound, "pod not found")
	ErrExists     = problem.New(problem.Conflict, "pod id is taken")
	ErrNoCapacity = problem.New(problem.BadRequest, "no capacity")
)

// A Filter selects pods. Empty fields select all.
type Filter struct {
	Owner string
	Host  string
}

// A Reservation is what something that is not a pod has of a host: a worker of an endpoint. Its
// claims count with those of pods, so that nothing is given to both.
//
// A Reservation that a store returns is the caller's; one handed to a store stays the caller's.
type Reservation struct {
	Holder    string // who has it, as its runtime knows it: its container's Spec.PodID
	Image     string // what runs there, for those who list it
	GPU       *GPU   // exactly one of GPU and CPU is set
	CPU       *CPU
	Volumes   []string // ids of the network volumes that are mounted
	Placement Placement
}

// A PodStore keeps pods, and what others hold of their hosts. Changes are a few thousand a
// second at most, so a closure will do.
// It is safe for concurrent use, copies what it is given and returns copies.
//
// A pod that is returned is as durable as the store makes it: nothing is visible before
// that.
type PodStore interface {
	// Create adds p: ErrExists if its ID is taken, ErrNoCapacity if one of its claims would
	// exceed its limit. On an error nothing was changed.
	Create(ctx context.Context, p *Pod) error
	// Get returns the pod or ErrNotFound.
	Get(ctx context.Context, id string) (*Pod, error)
	// List yields the pods that f selects, by Created and then ID.
	List(ctx context.Context, f Filter) iter.Seq2[*Pod, error]
	// Update stores what fn leaves, atomically and claims included, and returns it:
	// ErrNotFound without the pod, ErrNoCapacity if a claim would exceed its limit, and
	// whatever fn returns, in which cases nothing was changed. fn must not change ID,
	// Owner and Created, may run more than once, does no I/O, and calls neither the store
	// nor a Runtime.
	Update(ctx context.Context, id string, fn func(*Pod) error) (*Pod, error)
	// Delete removes the pod and its claims; ErrNotFound if it is not there.
	Delete(ctx context.Context, id string) error
	// Reserve stores h in place of what its holder had, atomically: ErrNoCapacity if a claim would
	// exceed its limit, in which case nothing was changed.
	Reserve(ctx context.Context, h Reservation) error
	// Release removes what a holder has, and its claims; nil if it has nothing.
	Release(ctx context.Context, holder string) error
	// Reservations yields what is held, by Holder.
	Reservations(ctx context.Context) iter.Seq2[Reservation, error]
	// Claimed is how many units of a resource are claimed by all pods and holds.
	Claimed(ctx context.Context, resource string) (int64, error)
	// Watch calls f with the ids of pods that changed and the holders of holds that were
	// released, on any server, until ctx ends; f must not block. They are hints: sent after
	// the change is visible, repeated or lost now and then. A nil slice says that some were
	// lost: look at everything. Watch returns only when ctx has ended (its error) or when it
	// cannot go on.
	Watch(ctx context.Context, f func(ids []string)) error
}
