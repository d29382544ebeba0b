package httpapi

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"strings"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// The headers of a request that can be repeated (docs/decisions.md 38).
const (
	keyHeader      = "Idempotency-Key"
	replayedHeader = "Idempotent-Replayed"
)

// readKey reads the Idempotency-Key of a request with this body, if the operation has keys
// and the request has one.
func (c *call) readKey(body []byte) error {
	if c.op == nil || !c.op.Keyed {
		return nil
	}
	values := c.r.Header.Values(keyHeader)
	if len(values) == 0 {
		return nil
	}
	key, err := parseKey(values)
	if err != nil {
		return err
	}
	endpoint, since := c.r.PathValue("endpoint"), ""
	if c.jobsEndpoint != nil { // the keys of a deleted endpoint do not count for a new one
		since = c.jobsEndpoint.Created.UTC().String()
	}
	query := url.Values{}
	if c.r.URL.RawQuery != "" {
		query = maps.Clone(c.params())
		query.Del("wait")
	}
	c.keyed = idempotency.NewRequest(key, []string{c.id.User, c.op.Name, endpoint, since},
		[]byte(c.r.URL.EscapedPath()), []byte(query.Encode()), body)
	if c.limited {
		c.keyed.Room = keyRoom{c.inFlight.Keys, c.id.User}
	}
	return nil
}

// keyRoom is the room for the keys of a user.
type keyRoom struct {
	keys *budget.Recent
	user string
}

// Take implements idempotency.Room.
func (r keyRoom) Take() error { return r.keys.Take(r.user) }

// Give implements idempotency.Room.
func (r keyRoom) Give() { r.keys.Give(r.user) }

var errKey = problem.Newf(problem.BadRequest, "%s must be sent once and have 1 to %d visible ASCII characters", keyHeader, idempotency.MaxKey)

// parseKey returns the key. In double quotes it is the same key.
func parseKey(values []string) (string, error) {
	if len(values) != 1 {
		return "", errKey
	}
	key := values[0]
	if n := len(key); n >= 2 && key[0] == '"' && key[n-1] == '"' {
		key = key[1 : n-1]
	}
	invisible := func(r rune) bool { return r <= ' ' || r > '~' }
	if key == "" || len(key) > idempotency.MaxKey || strings.ContainsFunc(key, invisible) {
		return "", errKey
	}
	return key, nil
}

// onceCreated returns what a request created. For a repetition, it returns what the first request
// created, as get returns it now.
func onceCreated[T any](c *call, v T, err error, get func(ctx context.Context, owner, id string) (T, error)) (T, error) {
	repeated := (*idempotency.Repeated)(nil)
	if !errors.As(err, &repeated) {
		return v, err
	}
	v, err = get(c.r.Context(), c.owner, repeated.ID)
	return v, c.replayed(repeated.ID, err)
}

// replayed marks the answer to a repetition. err is the error of reading what the first
// request created.
func (c *call) replayed(id string, err error) error {
	if problem.KindOf(err) == problem.NotFound && err != nil {
		return problem.Newf(problem.NotFound, "the request with this %s created %s, which is gone", keyHeader, id)
	}
	if err == nil {
		c.w.Header().Set(replayedHeader, "true")
	}
	return err
}
