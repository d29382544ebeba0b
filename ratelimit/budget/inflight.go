package budget

import (
	"context"
	"time"
)

// InFlight is what the requests of users hold in one process: see Row.Process. Its pools have
// the limits of a Set for each user, and one in all. A nil InFlight has no limits.
type InFlight struct {
	// Requests are bytes of bodies that are being read and decoded, and Responses those of
	// large answers that are being written.
	Requests, Responses *Pool
	// Inputs are those of jobs that workers of this process run. They have a pool of their own: jobs
	// may take hours, in which bodies of requests must not wait for them.
	Inputs *Pool
	// Outputs are those that workers of this process have made, until they are stored.
	Outputs *Pool
	// Open are requests that stay open, by the budget that they count for: Connections,
	// Streams, ProxiedRequests or Sessions.
	Open map[Budget]*Pool
	// Reads are jobs that are read before it is known how large they are, and Lists are
	// answers with many of them.
	Reads, Lists *Pool
	// Records are answers with one record, which may have a megabyte.
	Records *Pool
	// Writes are large payloads that are being stored, by the ids of endpoints.
	Writes *Pool
	// Keys are the Idempotency-Keys with which something was created.
	Keys *Recent

	set *Set
}

// Totals are limits for all users together; 0 is none.
type Totals struct {
	RequestBytes  int64
	ResponseBytes int64
	InputBytes    int64
	OutputBytes   int64
}

// DefaultTotals returns the limits of a server from a configuration.
func DefaultTotals() Totals {
	return Totals{RequestBytes: 256 * miB, ResponseBytes: 256 * miB, InputBytes: 256 * miB, OutputBytes: 256 * miB}
}

// How many payloads of one user are read at once, and lists of them written. A payload may
// have some 40 MB. More wait for their turn.
const (
	readsAtOnce   = 3
	listsAtOnce   = 2
	recordsAtOnce = 16
	writesAtOnce  = 2 // of an endpoint
)

// NewInFlight returns counters for what users with the limits of s hold. Users without limits
// have none of these limits either, and count for nothing. now is the clock of Keys.
func NewInFlight(s *Set, all Totals, now func() time.Time) *InFlight {
	of := func(b Budget) func(string) int64 {
		return func(user string) int64 { return s.Of(user).Of(b) }
	}
	fixed := func(n int64) func(string) int64 {
		return func(user string) int64 {
			if s.Of(user) == nil {
				return 0
			}
			return n
		}
	}
	f := &InFlight{
		Requests: NewPool(all.RequestBytes, of(RequestBytes)), Responses: NewPool(all.ResponseBytes, of(ResponseBytes)),
		Inputs: NewPool(all.InputBytes, of(InputBytes)), Outputs: NewPool(all.OutputBytes, of(OutputBytes)),
		Open:  map[Budget]*Pool{},
		Reads: NewPool(0, fixed(readsAtOnce)), Lists: NewPool(0, fixed(listsAtOnce)), Records: NewPool(0, fixed(recordsAtOnce)), set: s,
		Writes: NewPool(0, func(string) int64 { return writesAtOnce }),
		Keys:   NewRecent(IdempotencyKeys, s, now),
	}
	for _, b := range [...]Budget{Connections, Streams, ProxiedRequests, Sessions} {
		f.Open[b] = NewPool(0, of(b))
	}
	return f
}

// Of returns the limits of a user; nil is none.
func (f *InFlight) Of(user string) *Limits {
	if f == nil {
		return nil
	}
	return f.set.Of(user)
}

// Input returns a hold for the input of a job of a user, of nothing if the user has no limits.
func (f *InFlight) Input(user string) Hold {
	if f.Of(user) == nil {
		return Hold{}
	}
	return f.Inputs.Hold(user)
}

// Output is Input for an output.
func (f *InFlight) Output(user string) Hold {
	if f.Of(user) == nil {
		return Hold{}
	}
	return f.Outputs.Hold(user)
}

// Full returns the error for a hold that got no more of b.
func (f *InFlight) Full(b Budget, h *Hold, n int64) error {
	of, all, _ := h.pool.InUse(h.user)
	if limit := h.pool.limit(h.user); limit > 0 && of+n > limit {
		return &Error{Budget: b, Limit: limit, Used: of, Asked: n}
	}
	return &Error{Budget: b, Limit: max(h.pool.most, all), Used: all, Asked: n}
}

var _ Counter = (*InFlight)(nil)

// Limit implements Counter. An InFlight has the limits that it was made with.
func (f *InFlight) Limit(*Set) {}

// Usage implements Counter.
func (f *InFlight) Usage(ctx context.Context, user string) (u Usage, err error) {
	if f == nil {
		return u, nil
	}
	u, err = f.Keys.Usage(ctx, user)
	u[RequestBytes], _, _ = f.Requests.InUse(user)
	u[ResponseBytes], _, _ = f.Responses.InUse(user)
	u[InputBytes], _, _ = f.Inputs.InUse(user)
	u[OutputBytes], _, _ = f.Outputs.InUse(user)
	for b, p := range f.Open {
		u[b], _, _ = p.InUse(user)
	}
	return u, err
}

// Users implements Counter. Who only has requests in flight is not listed.
func (f *InFlight) Users(ctx context.Context) ([]string, error) {
	if f == nil {
		return nil, nil
	}
	return f.Keys.Users(ctx)
}
