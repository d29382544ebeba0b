package console

import (
	"encoding/json"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
)

// Bounds of signing in. A right key is never refused because of tries with wrong ones: behind a proxy
// that is not among the trusted ones everybody has the same address, and somebody's garbage would keep
// all others out. Guessing is hopeless anyway, because keys are random. The bounds are for the
// processor, the database and the log.
const (
	maxFailed  = 5     // tries with wrong keys, of an address in a minute: later ones are slow
	maxSignIns = 30    // with one key, in a minute
	maxCounted = 10000 // addresses and keys. With more, the minute ends early
	failedWait = time.Second
)

// tries counts tries to sign in, by address or key, in the minute that has begun last.
type tries struct {
	mu    sync.Mutex
	begun time.Time
	by    map[string]int
}

// take counts a try. It returns how long to wait if there were most of them, or 0.
func (t *tries) take(now time.Time, who string, most int) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	if now.Sub(t.begun).Abs() >= time.Minute || len(t.by) >= maxCounted { // a clock that was set back begins a new minute
		t.begun, t.by = now, map[string]int{}
	}
	if t.by[who] >= most {
		return t.begun.Add(time.Minute).Sub(now)
	}
	t.by[who]++
	return 0
}

// network returns what counts as one address: of IPv6 the first 64 bits, which one user has.
func network(from string) string {
	a, err := netip.ParseAddr(from)
	if err != nil || a.Is4() {
		return from
	}
	p, _ := a.Prefix(64) // every address has 64 bits or is IPv4
	return p.String()
}

// signOuts are sessions that were ended by their users, until they would end anyway.
type signOuts struct {
	mu sync.Mutex
	at map[string]time.Time
}

func (x *signOuts) has(id string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, ok := x.at[id]
	return ok
}

func (x *signOuts) add(id string, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for old, at := range x.at {
		if now.Sub(at) > totalTime {
			delete(x.at, old)
		}
	}
	x.at[id] = now
}

// A sessionBody is what a page knows about its user.
type sessionBody struct {
	User         string   `json:"user"`
	Scopes       []string `json:"scopes"`
	Operator     bool     `json:"operator"`
	KeyExpires   *string  `json:"keyExpires"`
	Ends         *string  `json:"ends"`
	ReadOnly     bool     `json:"readOnly"`
	HidePayloads bool     `json:"hidePayloads"`
	Details      bool     `json:"details"` // of jobs: Options.Jobs
	SignOut      bool     `json:"signOut"`
	Operations   []string `json:"operations"` // that the server has
	PodDomain    string   `json:"podDomain"`
}

// getSession answers 204 for nobody: a page asks this first, and it is no fault.
func (c *Console) getSession(w http.ResponseWriter, r *http.Request) {
	s := c.session(r)
	if s == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	id, err := c.Auth.Authenticate(r.Context(), s.Key)
	if err != nil {
		c.forget(w, err)
		return
	}
	c.renew(w, r, s)
	c.answerSession(w, r, s, &id)
}

// forget ends a session whose key is not good any more.
func (c *Console) forget(w http.ResponseWriter, err error) {
	if problem.KindOf(err) == problem.Unauthorized {
		c.setCookie(w, "", -1)
	}
	refuse(w, err)
}

func (c *Console) answerSession(w http.ResponseWriter, r *http.Request, s *session, id *httpapi.Identity) {
	b := sessionBody{
		User: id.User, Scopes: []string{}, Operator: id.Operator(), ReadOnly: c.ReadOnly, HidePayloads: c.HidePayloads,
		Details: c.Jobs != nil, SignOut: c.Identify == nil, Operations: c.operations(r), PodDomain: c.PodDomain,
	}
	for _, p := range id.Scopes {
		b.Scopes = append(b.Scopes, scopeName(p))
	}
	if !id.Expires.IsZero() {
		b.KeyExpires = timeOf(id.Expires)
	}
	if c.Identify == nil {
		b.Ends = timeOf(s.Begun.Add(totalTime))
	}
	a := httpapi.NewAnswer(w, c.InFlight, *id)
	defer a.Release()
	answer(a, b)
}

// scopeName is the reverse of httpapi.ParseScope.
func scopeName(p httpapi.Permission) string {
	level := [...]string{"read", "run", "write"}[min(p.Level, httpapi.Write)]
	switch p.Area {
	case "endpoint":
		return "endpoint:" + p.Endpoint + ":" + level
	case "worker":
		return "endpoint:" + p.Endpoint + ":work"
	case "pods", "registries", "endpoints":
		return p.Area + ":" + level
	}
	return p.Area
}

// signIn starts a session for the key in the body.
func (c *Console) signIn(w http.ResponseWriter, r *http.Request) {
	if c.Identify != nil {
		refuse(w, errNotHere)
		return
	}
	key, err := readKey(w, r)
	var id httpapi.Identity
	if err == nil {
		id, err = c.Auth.Authenticate(r.Context(), key)
	}
	if err == nil && id.Pod != "" {
		err = httpapi.ErrKey // it does nothing but for its pod
	}
	if err != nil {
		c.failTry(w, r, err)
		return
	}
	digest := accounts.DigestOf(key)
	if wait := c.tries.take(c.Clock.Now(), "key "+string(digest[:]), maxSignIns); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		refuse(w, problem.Newf(problem.TooManyRequests, "Somebody has signed in with this key %d times in the last minute. Wait %s seconds.", maxSignIns, seconds(wait)))
		return
	}
	s, err := c.begin(w, key)
	if err != nil {
		refuse(w, err)
		return
	}
	c.Logger.InfoContext(r.Context(), "console: signed in", "user", id.User, "source", c.Source(r))
	c.answerSession(w, r, s, &id)
}

// failTry refuses a try to sign in. One too many of an address is answered slowly.
func (c *Console) failTry(w http.ResponseWriter, r *http.Request, err error) {
	switch problem.KindOf(err) {
	case problem.Unauthorized:
		err = errWrongKey
	case problem.BadRequest, problem.Invalid:
	default: // the keys cannot be read
		refuse(w, err)
		return
	}
	if wait := c.tries.take(c.Clock.Now(), "address "+network(c.Source(r)), maxFailed); wait > 0 {
		select {
		case <-time.After(failedWait):
		case <-r.Context().Done():
		}
		w.Header().Set("Retry-After", seconds(wait))
		err = problem.Newf(problem.TooManyRequests, "This key is not right either: there were %d such tries from this address in the last minute. A right key is taken at once; try others in %s seconds.", maxFailed, seconds(wait))
	}
	refuse(w, err)
}

var (
	errWrongKey = problem.New(problem.Unauthorized, "The server does not know this key, or it has expired.")
	errNoKey    = problem.New(problem.BadRequest, `The body must be {"key": "..."}.`)
	errLongKey  = problem.Newf(problem.Invalid, "A key has at most %d bytes.", maxKey)
)

func readKey(w http.ResponseWriter, r *http.Request) (string, error) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 4*maxKey))
	if err != nil {
		return "", errLongKey
	}
	var b struct {
		Key string `json:"key"`
	}
	if err := json.Unmarshal(body, &b); err != nil {
		return "", errNoKey
	}
	key := strings.TrimSpace(b.Key)
	switch {
	case key == "":
		return "", errNoKey
	case len(key) > maxKey:
		return "", errLongKey
	case strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return "", errWrongKey // no header can carry it
	}
	return key, nil
}

// signOut ends the session of a request. Another server of a cluster learns of it only by the
// browser, which has lost the cookie.
func (c *Console) signOut(w http.ResponseWriter, r *http.Request) {
	if s := c.session(r); s != nil && c.Identify == nil {
		c.ended.add(s.ID, c.Clock.Now())
	}
	c.setCookie(w, "", -1)
	w.WriteHeader(http.StatusNoContent)
}
