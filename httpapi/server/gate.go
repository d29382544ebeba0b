package server

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// A gate tracks the active requests and decides which new ones are admitted.
type gate struct {
	toWorker func(*http.Request) bool // of a load-balancing endpoint; nil: none is

	mu      sync.Mutex
	phase   phase
	held    map[*held]bool
	readers bool // a read was active when the drain began, or came later
}

// A phase is a phase of the shutdown.
type phase uint8

const (
	serving  phase = iota
	draining       // no new work; active work continues
	closed         // no requests; active ones end
)

// A held is an active request.
type held struct {
	kind   kind
	cancel context.CancelCauseFunc
}

// A kind says how the shutdown affects a request.
type kind uint8

const (
	beginning kind = iota // it creates or changes something: refused
	reading               // it reads, or helps active work to finish: admitted
	asking                // a worker asks for a job: it waits
	proxied               // it is sent to a worker: refused; active ones end before the workers do
)

// kindOf decides by host, method and path.
func (g *gate) kindOf(r *http.Request) kind {
	if g.toWorker != nil && g.toWorker(r) {
		return proxied
	}
	if part := strings.SplitN(r.URL.Path, "/", 5); len(part) > 3 && part[1] == "v2" {
		switch part[3] {
		case "job-take", "job-take-batch":
			return asking
		case "job-done", "job-stream", "job-stop", "ping", "status", "status-sync", "stream", "cancel":
			return reading
		}
	}
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return reading
	}
	return beginning
}

// guard passes admitted requests to next.
func (g *gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		h := &held{g.kindOf(r), cancel}
		now, ok := g.enter(h)
		if ok {
			defer g.leave(h)
		}
		if now != serving && h.kind == asking {
			if ok {
				<-ctx.Done()
			}
			w.WriteHeader(http.StatusNoContent) // as if there were no job
			return
		}
		if !ok {
			refuse(w)
			return
		}
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

var errStopping = problem.New(problem.Unavailable, "the server is stopping")

// refuse refuses a request that is too late. It closes the connection, so that a retry may
// reach the next server.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	httpapi.WriteProblem(w, errStopping)
}

// enter adds a request, unless it is too late.
func (g *gate) enter(h *held) (now phase, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == closed || g.phase == draining && (h.kind == beginning || h.kind == proxied) {
		return g.phase, false
	}
	if g.held == nil {
		g.held = map[*held]bool{}
	}
	g.held[h] = true
	g.readers = g.readers || g.phase == draining && h.kind == reading
	return g.phase, true
}

func (g *gate) leave(h *held) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, h)
}

// open reports whether new work is admitted.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.phase == serving
}

// drain stops new work. Workers that wait for a job get none.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = draining
	for h := range g.held {
		if h.kind == asking {
			h.cancel(nil)
			continue
		}
		g.readers = g.readers || h.kind != proxied
	}
}

// endProxied ends the requests that are at workers. answered reports whether they have ended.
func (g *gate) endProxied() (answered func() bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for h := range g.held {
		if h.kind == proxied {
			h.cancel(nil)
		}
	}
	return func() bool {
		g.mu.Lock()
		defer g.mu.Unlock()
		for h := range g.held {
			if h.kind == proxied {
				return false
			}
		}
		return true
	}
}

// close admits no more requests, and makes active ones answer with what there is.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = closed
	for h := range g.held {
		h.cancel(errStopping) // who follows a log sends its rest
	}
}

// read reports whether a client reads results, or may come back for more.
func (g *gate) read() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readers
}

// answered reports whether no request is active.
func (g *gate) answered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held) == 0
}
