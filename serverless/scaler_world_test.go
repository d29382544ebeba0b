package serverless_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/queue"
)

// A goroutineFleet is a Fleet whose workers are goroutines that speak to the service as the routes
// of the worker protocol do. The image says what kind of worker it is.
type goroutineFleet struct {
	s *serverless.Service

	mu       sync.Mutex
	workers  map[serverless.WorkerID]*goroutineWorker
	watchers []func(fleet.Instance)
	room     int // workers at once; 0: any number
	started  []fleet.WorkerSpec
	calling  map[serverless.WorkerID]bool
	most     int
	faults   []string
	refuse   error // of Start
	runs     sync.WaitGroup
}

type goroutineWorker struct {
	fw     fleet.Instance
	spec   fleet.WorkerSpec
	cancel context.CancelFunc
	done   chan struct{}
	dead   chan struct{} // closed by kill
	once   sync.Once
}

// kill ends the worker in the middle of whatever it does.
func (h *goroutineWorker) kill() { h.once.Do(func() { close(h.dead) }) }

func (f *goroutineFleet) fault(format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// enter records a call about a worker; leave ends it.
func (f *goroutineFleet) enter(id serverless.WorkerID) (leave func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.calling[id] {
		f.fault("two calls at once for %s", id)
	}
	f.calling[id] = true
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.calling, id)
	}
}

func (f *goroutineFleet) Start(_ context.Context, w fleet.WorkerSpec) error {
	defer f.enter(w.ID)()
	time.Sleep(50 * time.Millisecond) // as an engine takes it
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.refuse != nil {
		return f.refuse
	}
	if f.workers[w.ID] != nil {
		return nil
	}
	if f.room > 0 && f.alive() >= f.room {
		return fleet.ErrNoCapacity
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &goroutineWorker{spec: w, cancel: cancel, done: make(chan struct{}), dead: make(chan struct{}), fw: fleet.Instance{
		Endpoint: w.Endpoint, ID: w.ID, Release: w.Release, Image: w.Container.Image,
		CPU: w.CPU[0].ID, VCPUs: w.CPU[0].VCPU,
	}}
	f.workers[w.ID] = h
	f.started = append(f.started, w)
	f.most = max(f.most, f.alive())
	f.runs.Go(func() { f.run(ctx, h) })
	return nil
}

// alive is how many processes there are.
func (f *goroutineFleet) alive() (n int) {
	for _, h := range f.workers {
		if h.fw.State != fleet.InstanceEnded {
			n++
		}
	}
	return n
}

func (f *goroutineFleet) Stop(_ context.Context, _ string, id serverless.WorkerID, grace time.Duration) error {
	defer f.enter(id)()
	f.mu.Lock()
	h := f.workers[id]
	f.mu.Unlock()
	if h == nil {
		return nil
	}
	h.cancel()
	select {
	case <-h.done:
	case <-time.After(grace):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.workers, id)
	return nil
}

func (f *goroutineFleet) Workers(context.Context) (list []fleet.Instance, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.workers {
		list = append(list, h.fw)
	}
	return list, nil
}

func (f *goroutineFleet) Watch(ctx context.Context, fn func(fleet.Instance)) error {
	f.mu.Lock()
	f.watchers = append(f.watchers, fn)
	f.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// tell changes a worker and reports the change.
func (f *goroutineFleet) tell(h *goroutineWorker, change func(*fleet.Instance)) {
	f.mu.Lock()
	change(&h.fw)
	fw, watchers := h.fw, slices.Clone(f.watchers)
	f.mu.Unlock()
	for _, fn := range watchers {
		fn(fw)
	}
}

// run is the worker until it ends, is stopped, or dies.
func (f *goroutineFleet) run(ctx context.Context, h *goroutineWorker) {
	defer close(h.done)
	life, end := context.WithCancel(context.Background())
	defer end()
	worked := make(chan string, 1)
	go func() { worked <- f.work(life, ctx, h) }()
	select {
	case exit := <-worked:
		if exit != "" {
			f.tell(h, func(w *fleet.Instance) { w.State, w.Exit = fleet.InstanceEnded, exit })
		}
	case <-h.dead:
		f.tell(h, func(w *fleet.Instance) { w.State, w.Exit = fleet.InstanceEnded, "signal 9" })
		end()
		<-worked
	}
}

// work boots and runs jobs until term ends, or life ends, which stops it at once. It returns how
// it ended by itself.
func (f *goroutineFleet) work(life, term context.Context, h *goroutineWorker) (exit string) {
	kind := h.spec.Container.Image
	if !sleep(life, 2*time.Second) || term.Err() != nil {
		return ""
	}
	f.tell(h, func(w *fleet.Instance) { w.State, w.Started = fleet.InstanceRunning, time.Now() })
	switch kind {
	case "crash":
		sleep(life, time.Second)
		return "exit code 1"
	case "silent":
		<-term.Done()
		return ""
	}
	var mu sync.Mutex
	var has []serverless.JobID
	pings := make(chan struct{})
	defer func() { <-pings }()
	life, end := context.WithCancel(life)
	defer end()
	go func() { // a process of its own, as in the SDK
		defer close(pings)
		for sleep(life, 10*time.Second) {
			mu.Lock()
			lists := slices.Clone(has)
			mu.Unlock()
			_ = f.service().Ping(life, h.spec.Endpoint, h.spec.ID, lists)
		}
	}()
	for served := 0; term.Err() == nil && life.Err() == nil; served++ {
		hold, cancel := context.WithTimeout(life, 25*time.Second)
		stop := context.AfterFunc(term, cancel)
		jobs, _ := f.service().Take(hold, h.spec.Endpoint, h.spec.ID, 1)
		stop()
		cancel()
		if len(jobs) == 0 {
			served--
			continue
		}
		ref := jobs[0].Ref
		mu.Lock()
		has = []serverless.JobID{ref.ID}
		mu.Unlock()
		switch {
		case kind == "dies" || kind == "dies later" && served > 0:
			sleep(life, time.Second)
			return "signal 9"
		case kind == "long":
			sleep(life, time.Minute)
		case kind == "stubborn":
			if !sleep(term, time.Hour) {
				return ""
			}
		default:
			sleep(life, time.Second)
		}
		if life.Err() != nil {
			return ""
		}
		_ = f.service().Report(life, queue.Op{
			Ref: ref, Kind: queue.OpFinish, Status: serverless.Completed,
			Worker: h.spec.ID, Adopt: true, Payload: []byte(`"done"`),
		})
		mu.Lock()
		has = nil
		mu.Unlock()
	}
	return ""
}

// service is the one of the day.
func (f *goroutineFleet) service() *serverless.Service {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.s
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A scaledService is a service with a fleet and one endpoint, "e".
type scaledService struct {
	logs   joblog.Store
	served serverless.Fleet // fleet, or what wraps it
	seen   observer
	*serverless.Service
	fleet     *goroutineFleet
	queue     serverless.JobQueue
	endpoints serverless.EndpointStore
	meter     recordingMeter
	stop      func()
	opened    byte
	log       logText
}

// A logText is a log that can be read while it is written.
type logText struct {
	mu   sync.Mutex
	text []byte
}

func (j *logText) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	return len(b), nil
}

func (j *logText) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.text)
}

func delayed(lo, hi int, delay time.Duration) *serverless.Endpoint {
	return &serverless.Endpoint{
		ID: "e", Workers: endpoints.WorkerLimits{Min: lo, Max: hi},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: delay},
	}
}

func image(kind string, lo, hi int) *serverless.Endpoint {
	e := delayed(lo, hi, 4*time.Second)
	e.Owner, e.Container, e.Version = "alice", endpoints.Container{Image: kind}, 1
	e.CPU = []endpoints.CPU{{ID: "cpu5c", VCPU: 2, Memory: 4}}
	return e
}

func newScaledService(t *testing.T, e *serverless.Endpoint, with ...func(serverless.Fleet) serverless.Fleet) *scaledService {
	t.Helper()
	svc := &scaledService{endpoints: memory.NewEndpoints(), queue: memory.NewJobs(), logs: memory.NewJobLogs(), fleet: &goroutineFleet{
		workers: map[serverless.WorkerID]*goroutineWorker{}, calling: map[serverless.WorkerID]bool{},
	}}
	if err := svc.endpoints.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	svc.served = svc.fleet
	for _, f := range with {
		svc.served = f(svc.served)
	}
	svc.open(t, "secret")
	t.Cleanup(func() {
		svc.stop()
		svc.fleet.mu.Lock()
		running := maps.Clone(svc.fleet.workers)
		svc.fleet.mu.Unlock()
		for _, h := range running {
			h.cancel()
		}
		svc.fleet.runs.Wait()
		for _, fault := range svc.fleet.faults {
			t.Error(fault)
		}
	})
	return svc
}

// open runs a service over the existing stores, like a process after a restart.
func (svc *scaledService) open(t *testing.T, secret string) {
	t.Helper()
	svc.opened++
	seed := [32]byte{svc.opened, 7} // no id comes twice
	svc.Service = serverless.New(svc.queue, svc.endpoints, &serverless.Options{
		Fleet: svc.served, Observer: &svc.seen, WorkerURL: func() string { return "http://127.0.0.1:8080/v2" },
		WorkerSecret: []byte(secret), Rand: rand.NewChaCha8(seed), Meter: &svc.meter, JobLogs: svc.logs,
		Logger: slog.New(slog.NewTextHandler(&svc.log, nil)),
	})
	svc.fleet.mu.Lock()
	svc.fleet.s, svc.fleet.watchers = svc.Service, nil
	svc.fleet.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	s := svc.Service
	go func() { done <- s.Run(ctx) }()
	svc.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}
	synctest.Wait()
}

func (svc *scaledService) submit(t *testing.T, n int, low bool) (last serverless.Job) {
	t.Helper()
	for range n {
		j, err := svc.Submit(t.Context(), "alice", "e", serverless.Request{Input: []byte(`{}`), Policy: serverless.Policy{LowPriority: low}})
		if err != nil {
			t.Fatal(err)
		}
		last = j
	}
	return last
}

func (svc *scaledService) counts(t *testing.T) serverless.WorkerCounts {
	t.Helper()
	h, err := svc.Health(t.Context(), "e")
	if err != nil {
		t.Fatal(err)
	}
	return h.Workers
}

func (svc *scaledService) job(t *testing.T, j serverless.Job) serverless.Job {
	t.Helper()
	j, err := svc.Get(t.Context(), "alice", j.Ref)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (svc *scaledService) change(t *testing.T, fn func(*serverless.Endpoint)) {
	t.Helper()
	if _, err := svc.endpoints.Update(t.Context(), "e", func(e *serverless.Endpoint) error { fn(e); return nil }); err != nil {
		t.Fatal(err)
	}
}

// there returns the number of running workers of the fleet.
func (svc *scaledService) there() int {
	svc.fleet.mu.Lock()
	defer svc.fleet.mu.Unlock()
	return svc.fleet.alive()
}

// ids returns the workers of the fleet.
func (svc *scaledService) ids() []serverless.WorkerID {
	svc.fleet.mu.Lock()
	defer svc.fleet.mu.Unlock()
	return slices.Sorted(maps.Keys(svc.fleet.workers))
}

// first returns the worker that was started first.
func (svc *scaledService) first() fleet.WorkerSpec {
	svc.fleet.mu.Lock()
	defer svc.fleet.mu.Unlock()
	return svc.fleet.started[0]
}

// most returns the largest number of workers at once.
func (svc *scaledService) most() int {
	svc.fleet.mu.Lock()
	defer svc.fleet.mu.Unlock()
	return svc.fleet.most
}

func (svc *scaledService) starts() int {
	svc.fleet.mu.Lock()
	defer svc.fleet.mu.Unlock()
	return len(svc.fleet.started)
}
