package console_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/serverless"
)

// lasting are all answers of the console that last: its own, and those of the API that it passes on.
// {job} is a job that runs and streams, and {pod} a pod.
var lasting = []string{"data/live", "data/live?endpoint=echo", "data/tail/echo/{job}", "api/v2/echo/events", "api/v2/pods/{pod}/logs"}

// Every answer that lasts ends within three seconds after its key was revoked, has ended or has lost
// the scope of what it shows, and after the user signed out. Until then, what comes is sent; later,
// nothing of it is.
func TestEveryAnswerThatLastsEndsSoonAfterItsKey(t *testing.T) {
	all := []string{"pods:read", "endpoint:echo:read"}
	for name, x := range map[string]struct {
		end  func(w *world, id string)
		stay []string // which need nothing that was lost
	}{
		"revoked":    {end: func(w *world, id string) { check(w.t, w.keys.Delete(w.t.Context(), root, id)) }},
		"expired":    {end: func(*world, string) { time.Sleep(time.Until(keysEnd)) }},
		"signed out": {end: func(w *world, _ string) { w.want(http.StatusNoContent, "DELETE", "/console/session", "") }},
		"without its scopes": {
			end: func(w *world, id string) {
				_, err := w.keys.Update(w.t.Context(), root, id, accounts.UpdateRequest{Scopes: []string{"registries:read"}})
				check(w.t, err)
			},
			stay: lasting[:2], // a signal without content, and counts that every key may see
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, nil, func(w *world) {
				w.background(w.jobs.Run)
				w.background(w.pods.Run)
				job, pod := w.submit(`{"input":{}}`), w.pod()
				w.streams("echo")
				_, key, err := w.keys.Create(w.t.Context(), root, accounts.CreateRequest{User: "alice", Scopes: all, Expires: keysEnd})
				check(w.t, err)
				k, err := w.keys.List(w.t.Context(), "alice")
				check(w.t, err)
				w.signIn(string(key))
				var streams []*lastingAnswer
				for _, path := range lasting {
					streams = append(streams, w.follow(strings.NewReplacer("{job}", job, "{pod}", pod).Replace(path)))
				}
				time.Sleep(time.Minute)
				for _, s := range streams {
					if s.over() {
						w.t.Errorf("%s ends while the key is good", s.path)
					}
				}
				x.end(w, k[0].ID)
				ended := time.Now()
				time.Sleep(10 * time.Second)
				for i, s := range streams {
					stays := i < len(x.stay)
					if s.over() == stays {
						w.t.Errorf("%s has ended: %v, want %v", s.path, s.over(), !stays)
					}
					if late := s.last.Sub(ended); !stays && late > 3*time.Second {
						w.t.Errorf("%s goes on for %v", s.path, late)
					}
					s.stop()
				}
			})
		})
	}
}

// A job that runs and has streamed nothing has an empty list of items: the page goes through it.
func TestATailWithoutItemsHasAnEmptyList(t *testing.T) {
	bubble(t, nil, func(w *world) {
		job := w.submit(`{"input":{}}`)
		w.signIn(aliceKey)
		s := w.follow("data/tail/echo/" + job)
		time.Sleep(time.Minute)
		s.stop()
		if s.over(); !strings.Contains(s.text.String(), `"items":[]`) {
			w.t.Errorf("the tail of a job that streams nothing = %s", &s.text)
		}
	})
}

// keysEnd is when keys of these tests end. A bubble begins at midnight.
var keysEnd = time.Date(2000, 1, 1, 0, 2, 0, 0, time.UTC)

var root = accounts.Caller{User: "root", Scopes: []accounts.Permission{{Area: "*"}, {Area: accounts.AreaOperator}}}

// streams starts a worker whose jobs stream an item each 100 ms, for ever.
func (w *world) streams(endpoint string) {
	w.background(func(ctx context.Context) error {
		return w.jobs.Serve(ctx, endpoint, serverless.WorkerFunc(func(ctx context.Context, t *serverless.Task) ([]byte, error) {
			for ctx.Err() == nil {
				if err := t.Emit(ctx, []byte(`{"output":"x"}`)); err != nil {
					return nil, err
				}
				time.Sleep(100 * time.Millisecond)
			}
			return nil, ctx.Err()
		}), &serverless.ServeOptions{ID: "local-stream", Drain: time.Millisecond})
	})
	synctest.Wait()
}

// pod makes a pod of alice and returns its id.
func (w *world) pod() string {
	a := httptest.NewRecorder()
	w.api.ServeHTTP(a, w.asAlice("POST", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`))
	var p struct{ ID string }
	unmarshal(w.t, a.Body.Bytes(), &p)
	return p.ID
}

// A lastingAnswer is the writer of an answer that lasts. It is read when the bubble is idle.
type lastingAnswer struct {
	path   string
	header http.Header
	stop   context.CancelFunc
	done   chan bool
	mu     sync.Mutex
	last   time.Time // when something was written
	text   strings.Builder
}

// follow begins a request whose answer lasts.
func (w *world) follow(path string) *lastingAnswer {
	ctx, cancel := context.WithCancel(w.t.Context())
	r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/"+path, http.NoBody)
	r.AddCookie(w.cookie)
	s := &lastingAnswer{path: path, header: http.Header{}, stop: cancel, done: make(chan bool)}
	go func() { w.console.ServeHTTP(s, r); close(s.done) }()
	return s
}

func (s *lastingAnswer) Header() http.Header { return s.header }
func (s *lastingAnswer) Flush()              {}

func (s *lastingAnswer) WriteHeader(status int) {
	if status != http.StatusOK {
		s.path += " = " + http.StatusText(status)
	}
}

func (s *lastingAnswer) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = time.Now()
	return s.text.Write(b)
}

// over reports whether the answer has ended.
func (s *lastingAnswer) over() bool {
	synctest.Wait()
	select {
	case <-s.done:
		return true
	default:
		return false
	}
}

// What the console does is done with the key of the session, whose end holds there too.
func TestASessionWithAKeyThatEndsRotatesNoEndlessKey(t *testing.T) {
	bubble(t, nil, func(w *world) {
		endless, _, err := w.keys.Create(w.t.Context(), root, accounts.CreateRequest{User: "alice", Scopes: []string{"pods:read"}})
		check(w.t, err)
		_, brief, err := w.keys.Create(w.t.Context(), root, accounts.CreateRequest{User: "alice", Scopes: []string{"*"}, Expires: keysEnd})
		check(w.t, err)
		w.signIn(string(brief))
		path := "/console/api/v2/account/keys"
		w.want(http.StatusForbidden, "POST", path, `{"scopes":["*"]}`)
		w.want(http.StatusForbidden, "PATCH", path+"/"+endless.ID, `{"scopes":["*"]}`)
		w.want(http.StatusForbidden, "POST", path+"/"+endless.ID+"/rotate", "{}")
		w.want(http.StatusOK, "GET", path+"/"+endless.ID, "")
	})
}
