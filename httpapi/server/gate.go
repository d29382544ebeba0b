package server

import (
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// A gate knows the requests that are being answered, and decides which ones are let in.
type gate struct {
	mu      sync.Mutex
	phase   phase
	held    map[*held]bool
	readers bool // somebody was being answered when the drain began, or asked since
}

// A phase is how far the end of the server has come.
type phase uint8

const (
	serving  phase = iota
	draining       // no new work; what is under way goes on
	closed         // nothing is let in, and what is held ends
)

// A held is one request that is being answered.
type held struct {
	kind   kind
	cancel context.CancelFunc
}

// A kind is what the end of the server means for a request.
type kind uint8

const (
	beginning kind = iota // it makes something new, or changes it: refused
	reading               // it reads, or brings something under way to an end: let in
	asking                // a worker asks for a job: it waits
)

// kindOf tells by method and path, in the form that they have on the wire.
func kindOf(r *http.Request) kind {
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

// guard lets requests through to next.
func (g *gate) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		h := &held{kindOf(r), cancel}
		now, ok := g.enter(h)
		if ok {
			defer g.leave(h)
		}
		if now != serving && h.kind == asking {
			if ok {
				<-ctx.Done()
			}
			w.WriteHeader(http.StatusNoContent) // as if no job had come
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

// refuse answers a request that comes too late. Whoever sends it again may find the next
// server.
func refuse(w http.ResponseWriter) {
	w.Header().Set("Connection", "close")
	httpapi.WriteProblem(w, errStopping)
}

// enter notes a request, unless it comes too late.
func (g *gate) enter(h *held) (now phase, ok bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.phase == closed || g.phase == draining && h.kind == beginning {
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

// open reports whether new work is let in.
func (g *gate) open() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.phase == serving
}

// drain lets no new work in. Workers that wait for a job get none.
func (g *gate) drain() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = draining
	for h := range g.held {
		if h.kind == asking {
			h.cancel()
			continue
		}
		g.readers = true
	}
}

// close lets nothing in, and has all that is held answer with what there is.
func (g *gate) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.phase = closed
	for h := range g.held {
		h.cancel()
	}
}

// read reports whether somebody reads what comes, or may come back for more.
func (g *gate) read() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.readers
}

// answered reports whether no request is held.
func (g *gate) answered() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.held) == 0
}
