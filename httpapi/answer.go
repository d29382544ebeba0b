package httpapi

import (
	"context"
	"net/http"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// An Answer is the writer of a handler beside the interface that answers its users, such as a console.
// It holds such a handler to what the operations of the interface are held to (docs/decisions.md 37):
// what is large counts for the user until Release, and a client that does not read is cut off, whoever
// it is. For example, a handler that downloads the output of a job calls Room with its size, reads it,
// and writes it.
//
// An Answer is for one goroutine.
type Answer struct {
	answer

	inFlight *budget.InFlight // nil: nothing counts
	turn     budget.Hold
	err      error
}

// NewAnswer returns a writer to w. f is the InFlight of the handlers of the interface and may be nil.
// Nothing counts for an Identity without a user, or with an exempt key.
func NewAnswer(w http.ResponseWriter, f *budget.InFlight, id Identity) *Answer {
	a := &Answer{answer: answer{ResponseWriter: w, rolling: true}}
	if id.User != "" && !id.Exempt && f.Of(id.User) != nil {
		a.inFlight, a.hold, a.turn = f, f.Responses.Hold(id.User), f.Lists.Hold(id.User)
	}
	return a
}

// Turn waits until few enough heavy answers of the user are in progress. The error is for the client.
func (a *Answer) Turn(ctx context.Context) error {
	if a.turn.Size() > 0 || a.turn.Try(1) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if a.turn.Grow(ctx, 1) == nil {
		return nil
	}
	return a.inFlight.Full(budget.ResponseBytes, &a.turn, 1)
}

// Room waits until the answer may hold n bytes more. Up to 64 KiB need no room, so that small answers
// go on while large ones wait. The error is for the client, and Err returns it too.
func (a *Answer) Room(ctx context.Context, n int64) error {
	if n <= largeAnswer {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, roomWait)
	defer cancel()
	if n = a.hold.Most(n+a.hold.Size()) - a.hold.Size(); n <= 0 || a.hold.Grow(ctx, n) == nil {
		return nil
	}
	a.err = a.inFlight.Full(budget.ResponseBytes, &a.hold, n)
	return a.err
}

// Err returns the first error of Room. A handler that puts an answer together looks at it before it
// writes: a part may be missing.
func (a *Answer) Err() error { return a.err }

// Held returns how many bytes count now.
func (a *Answer) Held() int64 { return a.hold.Size() }

// Drop gives the room back, for a handler that goes on without what it had in memory.
func (a *Answer) Drop() { a.hold.Release() }

// Release gives back all that counts. It ends the Answer.
func (a *Answer) Release() {
	a.hold.Release()
	a.turn.Release()
}

// FlushError is used by http.ResponseController. What was flushed is not in memory any more.
func (a *Answer) FlushError() error {
	defer a.Drop()
	return a.answer.FlushError()
}

type turnKey struct{}

// Within returns a context for requests to the interface that are part of the answer. They need no
// turn of their own: with two turns for each user, two answers would wait for one another.
func (a *Answer) Within(ctx context.Context) context.Context {
	return context.WithValue(ctx, turnKey{}, true)
}

// hasTurn reports whether a request is part of an Answer.
func (c *call) hasTurn() bool { return c.r.Context().Value(turnKey{}) != nil }

// StillAllowed reports whether a key may still do what an answer that lasts has begun as first. The
// key may have been revoked, have expired, or have lost scopes: may says whether what is left is
// enough. A failure to look takes nothing away. Every answer that lasts asks it each few seconds.
func StillAllowed(ctx context.Context, auth Authenticator, key string, first *Identity, may func(Identity) bool) bool {
	id, err := auth.Authenticate(ctx, key)
	if err != nil {
		return problem.KindOf(err) != problem.Unauthorized
	}
	return id.User == first.User && may(id) && (id.Operator() || !first.Operator())
}

type whileKey struct{}

// While returns a context for requests to the interface. Answers to them that last end soon after good
// returns false, for example because the session that they belong to has ended. good is called each few
// seconds by the goroutine of the answer, and must not block.
func While(ctx context.Context, good func() bool) context.Context {
	return context.WithValue(ctx, whileKey{}, good)
}
