package double

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// Defaults of Options.
const (
	DefaultKey         = "podyard-test-key"
	DefaultSettle      = time.Second
	DefaultConcurrency = 1024
)

// User is the user of the key of Options.
const User = "tester"

// DefaultStart is the default time of the clock.
var DefaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options configures a Server. The zero value and nil work.
type Options struct {
	Seed  uint64    // of ids, jitter and probabilities
	Start time.Time // default DefaultStart
	// Key has every scope and belongs to User. Default DefaultKey.
	Key  string
	Keys []httpapi.Key // besides Key
	// Catalog is what can be rented. Default: catalog.Sample.
	Catalog *catalog.Catalog
	// Images are scripts of containers. Containers of other images run after a second.
	Images        []memory.Script
	Quotas        ratelimit.Quotas // default: those of the product
	PerWorkerRate int              // requests per 10 s for each running worker
	Budgets       budget.Users     // what users may hold; default: no limits
	// WebhookSecret signs webhooks: "whsec_" and the base64 of 24 to 64 bytes. Default:
	// made from the seed.
	WebhookSecret string
	// Receiver sends webhooks to their receivers, after the inbox has recorded them. Default:
	// the inbox answers 200, and nothing leaves the process. Timestamps follow the clock of the
	// Server: a receiver that compares them with its own clock needs a Start close to it.
	Receiver http.RoundTripper
	// Settle is how long, in wall time, the clock waits for a worker or request that neither
	// ends nor waits for the clock. Default DefaultSettle.
	Settle time.Duration
	// Logger gets what the services log. Default: nothing is logged.
	Logger *slog.Logger
}

// A Server is the product on memory stores, with a clock that stands still until it is moved.
// Requests are answered while Run is running. It is safe for concurrent use; calls that move
// time run one after another.
type Server struct {
	o       Options
	faults  *faults
	swapped chan struct{} // there is a new instance to run

	mu       sync.Mutex
	instance *instance
	running  bool
	served   map[string]*localWorker // by Handle and HandleHTTP; kept at a reset
	images   []*image                // by Image and ImageHTTP; kept at a reset
	scripts  map[string]*outcomeList // by Endpoint and ImageScript; removed at a reset
}

// New returns a server whose clock stands at Options.Start. It starts nothing. o may be
// nil.
func New(o *Options) (*Server, error) {
	s := &Server{swapped: make(chan struct{}, 1), served: map[string]*localWorker{}, scripts: map[string]*outcomeList{}}
	if o != nil {
		s.o = *o
	}
	if s.o.Start.IsZero() {
		s.o.Start = DefaultStart
	}
	if s.o.Key == "" {
		s.o.Key = DefaultKey
	}
	if s.o.Catalog == nil {
		c := catalog.Sample()
		s.o.Catalog = &c
	}
	if s.o.Settle <= 0 {
		s.o.Settle = DefaultSettle
	}
	s.faults = newFaults(s.o.Seed)
	w, err := newInstance(&s.o, s.faults, s.o.Seed)
	if err != nil {
		return nil, err
	}
	s.instance = w
	return s, nil
}

// Run runs the server until ctx ends, and returns nil when every goroutine that it started has
// ended. Call it once.
func (s *Server) Run(ctx context.Context) error {
	s.mu.Lock()
	again := s.running
	s.running = true
	s.mu.Unlock()
	if again {
		return errors.New("double: it runs already")
	}
	for {
		if err := s.current().run(ctx); err != nil {
			return err
		}
		select {
		case <-s.swapped:
		case <-ctx.Done():
			s.current().retire()
			return nil
		}
	}
}

func (s *Server) current() *instance {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instance
}

// Ready is closed when requests are answered: soon after Run was called.
func (s *Server) Ready() <-chan struct{} { return s.current().ready }

// Handler serves the whole interface. Requests wait until Run is running.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.current().serve(w, r) })
}

// Key returns a key with every scope.
func (s *Server) Key() string { return s.o.Key }

// WebhookSecret returns the secret that signs webhooks.
func (s *Server) WebhookSecret() string { return s.current().secret }

// Services returns the services behind the handler, until the next reset.
func (s *Server) Services() httpapi.Services { return s.current().services }

// Reset restores the state after New, with another seed: the clock, all records, faults,
// scripts and the journal. Workers of Handle, HandleHTTP, Image and ImageHTTP stay. Requests in progress end.
func (s *Server) Reset(ctx context.Context, seed uint64) error {
	s.faults.plan.Reset(seed)
	w, err := newInstance(&s.o, s.faults, seed)
	if err != nil {
		return err
	}
	s.mu.Lock()
	old, running := s.instance, s.running
	s.o.Seed, s.instance, s.scripts = seed, w, map[string]*outcomeList{}
	for _, l := range s.served {
		if err := w.join(ctx, l); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	for _, i := range s.images {
		w.addImage(i)
	}
	s.mu.Unlock()
	old.retire()
	if !running {
		return nil
	}
	select {
	case s.swapped <- struct{}{}:
	default: // Run has not read the last one yet
	}
	select {
	case <-w.ready:
		return nil
	case <-w.retired: // by another reset, or with the server
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Seed returns the present seed.
func (s *Server) Seed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Seed
}

// SetSeed makes later ids and probabilities come from another seed; everything else stays. It
// returns an error if this seed was used since the last reset, because its ids are taken.
func (s *Server) SetSeed(seed uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.instance.random.reseed(seed); err != nil {
		return err
	}
	s.o.Seed = seed
	s.faults.plan.Reseed(seed)
	return nil
}

// Handle makes a worker in this process run the jobs of an endpoint, DefaultConcurrency at
// once, and makes the endpoint if there is none. A worker must wait with Sleep: the clock does
// not know other ways to wait, and then moves only after Options.Settle.
func (s *Server) Handle(ctx context.Context, endpoint string, w serverless.Worker) error {
	return s.HandleN(ctx, endpoint, w, DefaultConcurrency)
}

// HandleN is Handle with n jobs at once.
func (s *Server) HandleN(ctx context.Context, endpoint string, w serverless.Worker, n int) error {
	if n < 1 {
		return fmt.Errorf("double: endpoint %q: at least one job at once", endpoint)
	}
	return s.serve(ctx, &localWorker{endpoint: endpoint, worker: w, concurrency: n})
}

func (s *Server) serve(ctx context.Context, l *localWorker) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served[l.endpoint] != nil || s.scripts[l.endpoint] != nil {
		return fmt.Errorf("double: endpoint %q has a worker or a script already", l.endpoint)
	}
	if err := s.instance.join(ctx, l); err != nil {
		return err
	}
	s.served[l.endpoint] = l
	return nil
}

// Image makes workers of an image run in this process. Endpoints with the image have as many
// workers as the product's scaler starts; they start within ImageOptions.ColdStart, take jobs,
// and end when they are idle. name is a pattern in which '*' matches any characters; the last
// one that was set comes first. Endpoints with other images are served by remote workers. The
// worker must wait as for Handle; o may be nil.
func (s *Server) Image(name string, w serverless.Worker, o *ImageOptions) error {
	return s.setImage(name, &image{worker: w}, o)
}

func (s *Server) setImage(name string, i *image, o *ImageOptions) error {
	if err := i.name(name, o); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = append(slices.DeleteFunc(s.images, func(old *image) bool { return old.pattern == name }), i)
	s.instance.addImage(i)
	return nil
}

// ImageScript is Image for workers with a script. If there is no script, it makes one, with o.
func (s *Server) ImageScript(name string, o *ImageOptions) (*Script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := "image " + name // no endpoint has such an id
	if b := s.scripts[key]; b != nil {
		return &Script{outcomes: b}, nil
	}
	b := &outcomeList{endpoint: name, sleep: s.instance.sleep, hang: hang}
	i := &image{worker: b}
	if err := i.name(name, o); err != nil {
		return nil, err
	}
	s.scripts[key] = b
	s.instance.addImage(i)
	return &Script{outcomes: b}, nil
}

// Declare makes or changes an endpoint with the given id, which every key may use. settings are
// the body of POST /v2/serverless: any value that marshals to its JSON. Absent members have
// defaults; name is the id, type QUEUE, scaling a queue delay of 4 s, and cpu a flavor of the
// catalog.
func (s *Server) Declare(ctx context.Context, id string, settings any) error {
	w := s.current()
	if err := w.declare(ctx, id, settings); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", id, err)
	}
	w.wake()
	return nil
}

// Endpoint returns the script of an endpoint, and makes the endpoint if there is none.
func (s *Server) Endpoint(ctx context.Context, id string) (*Script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.scripts[id]; b != nil {
		return &Script{outcomes: b}, nil
	}
	if s.served[id] != nil {
		return nil, fmt.Errorf("double: endpoint %q has a worker and no script", id)
	}
	b := &outcomeList{endpoint: id, sleep: s.instance.sleep, hang: hang}
	if err := s.instance.join(ctx, &localWorker{endpoint: id, worker: b, concurrency: DefaultConcurrency}); err != nil {
		return nil, err
	}
	s.scripts[id] = b
	return &Script{outcomes: b}, nil
}

// Queue makes an endpoint without a worker, if there is none. Its jobs wait for a remote
// worker.
func (s *Server) Queue(ctx context.Context, id string) error {
	if err := endpoints.CheckID(id); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", id, err)
	}
	return s.current().endpoint(ctx, id)
}

// Now returns the time of the clock.
func (s *Server) Now() time.Time { return s.current().clock.Now() }

// Advance moves the clock by d, from one due instant to the next. It returns when everything
// that is due by then was done and workers are at rest. Errors: that of ctx, a negative d, or a
// store's.
func (s *Server) Advance(ctx context.Context, d time.Duration) error {
	return s.current().advance(ctx, d)
}

// SetTime moves the clock to t, which must not be in its past.
func (s *Server) SetTime(ctx context.Context, t time.Time) error {
	w := s.current()
	return w.advance(ctx, t.Sub(w.clock.Now()))
}

// Settle waits until everything that is due now was done.
func (s *Server) Settle(ctx context.Context) error { return s.Advance(ctx, 0) }

// RunUntilIdle moves the clock as long as time alone ends something: a job of a worker in this
// process, a webhook that will be tried again, and for an hour at most a starting pod, a
// starting worker of an image, or a job that waits for one. It returns how far the clock has
// moved. Jobs that wait for other workers, or that a remote worker has, do not count.
func (s *Server) RunUntilIdle(ctx context.Context) (time.Duration, error) {
	return s.current().untilIdle(ctx)
}

// Sleep waits until d has passed by the clock, or returns the cause of ctx when it ends. The
// clock can move while workers of this process are in Sleep.
func (s *Server) Sleep(ctx context.Context, d time.Duration) error {
	if t, _ := ctx.Value(taskKey{}).(*task); t != nil {
		return t.instance.sleep(ctx, d)
	}
	return s.current().sleep(ctx, d)
}

// Fault sets a fault. Its id is for ClearFault.
func (s *Server) Fault(f Fault) (id int, err error) { return s.faults.add(f) }

// ClearFault removes a fault. It reports false if there is none with this id.
func (s *Server) ClearFault(id int) bool { return s.faults.plan.Remove(id) }

// ClearFaults removes all faults.
func (s *Server) ClearFaults() { s.faults.plan.Clear() }

// Faults returns the faults that were set and are not used up.
func (s *Server) Faults() []ActiveFault { return s.faults.active() }

// Requests returns all requests with their answers, in their order.
func (s *Server) Requests() []Entry { return s.current().journal.all() }

// Jobs returns all submitted jobs in their order, also deleted ones.
func (s *Server) Jobs() []JobRecord { return s.current().jobs.all() }

// Webhooks returns all attempts to deliver a webhook, in their order.
func (s *Server) Webhooks() []Delivered { return s.current().inbox.all() }

// ClearJournal removes requests and webhooks from the journal. Jobs stay.
func (s *Server) ClearJournal() {
	w := s.current()
	w.journal.clear()
	w.inbox.clear()
}
