package double

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/pipelistener"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/balance"
)

// HandleHTTP makes a handler in this process the worker of a load-balancing endpoint, which is
// made if there is none. Requests to /lb/{endpoint}/... get to h without that prefix. A handler
// must wait with Sleep and the context of its request: the clock does not know other ways to wait,
// and then moves only after Options.Settle.
func (s *Server) HandleHTTP(ctx context.Context, endpoint string, h http.Handler) error {
	return s.serve(ctx, &localWorker{endpoint: endpoint, requests: h})
}

// ImageHTTP makes a handler answer the requests to workers of an image. Load-balancing endpoints
// with the image have as many workers as the product's scaler starts; they start within
// ImageOptions.ColdStart, get requests while they are healthy, and end when they are idle. The
// handler answers the health checks too (GET /ping, unless the endpoint's environment says
// otherwise): 200 is healthy, 204 is starting. name is a pattern as for Image. The handler must
// wait as for HandleHTTP, and must not wait in a health check; o may be nil.
func (s *Server) ImageHTTP(name string, h http.Handler, o *ImageOptions) error {
	return s.setImage(name, &image{requests: h}, o)
}

// joinBalanced is join for a load-balancing endpoint.
func (w *instance) joinBalanced(ctx context.Context, l *localWorker) error {
	if err := w.services.Jobs.EnsureBalanced(ctx, l.endpoint); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", l.endpoint, err)
	}
	h := w.follow(l.endpoint, l.requests, nil)
	w.start(func(ctx context.Context) {
		// The clock stands still, so a drain would never end.
		_ = httpapi.ServeHTTP(ctx, w.services.Jobs, l.endpoint, h, &serverless.ServeOptions{ID: workerID(l.endpoint, 1), Drain: -1})
	})
	return nil
}

// tagHeader is how a worker's handler finds the exchange of its request. No worker sees it.
const tagHeader = "Podyard-Double-Request"

// follow has the clock wait for the requests that h answers, and has faults happen to them. kill
// ends the worker; nil: it cannot be ended.
func (w *instance) follow(endpoint string, h http.Handler, kill func()) http.Handler {
	return http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		x := w.act.arrive(r.Header.Get(tagHeader))
		r.Header.Del(tagHeader)
		if kill != nil && w.faults.of(FaultWorkerDies, endpoint) != nil {
			kill()
			panic(http.ErrAbortHandler)
		}
		if w.faults.of(FaultBalancedWorker, endpoint) != nil {
			panic(http.ErrAbortHandler)
		}
		if x != nil {
			rest := func(yes bool) { w.act.sleeps(x, yes) }
			defer rest(false)
			r = r.WithContext(context.WithValue(r.Context(), taskKey{}, &task{w, rest}))
		}
		h.ServeHTTP(out, r)
	})
}

// A listener is the HTTP server of a worker in a container.
type listener struct {
	server  *http.Server
	pipes   *pipelistener.Listener
	handler http.Handler // which answers the health checks
}

// listen starts the HTTP server of a worker. It ends with the container or with the instance.
func (c *containerWorkers) listen(podID string, h *containerWorker, i *image) {
	w := c.instance
	requests := w.follow(h.spec.Endpoint, i.requests, func() { w.containers.Kill(podID, 137, "signal 9") })
	l := &listener{
		server: &http.Server{Handler: requests, ErrorLog: log.New(io.Discard, "", 0)}, //nolint:gosec // its only client is the proxy, which has timeouts
		pipes:  pipelistener.New(), handler: i.requests,
	}
	h.listener = l
	w.start(func(ctx context.Context) {
		defer context.AfterFunc(ctx, l.close)()
		_ = l.server.Serve(l.pipes) // it ends with close
	})
}

func (l *listener) close() {
	_ = l.server.Close() // pipes in memory
	_ = l.pipes.Close()
}

var errRefused = errors.New("double: connection refused: no worker listens")

// listenerAt returns the listener at an address of workerFleet.WorkerAddress, and its endpoint.
func (c *containerWorkers) listenerAt(address string) (l *listener, endpoint string, err error) {
	podID, _, err := net.SplitHostPort(address)
	if err != nil {
		return nil, "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	h := c.list[podID]
	if h == nil || h.listener == nil {
		return nil, "", errRefused
	}
	return h.listener, h.spec.Endpoint, nil
}

// WorkerAddress implements fleet.WorkerPorts. The address is a name that only this process knows.
func (f *workerFleet) WorkerAddress(endpoint string, id serverless.WorkerID, port int) (address string, ok bool) {
	return net.JoinHostPort(podfleet.PodID(endpoint, id), strconv.Itoa(port)), true
}

// dialWorker connects to a worker in a container.
func (w *instance) dialWorker(ctx context.Context, address string) (net.Conn, error) {
	l, _, err := w.workers.listenerAt(address)
	if err != nil {
		return nil, err
	}
	return l.pipes.Dial(ctx)
}

// A prober makes health checks without connections, one after another. It is a balance.Prober.
type prober struct{ instance *instance }

var _ balance.Prober = prober{}

// Probe implements balance.Prober. The clock stands still meanwhile, so the patience is in wall time.
func (p prober) Probe(ctx context.Context, address, path string) (status int, err error) {
	w := p.instance
	l, endpoint, err := w.workers.listenerAt(address)
	if err != nil {
		return 0, err
	}
	if f := w.faults.of(FaultBalancedHealth, endpoint); f != nil {
		return cmp.Or(f.Status, http.StatusInternalServerError), nil
	}
	ctx, cancel := context.WithTimeout(ctx, w.settle)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return 0, err
	}
	r.RequestURI, r.RemoteAddr = path, "192.0.2.1:1"
	r.Header.Set("User-Agent", healthAgent)
	answered := make(chan int, 1)
	go func() {
		defer func() {
			if recover() != nil {
				answered <- 0
			}
		}()
		b := newBuffer()
		l.handler.ServeHTTP(b, r)
		answered <- b.status
	}()
	select {
	case status := <-answered:
		if status == 0 {
			return 0, errRefused
		}
		return status, nil
	case <-ctx.Done():
		return 0, ctx.Err()
	}
}

// healthAgent is the User-Agent of a health check.
const healthAgent = "podyard-health"

// runCheck runs a health check after what is scheduled at this instant. The activity is not asked:
// the balancer holds its mutex.
func (w *instance) runCheck(check func()) {
	w.schedule(func(context.Context) { check() })
	select {
	case w.woken <- struct{}{}:
	default:
	}
}

// requestsChanged is called when requests wait, get a worker or end.
func (w *instance) requestsChanged(string) {
	w.act.bump()
	w.wake()
}

func (x *exchange) isBalanced() bool { return x.op != nil && x.op.API == httpapi.APIBalance }

// tag marks a request for a worker, so that its handler finds x.
func (a *activity) tag(x *exchange, r *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.tags++
	x.tag = strconv.Itoa(a.tags)
	r.Header = r.Header.Clone()
	r.Header.Set(tagHeader, x.tag)
}

// arrive notes that a request has come to a worker. It returns nil for one that is unknown.
func (a *activity) arrive(tag string) *exchange {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x := range a.requests {
		if tag != "" && x.tag == tag {
			x.stage = atWorker
			a.changed()
			return x
		}
	}
	return nil
}

// A stage says where a request to a worker is.
type stage uint8

const (
	onItsWay stage = iota // it waits for a worker, or has one
	atWorker              // its handler works, or has answered
	asleep                // its handler waits by the clock
)

// sleeps notes whether the worker of a request waits by the clock.
func (a *activity) sleeps(x *exchange, yes bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	x.stage = atWorker
	if yes {
		x.stage = asleep
	}
	a.version++
	a.changed()
}

// isBusy reports whether a request to a worker is about to continue: it waits neither for a worker
// nor in one. The caller holds the lock.
func (a *activity) isBusy(x *exchange, now time.Time) bool {
	switch {
	case x.resting:
		return false
	case x.stage != onItsWay:
		return x.stage != asleep
	case !x.until.IsZero() && !now.Before(x.until):
		return true
	}
	n := 0
	for y := range a.requests {
		if y.tag != "" && y.endpoint == x.endpoint && y.stage == onItsWay && !y.resting {
			n++
		}
	}
	return n > a.waiting(x.endpoint)
}

// requestsUnderWay reports whether a worker has a request for which time alone does something.
func (a *activity) requestsUnderWay() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	for x := range a.requests {
		if x.stage == asleep {
			return true
		}
	}
	return false
}
