package pods

import (
	"context"
	"iter"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// Errors of a store.
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

// A Reservation is what a worker of an endpoint has of a host. Its claims count together with
// those of pods, so that nothing is given to both.
//
// The caller owns a Reservation that a store returns, and keeps owning one that it passes to a
// store.
type Reservation struct {
	Holder    string // the owner, by the Spec.PodID of its container
	Image     string // what runs there, for lists
	Endpoint  string `json:",omitzero"` // whose worker it is; empty: of none, or not known
	Owner     string `json:",omitzero"` // of that endpoint; empty: it is shared
	GPU       *GPU   // exactly one of GPU and CPU is set
	CPU       *CPU
	Volumes   []string // ids of the network volumes that are mounted
	Placement Placement
}

// A PodStore keeps pods and reservations. It is safe for concurrent use, copies what it is
// given and returns copies.
//
// Nothing is visible before it is as durable as the store makes it.
type PodStore interface {
	// Create adds p: ErrExists if its ID is taken, ErrNoCapacity if one of its claims would
	// exceed its limit. On an error nothing was changed.
	Create(ctx context.Context, p *Pod) error
	// CreateKeyed is Create for a request with an Idempotency-Key (docs/decisions.md 38).
	idempotency.Store[*Pod]
	// CreateAll is Create for pods of one owner, in one write: all or none. The claims of all
	// together must be within the limits. r is nil, or as for CreateKeyed: ErrTaken then.
	CreateAll(ctx context.Context, list []*Pod, r *idempotency.Record) error
	// Get returns the pod or ErrNotFound.
	Get(ctx context.Context, id string) (*Pod, error)
	// List yields the pods that f selects, by Created and then ID.
	List(ctx context.Context, f Filter) iter.Seq2[*Pod, error]
	// Update calls fn with the pod, stores what fn leaves, atomically and with its claims, and
	// returns it. Errors: ErrNotFound without the pod, ErrNoCapacity if a claim would exceed
	// its limit, and whatever fn returns; then nothing was changed. fn may run more than once.
	// It must not change ID, Owner and Created, do I/O, or call the store or a Runtime.
	Update(ctx context.Context, id string, fn func(*Pod) error) (*Pod, error)
	// Delete removes the pod and its claims, if fn, called with the pod, returns nil. No Update
	// comes between the call and the removal. Errors: ErrNotFound without the pod, and whatever
	// fn returns; then nothing was changed. A nil fn agrees. fn may run more than once; what is
	// forbidden to that of Update is forbidden here.
	Delete(ctx context.Context, id string, fn func(*Pod) error) error
	// Reserve replaces the reservation of h.Holder, atomically. It returns ErrNoCapacity if a
	// claim would exceed its limit; then nothing was changed.
	Reserve(ctx context.Context, h Reservation) error
	// Release removes the reservation of a holder, and its claims. It returns nil if there is
	// none.
	Release(ctx context.Context, holder string) error
	// Reservations yields all reservations, sorted by Holder.
	Reservations(ctx context.Context) iter.Seq2[Reservation, error]
	// Claimed returns how many units of a resource all pods and reservations claim.
	Claimed(ctx context.Context, resource string) (int64, error)
	// Watch calls f with the ids of changed pods and the holders of released reservations, on
	// any server, until ctx ends; f must not block. They are hints: they come after the change
	// is visible, and may be repeated or lost. A nil slice means that some were lost and that
	// everything must be read again. Watch returns only when ctx has ended (its error) or when
	// it cannot go on.
	Watch(ctx context.Context, f func(ids []string)) error
}
