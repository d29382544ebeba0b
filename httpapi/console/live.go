package console

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/podyard/podyard/problem"
)

// Times of the live stream of a tab.
const (
	lookEvery  = time.Second      // how often the health of an endpoint is looked at
	overEvery  = 3 * time.Second  // how often the overview is told to look again
	aliveEvery = 15 * time.Second // a comment, so that proxies keep a quiet stream
)

// enter takes a place for an event stream of the session's user. If there is none, or the session
// has ended, it answers and returns false.
func (c *Console) enter(w http.ResponseWriter, r *http.Request, s *session) (leave func(), ok bool) {
	id, err := c.Auth.Authenticate(r.Context(), s.Key)
	if err != nil {
		c.forget(w, err)
		return nil, false
	}
	if !c.viewers.enter(id.User) {
		w.Header().Set("Retry-After", seconds(aliveEvery))
		refuse(w, errViewers)
		return nil, false
	}
	return func() { c.viewers.leave(id.User) }, true
}

// live is the one event stream of a tab. For an endpoint it has the event "health", with the
// counts, when they change: a page reads then what else it shows. Without an endpoint it has
// the event "look" every few seconds. The event "out" says that the session has ended.
//
// A user has maxViewers of them: one connection of HTTP/2 can have hundreds.
func (c *Console) live(w http.ResponseWriter, r *http.Request, s *session) {
	leave, ok := c.enter(w, r, s)
	if !ok {
		return
	}
	defer leave()
	rc := http.NewResponseController(w)
	w.Header().Set("Content-Type", "text/event-stream")
	v := &viewer{Console: c, w: w, r: r, s: s, endpoint: r.URL.Query().Get("endpoint")}
	every := overEvery
	if v.endpoint != "" {
		every = lookEvery
	}
	t := time.NewTicker(every)
	defer t.Stop()
	for v.tick() && rc.Flush() == nil {
		select {
		case <-t.C:
		case <-r.Context().Done():
			return
		}
	}
	_ = rc.Flush() // the client may be gone
}

// maxViewers is how many live streams a user has at once.
const maxViewers = 100

var errViewers = problem.Newf(problem.TooManyRequests, "You have %d live pages open. Close some.", maxViewers)

// viewers counts live streams, by user.
type viewers struct {
	mu sync.Mutex
	by map[string]int
}

// enter counts a stream, unless there are maxViewers.
func (v *viewers) enter(user string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by[user] >= maxViewers {
		return false
	}
	v.by[user]++
	return true
}

func (v *viewers) leave(user string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.by[user]--; v.by[user] <= 0 {
		delete(v.by, user)
	}
}

// A viewer is a tab that looks at something.
type viewer struct {
	*Console

	w        http.ResponseWriter
	r        *http.Request
	s        *session
	endpoint string
	last     []byte
	spoke    time.Time
}

// tick sends what there is to send. It reports whether the stream goes on.
func (v *viewer) tick() bool {
	if v.out() {
		v.event("out", []byte("{}"))
		return false
	}
	event, data := "look", []byte("{}")
	if v.endpoint != "" {
		a := v.read(v.r, v.s, "/v2/"+pathEscape(v.endpoint)+"/health")
		if event, data = "health", a.body.Bytes(); !a.ok() {
			event, data = "lost", fmt.Appendf(nil, `{"status":%d}`, a.status)
		}
	}
	if v.endpoint == "" || !bytes.Equal(data, v.last) {
		v.last = bytes.Clone(data)
		return v.event(event, data)
	}
	return v.quiet()
}

// out reports whether the session has ended, or its key is good no more.
func (v *viewer) out() bool {
	if v.Identify == nil && (v.Clock.Now().After(v.s.Begun.Add(totalTime)) || v.ended.has(v.s.ID)) {
		return true
	}
	_, err := v.Auth.Authenticate(v.r.Context(), v.s.Key)
	return problem.KindOf(err) == problem.Unauthorized
}

// quiet keeps a stream that has nothing to say.
func (v *viewer) quiet() bool {
	now := v.Clock.Now()
	if now.Sub(v.spoke) < aliveEvery {
		return true
	}
	v.spoke = now
	_, err := v.w.Write([]byte(": alive\n\n"))
	return err == nil
}

// event sends an event, whose data is one line.
func (v *viewer) event(name string, data []byte) bool {
	v.spoke = v.Clock.Now()
	_, err := fmt.Fprintf(v.w, "event: %s\ndata: %s\n\n", name, bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return err == nil
}
