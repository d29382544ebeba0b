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
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// What a server has unless its Options say otherwise.
const (
	DefaultKey         = "podyard-test-key"
	DefaultSettle      = time.Second
	DefaultConcurrency = 1024
)

// User is whose records the key of Options makes and sees.
const User = "tester"

// DefaultStart is when the clock begins.
var DefaultStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// Options of a Server. The zero value, and nil, work.
type Options struct {
	Seed  uint64    // of ids, jitter and probabilities
	Start time.Time // default DefaultStart
	// Key has every scope and belongs to User. Default DefaultKey.
	Key  string
	Keys []httpapi.Key // besides Key
	// Catalog is what pods can be made of. Default: catalog.Sample.
	Catalog *catalog.Catalog
	// Images say how containers behave; those of other images are up after a second.
	Images        []memory.Script
	Quotas        ratelimit.Quotas // default: those of the product
	PerWorkerRate int              // requests per 10 s for each running worker
	// WebhookSecret signs webhooks: "whsec_" and the base64 of 24 to 64 bytes. Default:
	// made from the seed.
	WebhookSecret string
	// Receiver has webhooks go on to where they are meant for, after the inbox has seen
	// them. Default: the inbox answers 200, and nothing leaves the process. Their timestamps
	// are of the clock here: a receiver that compares them with the system's needs a Start
	// close to it.
	Receiver http.RoundTripper
	// Settle is how long of wall time the clock waits for a worker or request that neither
	// ends nor waits for the clock. Default DefaultSettle.
	Settle time.Duration
	// Logger gets what the services log. Default: nothing is logged.
	Logger *slog.Logger
}

// A Server is the product on memory, with a clock of its own that stands still until it
// is moved. Run must be running for requests to be answered. It is safe for concurrent use;
// calls that move time are made one after another.
type Server struct {
	o       Options
	faults  *faults
	swapped chan struct{} // there is a new world to run

	mu       sync.Mutex
	instance *instance
	running  bool
	served   map[string]*localWorker // by Handle: they survive a reset
	images   []*image                // by Image: so do they
	scripts  map[string]*outcomeList // by Endpoint and ImageScript: they do not
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

// Run lets the server work until ctx ends, and returns nil when every goroutine it started
// has ended. It is called once.
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

// Handler serves the whole interface, on whatever listener. Requests wait until Run is
// running.
func (s *Server) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { s.current().serve(w, r) })
}

// Key is a key with every scope.
func (s *Server) Key() string { return s.o.Key }

// WebhookSecret is what webhooks are signed with.
func (s *Server) WebhookSecret() string { return s.current().secret }

// Services are those behind the handler, until the next reset.
func (s *Server) Services() httpapi.Services { return s.current().services }

// Reset makes everything as it was after New, with another seed: the clock, all records,
// faults, scripts and the journal. What Handle has set stays. Requests under way end.
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
	default: // Run has yet to look, and finds the last one
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

// Seed is the seed in use.
func (s *Server) Seed() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.o.Seed
}

// SetSeed has the ids and probabilities that follow come from another seed; everything else
// stays. An error says that this seed was in use since the last reset: its ids are taken.
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

// Handle has a worker in this process run the jobs of an endpoint, DefaultConcurrency at
// once, and makes the endpoint if there is none. A worker that waits does so with Sleep:
// the clock does not know of other ways to wait, and moves only when those who do
// something else have come to rest, or Options.MinReadyTime has passed.
func (s *Server) Handle(ctx context.Context, endpoint string, w serverless.Worker) error {
	return s.HandleN(ctx, endpoint, w, DefaultConcurrency)
}

// HandleN is Handle with n jobs at once.
func (s *Server) HandleN(ctx context.Context, endpoint string, w serverless.Worker, n int) error {
	if n < 1 {
		return fmt.Errorf("double: endpoint %q: at least one job at once", endpoint)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.served[endpoint] != nil || s.scripts[endpoint] != nil {
		return fmt.Errorf("double: endpoint %q has a worker or a script already", endpoint)
	}
	l := &localWorker{endpoint, w, n}
	if err := s.instance.join(ctx, l); err != nil {
		return err
	}
	s.served[endpoint] = l
	return nil
}

// Image has workers of an image run in this process: endpoints that name it have as many
// as the scaler of the product starts, which are on their way for as long as ImageOptions
// say, take jobs, and end when they are idle. name is a pattern in which '*' stands for any
// characters; what was set last comes first. Endpoints with images that nobody has named
// are served by whoever comes for their jobs. The worker waits as one of Handle does; o may
// be nil.
func (s *Server) Image(name string, w serverless.Worker, o *ImageOptions) error {
	i, err := newImage(name, w, o)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.images = append(slices.DeleteFunc(s.images, func(old *image) bool { return old.pattern == name }), i)
	s.instance.addImage(i)
	return nil
}

// ImageScript is Image for workers that do what a script says, which is made if there is
// none; o counts then.
func (s *Server) ImageScript(name string, o *ImageOptions) (*Script, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := "image " + name // no endpoint has such an id
	if b := s.scripts[key]; b != nil {
		return &Script{outcomes: b}, nil
	}
	b := &outcomeList{endpoint: name, sleep: s.instance.sleep, hang: hang}
	i, err := newImage(name, b, o)
	if err != nil {
		return nil, err
	}
	s.scripts[key] = b
	s.instance.addImage(i)
	return &Script{outcomes: b}, nil
}

// Declare makes an endpoint with an id of one's own, which every key may use, or changes
// it: settings are what POST /v2/serverless takes, as anything that is its JSON. Those that
// are absent have their defaults; name is the id, type QUEUE, scaling by a queue delay of
// 4 s, and cpu one of the catalog's.
func (s *Server) Declare(ctx context.Context, id string, settings any) error {
	w := s.current()
	if err := w.declare(ctx, id, settings); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", id, err)
	}
	w.wake()
	return nil
}

// Endpoint is the script of an endpoint, which is made if there is none.
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
	if err := s.instance.join(ctx, &localWorker{id, b, DefaultConcurrency}); err != nil {
		return nil, err
	}
	s.scripts[id] = b
	return &Script{outcomes: b}, nil
}

// Queue makes an endpoint without a worker, if there is none: its jobs wait for a remote
// one.
func (s *Server) Queue(ctx context.Context, id string) error {
	if err := endpoints.CheckID(id); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", id, err)
	}
	return s.current().endpoint(ctx, id)
}

// Now is what the clock shows.
func (s *Server) Now() time.Time { return s.current().clock.Now() }

// Advance moves the clock on by d, from one due instant to the next. It returns when
// everything that is due by then has been done and workers have come to rest. An error is
// that of ctx, of a negative d, or of a store.
func (s *Server) Advance(ctx context.Context, d time.Duration) error {
	return s.current().advance(ctx, d)
}

// SetTime moves the clock on to t, which is not in its past.
func (s *Server) SetTime(ctx context.Context, t time.Time) error {
	w := s.current()
	return w.advance(ctx, t.Sub(w.clock.Now()))
}

// Settle waits until everything that is due now has been done.
func (s *Server) Settle(ctx context.Context) error { return s.Advance(ctx, 0) }

// RunUntilIdle moves the clock on as long as time alone brings something to an end: a job
// that a worker of this process has, a webhook that is to be tried again, and for an hour at
// most a pod on its way, a worker of an image on its way, or a job that waits for one. It
// says how far the clock has moved. Jobs that wait for another worker, or that a remote
// worker has, do not count.
func (s *Server) RunUntilIdle(ctx context.Context) (time.Duration, error) {
	return s.current().untilIdle(ctx)
}

// Sleep waits by the clock, until d has passed or ctx ends, whose cause it returns then.
// In a worker that Handle has set it lets time pass meanwhile.
func (s *Server) Sleep(ctx context.Context, d time.Duration) error {
	if t, _ := ctx.Value(taskKey{}).(*task); t != nil {
		return t.instance.sleep(ctx, d)
	}
	return s.current().sleep(ctx, d)
}

// Fault has something go wrong from now on. Its id is for ClearFault.
func (s *Server) Fault(f Fault) (id int, err error) { return s.faults.add(f) }

// ClearFault ends one fault, and reports false when there is none of this id.
func (s *Server) ClearFault(id int) bool { return s.faults.plan.Remove(id) }

// ClearFaults ends all of them.
func (s *Server) ClearFaults() { s.faults.plan.Clear() }

// Faults are those that were set and are not used up.
func (s *Server) Faults() []ActiveFault { return s.faults.active() }

// Requests are all requests with their answers, in the order in which they came.
func (s *Server) Requests() []Entry { return s.current().journal.all() }

// Jobs are all jobs that were submitted, in their order, those that are deleted included.
func (s *Server) Jobs() []JobRecord { return s.current().jobs.all() }

// Webhooks are all attempts to deliver one, in their order.
func (s *Server) Webhooks() []Delivered { return s.current().inbox.all() }

// ClearJournal forgets requests and webhooks. Jobs stay: they are still there.
func (s *Server) ClearJournal() {
	w := s.current()
	w.journal.clear()
	w.inbox.clear()
}
