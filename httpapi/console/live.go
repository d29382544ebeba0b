package console

import (
	"bytes"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// Times of the live stream of a tab.
const (
	lookEvery  = time.Second             // how often the health of an endpoint is looked at
	overEvery  = 2500 * time.Millisecond // how often the overview is told to look again
	aliveEvery = 15 * time.Second        // a comment, so that proxies keep a quiet stream
)

// watch makes w the answer that lasts of a tab, which do continues. It goes on while the session has not
// ended and its key may still do what it shows: may looks at what the key has left.
//
// A user has maxViewers of them: one connection of HTTP/2 can have hundreds.
func (c *Console) watch(w *httpapi.Answer, r *http.Request, s *session, may func(httpapi.Identity) bool, do func(v *viewer)) {
	if !c.viewers.enter(s.who.User) {
		w.Header().Set("Retry-After", seconds(aliveEvery))
		refuse(w, errViewers)
		return
	}
	defer c.viewers.leave(s.who.User)
	w.Header().Set("Content-Type", "text/event-stream")
	do(&viewer{Console: c, w: w, r: r, s: s, may: may})
	_ = http.NewResponseController(w).Flush() // the client may be gone
}

// live is the one event stream of a tab. For an endpoint it has the event "health", with the
// counts, when they change: a page reads then what else it shows. Without an endpoint it has
// the event "look" every few seconds. The event "out" says that the session has ended.
func (c *Console) live(w *httpapi.Answer, r *http.Request, s *session) {
	endpoint, every := r.URL.Query().Get("endpoint"), overEvery
	if endpoint != "" {
		every = lookEvery
	}
	anything := func(httpapi.Identity) bool { return true } // the API is asked for the health each time
	c.watch(w, r, s, anything, func(v *viewer) {
		t := time.NewTicker(every)
		defer t.Stop()
		for v.look(endpoint) && v.flush() {
			select {
			case <-t.C:
			case <-r.Context().Done():
				return
			}
		}
	})
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

	w     *httpapi.Answer
	r     *http.Request
	s     *session
	may   func(httpapi.Identity) bool
	last  []byte
	spoke time.Time
}

// look sends what is new of an endpoint, or that something may be. It reports whether the stream goes on.
func (v *viewer) look(endpoint string) bool {
	event, data := "look", []byte("{}")
	if endpoint != "" {
		a := v.read(v.w, v.r, v.s, "/v2/"+pathEscape(endpoint)+"/health")
		if event, data = "health", a.body.Bytes(); !a.ok() {
			event, data = "lost", fmt.Appendf(nil, `{"status":%d}`, a.status)
		}
	}
	if endpoint == "" || !bytes.Equal(data, v.last) {
		v.last = bytes.Clone(data)
		return v.event(event, "", data)
	}
	return v.quiet()
}

// goesOn reports whether a session has not ended, apart from its key.
func (c *Console) goesOn(s *session) bool {
	return c.Identify != nil || c.Clock.Now().Before(s.Begun.Add(totalTime)) && !c.ended.has(s.ID)
}

// out ends a stream that may not go on. Whatever is sent is sent by event or quiet, which ask it before.
func (v *viewer) out() bool {
	if v.goesOn(v.s) && httpapi.StillAllowed(v.r.Context(), v.Auth, v.s.Key, &v.s.who, v.may) {
		return false
	}
	_, _ = v.w.Write([]byte("event: out\ndata: {}\n\n")) // the client may be gone
	return true
}

func (v *viewer) flush() bool { return http.NewResponseController(v.w).Flush() == nil }

// quiet keeps a stream that has nothing to say.
func (v *viewer) quiet() bool {
	if v.out() {
		return false
	}
	now := v.Clock.Now()
	if now.Sub(v.spoke) < aliveEvery {
		return true
	}
	v.spoke = now
	_, err := v.w.Write([]byte(": alive\n\n"))
	return err == nil
}

// event sends an event, whose data is one line. id is where a browser goes on, if there is such a place.
func (v *viewer) event(name, id string, data []byte) bool {
	if v.out() {
		return false
	}
	v.spoke = v.Clock.Now()
	if id != "" {
		id = "id: " + id + "\n"
	}
	_, err := fmt.Fprintf(v.w, "%sevent: %s\ndata: %s\n\n", id, name, bytes.ReplaceAll(data, []byte("\n"), []byte(" ")))
	return err == nil
}
