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
)

// A staff is a Fleet whose workers are goroutines that speak to the service as the routes
// of the worker protocol do. The image says what kind of worker it is.
type staff struct {
	s *serverless.Service

	mu       sync.Mutex
	workers  map[serverless.WorkerID]*hired
	watchers []func(serverless.FleetWorker)
	room     int // workers at once; 0: any number
	started  []serverless.WorkerSpec
	calling  map[serverless.WorkerID]bool
	most     int
	faults   []string
	refuse   error // of Start
	runs     sync.WaitGroup
}

type hired struct {
	fw     serverless.FleetWorker
	spec   serverless.WorkerSpec
	cancel context.CancelFunc
	done   chan struct{}
	dead   chan struct{} // closed by kill
	once   sync.Once
}

// kill ends the worker in the middle of whatever it does.
func (h *hired) kill() { h.once.Do(func() { close(h.dead) }) }

func (f *staff) fault(format string, args ...any) {
	f.faults = append(f.faults, fmt.Sprintf(format, args...))
}

// enter notes a call about a worker; leave ends it.
func (f *staff) enter(id serverless.WorkerID) (leave func()) {
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

func (f *staff) Start(_ context.Context, w serverless.WorkerSpec) error {
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
		return serverless.ErrNoRoom
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &hired{spec: w, cancel: cancel, done: make(chan struct{}), dead: make(chan struct{}), fw: serverless.FleetWorker{
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
func (f *staff) alive() (n int) {
	for _, h := range f.workers {
		if h.fw.State != serverless.FleetEnded {
			n++
		}
	}
	return n
}

func (f *staff) Stop(_ context.Context, _ string, id serverless.WorkerID, grace time.Duration) error {
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

func (f *staff) Workers(context.Context) (list []serverless.FleetWorker, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, h := range f.workers {
		list = append(list, h.fw)
	}
	return list, nil
}

func (f *staff) Watch(ctx context.Context, fn func(serverless.FleetWorker)) error {
	f.mu.Lock()
	f.watchers = append(f.watchers, fn)
	f.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

// tell changes a worker and says so.
func (f *staff) tell(h *hired, change func(*serverless.FleetWorker)) {
	f.mu.Lock()
	change(&h.fw)
	fw, watchers := h.fw, slices.Clone(f.watchers)
	f.mu.Unlock()
	for _, fn := range watchers {
		fn(fw)
	}
}

// run is the worker until it ends, is stopped, or dies.
func (f *staff) run(ctx context.Context, h *hired) {
	defer close(h.done)
	life, end := context.WithCancel(context.Background())
	defer end()
	worked := make(chan string, 1)
	go func() { worked <- f.work(life, ctx, h) }()
	select {
	case exit := <-worked:
		if exit != "" {
			f.tell(h, func(w *serverless.FleetWorker) { w.State, w.Exit = serverless.FleetEnded, exit })
		}
	case <-h.dead:
		f.tell(h, func(w *serverless.FleetWorker) { w.State, w.Exit = serverless.FleetEnded, "signal 9" })
		end()
		<-worked
	}
}

// work boots and does jobs until term ends, or at once life. It says how it ended by
// itself.
func (f *staff) work(life, term context.Context, h *hired) (exit string) {
	kind := h.spec.Container.Image
	if !sleep(life, 2*time.Second) || term.Err() != nil {
		return ""
	}
	f.tell(h, func(w *serverless.FleetWorker) { w.State, w.Started = serverless.FleetUp, time.Now() })
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
		_ = f.service().Report(life, serverless.Op{
			Ref: ref, Kind: serverless.OpFinish, Status: serverless.Completed,
			Worker: h.spec.ID, Adopt: true, Payload: []byte(`"done"`),
		})
		mu.Lock()
		has = nil
		mu.Unlock()
	}
	return ""
}

// service is the one of the day.
func (f *staff) service() *serverless.Service {
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

// A yard is a service with a staff and one endpoint, "e".
type yard struct {
	*serverless.Service
	staff     *staff
	queue     serverless.JobQueue
	endpoints serverless.EndpointStore
	meter     tally
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

func image(kind string, lo, hi int) *serverless.Endpoint {
	e := delayed(lo, hi, 4*time.Second)
	e.Owner, e.Container, e.Version = "alice", serverless.Container{Image: kind}, 1
	e.CPU = []serverless.EndpointCPU{{ID: "cpu5c", VCPU: 2, Memory: 4}}
	return e
}

func newYard(t *testing.T, e *serverless.Endpoint) *yard {
	t.Helper()
	y := &yard{endpoints: memory.NewEndpoints(), queue: memory.NewJobs(), staff: &staff{
		workers: map[serverless.WorkerID]*hired{}, calling: map[serverless.WorkerID]bool{},
	}}
	if err := y.endpoints.Create(t.Context(), e); err != nil {
		t.Fatal(err)
	}
	y.open(t, "secret")
	t.Cleanup(func() {
		y.stop()
		y.staff.mu.Lock()
		hired := maps.Clone(y.staff.workers)
		y.staff.mu.Unlock()
		for _, h := range hired {
			h.cancel()
		}
		y.staff.runs.Wait()
		for _, fault := range y.staff.faults {
			t.Error(fault)
		}
	})
	return y
}

// open runs a service over what the yard has, as a process does that comes after another.
func (y *yard) open(t *testing.T, secret string) {
	t.Helper()
	y.opened++
	seed := [32]byte{y.opened, 7} // no id comes twice
	y.Service = serverless.New(y.queue, y.endpoints, &serverless.Options{
		Fleet: y.staff, WorkerURL: func() string { return "http://127.0.0.1:8080/v2" },
		WorkerSecret: []byte(secret), Rand: rand.NewChaCha8(seed), Meter: &y.meter,
		Logger: slog.New(slog.NewTextHandler(&y.log, nil)),
	})
	y.staff.mu.Lock()
	y.staff.s, y.staff.watchers = y.Service, nil
	y.staff.mu.Unlock()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	s := y.Service
	go func() { done <- s.Run(ctx) }()
	y.stop = func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	}
	synctest.Wait()
}

func (y *yard) submit(t *testing.T, n int, low bool) (last serverless.Job) {
	t.Helper()
	for range n {
		j, err := y.Submit(t.Context(), "alice", "e", serverless.Request{Input: []byte(`{}`), Policy: serverless.Policy{LowPriority: low}})
		if err != nil {
			t.Fatal(err)
		}
		last = j
	}
	return last
}

func (y *yard) counts(t *testing.T) serverless.WorkerCounts {
	t.Helper()
	h, err := y.Health(t.Context(), "e")
	if err != nil {
		t.Fatal(err)
	}
	return h.Workers
}

func (y *yard) job(t *testing.T, j serverless.Job) serverless.Job {
	t.Helper()
	j, err := y.Get(t.Context(), "alice", j.Ref)
	if err != nil {
		t.Fatal(err)
	}
	return j
}

func (y *yard) change(t *testing.T, fn func(*serverless.Endpoint)) {
	t.Helper()
	if _, err := y.endpoints.Update(t.Context(), "e", func(e *serverless.Endpoint) error { fn(e); return nil }); err != nil {
		t.Fatal(err)
	}
}

// there is how many workers the fleet has that run.
func (y *yard) there() int {
	y.staff.mu.Lock()
	defer y.staff.mu.Unlock()
	return y.staff.alive()
}

// ids are the workers that the fleet has.
func (y *yard) ids() []serverless.WorkerID {
	y.staff.mu.Lock()
	defer y.staff.mu.Unlock()
	return slices.Sorted(maps.Keys(y.staff.workers))
}

// first is the worker that was started first.
func (y *yard) first() serverless.WorkerSpec {
	y.staff.mu.Lock()
	defer y.staff.mu.Unlock()
	return y.staff.started[0]
}

// most is how many workers there were at once.
func (y *yard) most() int {
	y.staff.mu.Lock()
	defer y.staff.mu.Unlock()
	return y.staff.most
}

func (y *yard) starts() int {
	y.staff.mu.Lock()
	defer y.staff.mu.Unlock()
	return len(y.staff.started)
}
