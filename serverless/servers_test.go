package serverless_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
)

// A mergingQueue is shared, and its events of a job that is ready stand for all that became
// ready within two milliseconds.
type mergingQueue struct{ serverless.JobQueue }

func (mergingQueue) Shared() bool { return true }

func (q mergingQueue) Watch(ctx context.Context, f func([]queue.Event)) error {
	var mu sync.Mutex
	pending := map[string]bool{}
	return q.JobQueue.Watch(ctx, func(evs []queue.Event) {
		mu.Lock()
		defer mu.Unlock()
		var now []queue.Event
		for _, e := range evs {
			if e.Kind != queue.EventReady {
				now = append(now, e)
			} else if !pending[e.Endpoint] {
				pending[e.Endpoint] = true
				time.AfterFunc(2*time.Millisecond, func() {
					mu.Lock()
					pending[e.Endpoint] = false
					mu.Unlock()
					f([]queue.Event{e})
				})
			}
		}
		if len(now) > 0 {
			f(now)
		}
	})
}

func lossy(q serverless.JobQueue) serverless.JobQueue { return serverlesstest.Lossy(q, 0) }

func merging(q serverless.JobQueue) serverless.JobQueue { return mergingQueue{q} }

// A server is one of several services over the same stores.
type server struct {
	*serverless.Service
	end func() // the program ends, as in a crash: nothing is given back
}

// serversOn starts n servers over one queue and store of endpoints. Each gets its own options.
func serversOn(t *testing.T, n int, wrap func(serverless.JobQueue) serverless.JobQueue, o func(i int) *serverless.Options) []server {
	t.Helper()
	q, eps := memory.NewJobs(), twoEndpoints(t)
	list := make([]server, n)
	for i := range list {
		var opts *serverless.Options
		if o != nil {
			opts = o(i)
		}
		list[i] = startServer(t, serverless.New(wrap(q), eps, opts))
	}
	synctest.Wait()
	return list
}

func startServer(t *testing.T, s *serverless.Service) server {
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	end := sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(end)
	return server{s, end}
}

// takers starts n workers that wait for a job, and returns a function that says when each got one.
func takers(t *testing.T, s *serverless.Service, n int) func() []time.Time {
	var mu sync.Mutex
	var got []time.Time
	ctx, cancel := context.WithCancel(t.Context())
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			jobs, err := s.Take(ctx, "echo", serverless.WorkerID(fmt.Sprint("w", i)), 1)
			if err != nil || len(jobs) != 1 {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			got = append(got, time.Now())
		})
	}
	t.Cleanup(func() { cancel(); all.Wait() })
	synctest.Wait()
	return func() []time.Time {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(got)
	}
}

func TestWorkersThatWaitAtOneServerGetTheJobsSubmittedAtAnother(t *testing.T) {
	for _, row := range []struct {
		name   string
		wrap   func(serverless.JobQueue) serverless.JobQueue
		within time.Duration
	}{
		{"events are merged", merging, 50 * time.Millisecond},
		{"events are lost", lossy, time.Second},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := serversOn(t, 2, row.wrap, nil)
				got := takers(t, list[1].Service, 16)
				time.Sleep(3 * time.Second)
				begin := time.Now()
				for range 16 {
					submitEcho(t, list[0].Service)
				}
				time.Sleep(row.within)
				synctest.Wait()
				if n := len(got()); n != 16 {
					t.Errorf("%v after 16 submits %d of 16 workers have a job", time.Since(begin), n)
				}
			})
		})
	}
}

func TestWaitEndsWhenAnotherServerEndsTheJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := serversOn(t, 2, lossy, nil)
		a, b := list[0].Service, list[1].Service
		ref := submitEcho(t, a)
		takeOne(t, b, "w")
		if err := finish(t, b, ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		if j, err := a.Wait(t.Context(), "alice", ref, time.Minute); err != nil || j.Status != serverless.Completed || time.Since(begin) > time.Second {
			t.Errorf("Wait = %v, %v after %v, want COMPLETED within a second", j.Status, err, time.Since(begin))
		}
	})
}

func TestLeaseOfAServerThatDiedIsEndedByAnother(t *testing.T) {
	for name, wrap := range map[string]func(serverless.JobQueue) serverless.JobQueue{"events come": merging, "events are lost": lossy} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := serversOn(t, 2, wrap, nil)
				a, b := list[0], list[1].Service
				time.Sleep(5 * time.Second) // b has nothing to do
				ref := submitEcho(t, a.Service)
				takeOne(t, a.Service, "w")
				a.end()
				time.Sleep(29 * time.Second)
				wantStatus(t, b, ref, serverless.InProgress)
				time.Sleep(2 * time.Second)
				wantStatus(t, b, ref, serverless.InQueue)
				takeOne(t, b, "v")
			})
		})
	}
}

// A stuckSender never ends a delivery that it began, or counts deliveries.
type stuckSender struct {
	stuck bool
	sent  atomic.Int64
}

func (s *stuckSender) Send(ctx context.Context, _ *serverless.Delivery) (int, error) {
	if s.stuck {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	s.sent.Add(1)
	return 200, nil
}

// A unrecordedQueue records no attempt, as a program that was killed does not.
type unrecordedQueue struct{ serverless.JobQueue }

func (q unrecordedQueue) Unwrap() serverless.JobQueue { return q.JobQueue }

func (unrecordedQueue) Record(context.Context, []serverless.Attempt) error { return nil }

func TestWebhookOfAServerThatDiedIsSentByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		senders := [2]*stuckSender{{stuck: true}, {}}
		n := 0
		wrap := func(q serverless.JobQueue) serverless.JobQueue {
			if n++; n == 1 {
				return unrecordedQueue{lossy(q)}
			}
			return lossy(q)
		}
		list := serversOn(t, 2, wrap, func(i int) *serverless.Options { return &serverless.Options{Sender: senders[i]} })
		a := list[0]
		ref := submitEcho(t, a.Service, withWebhook("https://example.com/hook"))
		takeOne(t, a.Service, "w")
		time.Sleep(900 * time.Millisecond)
		if err := finish(t, a.Service, ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a.end()
		if n := senders[1].sent.Load(); n != 0 {
			t.Fatalf("%d deliveries while another server has it", n)
		}
		time.Sleep(62 * time.Second)
		if n := senders[1].sent.Load(); n != 1 {
			t.Errorf("%d deliveries after the lease of a server that died, want 1", n)
		}
	})
}

func TestWorkerStopsAJobThatWasCancelledAtAnotherServer(t *testing.T) {
	for name, wrap := range map[string]func(serverless.JobQueue) serverless.JobQueue{"events come": merging, "events are lost": lossy} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := serversOn(t, 2, wrap, nil)
				a, b := list[0].Service, list[1].Service
				ref := submitEcho(t, a)
				takeOne(t, a, "w") // and the worker goes on at b
				ping(t, b, "w", ref.ID)
				if _, err := a.Cancel(t.Context(), "alice", ref); err != nil {
					t.Fatal(err)
				}
				time.Sleep(10 * time.Second)
				pingLost(t, b, "w", ref.ID)
				if ids := stops(t, b, "w"); !slices.Equal(ids, []serverless.JobID{ref.ID}) {
					t.Errorf("the worker stops %v at its next ping, want %v", ids, ref.ID)
				}
			})
		})
	}
}

func TestAServiceAloneDoesNotLook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		serviceOn(t, q, nil)
		before := q.calls.Load()
		time.Sleep(time.Hour)
		synctest.Wait()
		if n := q.calls.Load() - before; n != 0 {
			t.Errorf("%d calls of a queue of one process in an hour without a job, want none", n)
		}
	})
}

// sharingServers starts n servers that share their workers too, with events that are lost.
func sharingServers(t *testing.T, n int, change func(i int, o *serverless.Options)) []server {
	t.Helper()
	store, presence := memory.NewServers(), memory.NewPresence()
	return serversOn(t, n, lossy, func(i int) *serverless.Options {
		o := &serverless.Options{Server: joined(t, store), Presence: presence}
		if change != nil {
			change(i, o)
		}
		return o
	})
}

// joined returns a server of store that renews its lease until the test ends.
func joined(t *testing.T, store servers.Store) *servers.Server {
	t.Helper()
	s, err := servers.Join(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	return s
}

func TestWorkerThatMayHaveNoJobsAtOneServerGetsNoneAtAnother(t *testing.T) {
	for name, end := range map[string]func(t *testing.T, a *serverless.Service){
		"it drains": func(_ *testing.T, a *serverless.Service) { a.DrainWorker("echo", "w") },
		"it is unhealthy": func(t *testing.T, a *serverless.Service) {
			if err := a.ReportUnhealthy(t.Context(), "echo", "w", "gpu"); err != nil {
				t.Fatal(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				list := sharingServers(t, 2, nil)
				a, b := list[0].Service, list[1].Service
				tryTake(t, a, "w")
				tryTake(t, b, "w")
				end(t, a)
				time.Sleep(time.Second)
				submitEcho(t, a)
				if jobs := tryTake(t, b, "w"); len(jobs) != 0 {
					t.Errorf("the worker got %d jobs", len(jobs))
				}
				time.Sleep(time.Minute)
				if jobs := tryTake(t, b, "other"); len(jobs) != 1 {
					t.Errorf("another worker got %d jobs, want 1", len(jobs))
				}
			})
		})
	}
}

// A poll that waits ends, too.
func TestPollAtAnotherServerEndsWhenTheWorkerDrains(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0].Service, list[1].Service
		begin := time.Now()
		took := make(chan time.Duration, 1)
		go func() {
			_, _ = b.Take(t.Context(), "echo", "w", 1)
			took <- time.Since(begin)
		}()
		time.Sleep(5 * time.Second)
		a.DrainWorker("echo", "w")
		if d := <-took; d > 7*time.Second {
			t.Errorf("the poll ended after %v", d)
		}
	})
}

func TestSickWorkerLosesTheJobsThatAnotherServerGaveIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0].Service, list[1].Service
		ref := submitEcho(t, a)
		takeOne(t, a, "w")
		if err := b.ReportUnhealthy(t.Context(), "echo", "w", "gpu"); err != nil {
			t.Fatal(err)
		}
		wantStatus(t, a, ref, serverless.InQueue)
	})
}

func TestServersCountTheWorkersOfAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0].Service, list[1].Service
		takers(t, a, 2)
		takers(t, b, 1) // w0 polls at both
		ref := submitEcho(t, a)
		time.Sleep(time.Second)
		busy := mustGet(t, a, ref).Worker
		for _, s := range []*serverless.Service{a, b} {
			s.RunningWorkers("echo") // is read from now on
			time.Sleep(2 * time.Second)
			h, err := s.Health(t.Context(), "echo")
			if err != nil {
				t.Fatal(err)
			}
			if h.Workers.Running != 1 || h.Workers.Idle != 1 || s.RunningWorkers("echo") != 1 {
				t.Errorf("workers = %+v, %d running, want one of each; %s has the job", h.Workers, s.RunningWorkers("echo"), busy)
			}
		}
		ping(t, b, busy, ref.ID)
		if err := finish(t, b, ref, busy, `1`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		if n := a.RunningWorkers("echo"); n != 0 {
			t.Errorf("%d workers run a job that has ended at the other server", n)
		}
	})
}

func TestWorkersOfAServerThatDiedAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0], list[1].Service
		tryTake(t, a.Service, "w")
		time.Sleep(2 * time.Second)
		if l, err := b.WorkerList(t.Context(), "echo"); err != nil || len(l) != 1 || l[0].ID != "w" {
			t.Fatalf("workers = %v, %v, want that of the other server", l, err)
		}
		a.end()
		time.Sleep(31 * time.Second)
		if l, err := b.WorkerList(t.Context(), "echo"); err != nil || len(l) != 0 {
			t.Errorf("workers = %v, %v, want none", l, err)
		}
	})
}

// A ping that goes to one server and a poll for stops that goes to another.
func TestStopIsReadAtTheServerThatTheWorkerAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0].Service, list[1].Service
		ref := submitEcho(t, a)
		takeOne(t, a, "w")
		ping(t, a, "w", ref.ID)
		read := make(chan []serverless.JobID, 1)
		go func() {
			ids, _ := b.WaitStops(t.Context(), "echo", "w")
			read <- ids
		}()
		synctest.Wait()
		if _, err := b.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		pingLost(t, a, "w", ref.ID)
		begin := time.Now()
		if ids := <-read; !slices.Equal(ids, []serverless.JobID{ref.ID}) || time.Since(begin) > 3*time.Second {
			t.Errorf("WaitStops = %v after %v", ids, time.Since(begin))
		}
		ping(t, a, "w")
		time.Sleep(time.Minute)
		ping(t, a, "w")
	})
}

func TestEveryServerHasInProcessWorkersOfItsOwn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		for _, s := range list {
			serve(t, s.Service, func(context.Context, *serverless.Task) ([]byte, error) { return []byte("1"), nil }, nil)
		}
		time.Sleep(2 * time.Second)
		for _, s := range list {
			l, err := s.WorkerList(t.Context(), "echo")
			if err != nil || len(l) != 2 || !s.IsLocalWorker("echo", l[0].ID) || !s.IsLocalWorker("echo", l[1].ID) {
				t.Errorf("workers = %v, %v, want two that no remote worker may be", l, err)
			}
		}
		ref := submitEcho(t, list[0].Service)
		if j, err := list[1].Wait(t.Context(), "alice", ref, time.Minute); err != nil || j.Status != serverless.Completed {
			t.Errorf("Wait = %v, %v", j.Status, err)
		}
	})
}

func TestReadersAtTwoServersGetEachItemOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a := list[0].Service
		ref := submitEcho(t, a)
		takeOne(t, a, "w")
		var mu sync.Mutex
		got := map[string]int{}
		var all sync.WaitGroup
		for i := range 6 {
			all.Go(func() {
				s := list[i%2].Service
				for ended := false; !ended; {
					err := s.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error {
						time.Sleep(20 * time.Millisecond) // the network
						mu.Lock()
						defer mu.Unlock()
						for _, b := range p.Items {
							got[string(b)]++
						}
						ended = p.Status.Terminal()
						return nil
					})
					if err != nil {
						t.Errorf("Stream = %v", err)
						return
					}
				}
			})
		}
		for n := range 50 {
			item := fmt.Appendf(nil, `{"output":%d}`, n)
			if err := list[n%2].Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpChunk, Worker: "w", Payload: item}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(30 * time.Millisecond)
		}
		if err := finish(t, a, ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		all.Wait()
		if len(got) != 50 {
			t.Errorf("%d items were read, want 50", len(got))
		}
		for item, n := range got {
			if n != 1 {
				t.Errorf("%s was read %d times", item, n)
			}
		}
	})
}

func TestItemsOfAReaderThatFailedAreReadAtAnotherServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		list := sharingServers(t, 2, nil)
		a, b := list[0].Service, list[1].Service
		ref := submitEcho(t, a)
		takeOne(t, a, "w")
		if err := a.Report(t.Context(), queue.Op{Ref: ref, Kind: queue.OpChunk, Worker: "w", Payload: []byte(`{"output":1}`)}); err != nil {
			t.Fatal(err)
		}
		release := make(chan struct{})
		writing := make(chan struct{})
		done := make(chan error, 1)
		go func() {
			done <- a.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(serverless.StreamPart) error {
				close(writing)
				<-release
				return fmt.Errorf("the connection broke")
			})
		}()
		<-writing
		read := func() (n int) {
			if err := b.Stream(t.Context(), "alice", ref, serverless.StreamQuery{}, func(p serverless.StreamPart) error { n = len(p.Items); return nil }); err != nil {
				t.Errorf("Stream = %v", err)
			}
			return n
		}
		for range 3 {
			if n := read(); n != 0 {
				t.Errorf("%d items while a reader of another server writes them", n)
			}
		}
		close(release)
		if err := <-done; err == nil {
			t.Error("Stream of a broken connection = nil")
		}
		if n := read(); n != 1 {
			t.Errorf("%d items after a reader that failed, want 1", n)
		}
	})
}

func TestServersAcceptEachOthersWorkerKeys(t *testing.T) {
	store := memory.NewServers()
	var list [2]*serverless.Service
	for i := range list {
		s, err := servers.Join(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		secret, err := s.Secret(t.Context(), serverless.WorkerSecretName)
		if err != nil {
			t.Fatal(err)
		}
		list[i] = serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{WorkerSecret: secret})
	}
	if endpoint, id, ok := list[1].CheckWorkerKey(list[0].WorkerKey("echo", "w")); !ok || endpoint != "echo" || id != "w" {
		t.Errorf("CheckWorkerKey = %q, %q, %v", endpoint, id, ok)
	}
}

func TestScheduleOfAServerThatDiedIsFiredByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewSchedules()
		list := sharingServers(t, 2, func(_ int, o *serverless.Options) {
			o.Schedules, o.DecodeRun = store, httpapi.DecodeRun
		})
		a, b := list[0], list[1].Service
		if _, err := a.Schedules().Create(t.Context(), "alice", "echo", settings(func(r *schedules.Settings) { r.Cron = new("* * * * *"); r.Overlap = new(schedules.OverlapAllow) })); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3*time.Minute + time.Second)
		if n := jobTotal(t, b); n != 3 {
			t.Errorf("two servers have submitted %d jobs at 3 instants", n)
		}
		a.end()
		time.Sleep(2 * time.Minute)
		if n := jobTotal(t, b); n != 5 {
			t.Errorf("%d jobs at 5 instants after a server has died", n)
		}
	})
}

// jobTotal returns how many jobs alice has on echo.
func jobTotal(t *testing.T, s *serverless.Service) int {
	t.Helper()
	p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{})
	if err != nil {
		t.Fatal(err)
	}
	return p.Total
}

func TestScheduleThatAnotherServerChangedIsFiredInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewSchedules()
		list := sharingServers(t, 2, func(_ int, o *serverless.Options) {
			o.Schedules, o.DecodeRun = store, httpapi.DecodeRun
		})
		a, b := list[0], list[1].Service
		v, err := b.Schedules().Create(t.Context(), "alice", "echo", settings(func(r *schedules.Settings) { r.Cron = new("0 0 1 1 *") }))
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		if _, err := a.Schedules().Update(t.Context(), "alice", "echo", v.ID, schedules.Settings{Cron: new("* * * * *")}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Second)
		a.end()
		time.Sleep(time.Minute)
		if n := jobTotal(t, b); n != 1 {
			t.Errorf("%d jobs a minute after another server has changed the schedule, want 1", n)
		}
	})
}

// A leaveless store gives no lease back, as a server that is killed.
type leaveless struct{ servers.Store }

func (leaveless) Release(context.Context, servers.Lease) error { return nil }

func TestBatchOfAServerThatDiedIsEndedByAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, eps, store, bs := memory.NewJobs(), twoEndpoints(t), memory.NewServers(), memory.NewBatches()
		sender := &stuckSender{}
		start := func() server {
			ctx, cancel := context.WithCancel(t.Context())
			s, err := servers.Join(t.Context(), leaveless{store}, nil)
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- s.Run(ctx) }()
			x := startServer(t, serverless.New(lossy(q), eps, &serverless.Options{Server: s, Batches: bs, Sender: sender}))
			end := sync.OnceFunc(func() { cancel(); <-done; x.end() })
			t.Cleanup(end)
			time.Sleep(2 * time.Second)
			return server{x.Service, end}
		}
		a, b := start(), start()
		made := createBatch(t, b.Service, inputs(3, finalized, func(r *serverless.BatchRequest) { r.Webhook = "https://example.com/hook" }))
		time.Sleep(6 * time.Second)
		workBatch(t, b.Service, 1)
		time.Sleep(70 * time.Second) // every event is lost: the leader looks once a minute
		wantCounts(t, b.Service, made.ID, "FINALIZED 3 0 1 0")
		a.end()
		workBatch(t, b.Service, 2)
		if n := sender.sent.Load(); n != 0 {
			t.Errorf("%d webhooks while the server that would send them is dead", n)
		}
		time.Sleep(servers.DefaultLease + 3*time.Second)
		wantCounts(t, b.Service, made.ID, "FINALIZED 3 0 3 0")
		if n := sender.sent.Load(); n != 1 {
			t.Errorf("%d webhooks of the batch, want 1", n)
		}
	})
}
