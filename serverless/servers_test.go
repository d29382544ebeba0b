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
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
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
