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
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// A thousand keys with jobs that wait all start at their rate: never more, and never a start later
// than 0.2 s, while workers are free.
func TestEveryKeyStartsAtItsRate(t *testing.T) {
	const (
		keys, perKey = 1000, 100
		workers      = 64
		span         = 4 * time.Second
		late         = 200 * time.Millisecond
	)
	rate := queue.Rate{Limit: 5, Per: time.Second}
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		setQueue(t, s, "echo", endpoints.QueueUpdate{PerKeyRate: &rate})
		for n := range keys * perKey {
			submitEcho(t, s, withJobKey(fmt.Sprint("key-", n%keys)), withInput(fmt.Sprintf(`{"key":%d}`, n%keys)))
		}
		var mu sync.Mutex
		starts := map[string][]time.Duration{}
		begin := time.Now()
		serve(t, s, func(_ context.Context, task *serverless.Task) ([]byte, error) {
			mu.Lock()
			starts[string(task.Input)] = append(starts[string(task.Input)], time.Since(begin))
			mu.Unlock()
			time.Sleep(time.Millisecond)
			return []byte("1"), nil
		}, &serverless.ServeOptions{Concurrency: workers})
		time.Sleep(span)
		mu.Lock()
		defer mu.Unlock()
		if len(starts) != keys {
			t.Fatalf("%d keys have started, want %d", len(starts), keys)
		}
		interval := rate.Per / time.Duration(rate.Limit)
		for key, at := range starts {
			slices.Sort(at)
			for i := range at {
				for k := range i {
					if n, window := i-k+1, at[i]-at[k]; time.Duration(n-rate.Limit)*interval > window {
						t.Fatalf("%s: %d starts in %v, want %d + %v/%v at most", key, n, window, rate.Limit, window, interval)
					}
				}
			}
			for n := rate.Limit; ; n++ { // the start after n others
				due := time.Duration(n-rate.Limit+1)*interval + late
				if due > span {
					break
				}
				if n >= len(at) || at[n] > due {
					t.Errorf("%s: %d starts in %v, want more than %d", key, len(at), due, n)
					break
				}
			}
		}
	})
}

// A worker that waits gets a job as soon as its rate lets it start, and why says what it waits for.
func TestAJobThatARateHoldsStartsWhenThereIsRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		hour := queue.Rate{Limit: 1, Per: time.Hour}
		for _, c := range []struct {
			by     string
			update endpoints.QueueUpdate
		}{
			{"rate", endpoints.QueueUpdate{Rate: &hour}},
			{"perUserRate", endpoints.QueueUpdate{Rate: &queue.Rate{}, PerUserRate: &hour}},
			{"perKeyRate", endpoints.QueueUpdate{PerUserRate: &queue.Rate{}, PerKeyRate: &hour}},
			{"keys", endpoints.QueueUpdate{PerKeyRate: &queue.Rate{}, Keys: queue.KeyRules{"a": {Rate: hour}}}},
		} {
			setQueue(t, s, "echo", c.update)
			first, second := submitEcho(t, s, withJobKey("a")), submitEcho(t, s, withJobKey("a"))
			takeOne(t, s, "w")
			begin := time.Now()
			if err := finish(t, s, first, "w", "1"); err != nil {
				t.Fatal(err)
			}
			got := taking(t, s, "v")
			wantWhy(t, s, second, "it may not start yet, and no worker is started for it: the endpoint's "+c.by+", 1 starts in 3600000 ms, has no room before "+begin.Add(time.Hour).UTC().Format(time.RFC3339))
			if jobs := <-got; len(jobs) != 1 || jobs[0].Ref != second || time.Since(begin) < time.Hour || time.Since(begin) > time.Hour+100*time.Millisecond {
				t.Errorf("the worker that waits got %v after %v, want the second job after 1 h", jobs, time.Since(begin))
			}
			if err := finish(t, s, second, "v", "1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(2 * time.Hour)
		}
	})
}

// The scaler counts only what rates let start, and starts a worker when there is room again.
func TestJobsThatARateHoldsStartNoWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		svc := newScaledService(t, image("long", 0, 5))
		setQueue(t, svc.Service, "e", endpoints.QueueUpdate{PerKeyRate: &queue.Rate{Limit: 1, Per: time.Hour}})
		for range 3 {
			if _, err := svc.Submit(t.Context(), "alice", "e", serverless.Request{Input: []byte(`{}`), Queue: serverless.QueueOptions{Key: new("a")}}); err != nil {
				t.Fatal(err)
			}
		}
		for range 50 {
			time.Sleep(time.Second)
			if n := svc.counts(t); n.Running+n.Idle+n.Initializing > 1 {
				t.Fatalf("workers for a key with room for one start: %+v, want one", n)
			}
		}
		if n := svc.counts(t); n.Running != 1 {
			t.Errorf("workers for a key with room for one start: %+v, want one that runs", n)
		}
	})
}

// Workers that wait take turns at the room of a rate, also while no job ends.
func TestEachWorkerThatWaitsStartsAJobThatARateHolds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		setQueue(t, s, "echo", endpoints.QueueUpdate{Rate: &queue.Rate{Limit: 1, Per: time.Second}})
		for range 3 {
			submitEcho(t, s)
		}
		var started atomic.Int64
		for n := range 3 {
			go func() {
				if jobs, err := s.Take(t.Context(), "echo", serverless.WorkerID(fmt.Sprint("w", n)), 1); err == nil {
					started.Add(int64(len(jobs)))
				}
			}()
		}
		time.Sleep(100 * time.Millisecond)
		for n := range int64(3) {
			if got := started.Load(); got != n+1 {
				t.Errorf("after %d.1 s %d jobs have started, want %d", n, got, n+1)
			}
			time.Sleep(time.Second)
		}
	})
}

type statsCounter struct {
	*memory.Jobs
	n atomic.Int64
}

func (c *statsCounter) Stats(ctx context.Context, now queue.Instant, endpoint string, r *queue.Rules) (queue.Stats, error) {
	c.n.Add(1)
	return c.Jobs.Stats(ctx, now, endpoint, r)
}

// A job that counts as ready, but not for the only worker, is not looked at all the time.
func TestABarredWorkerOfARatedEndpointWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "echo", Name: "echo"}); err != nil {
			t.Fatal(err)
		}
		jobs := &statsCounter{Jobs: memory.NewJobs()}
		s := serverless.New(jobs, eps, nil)
		runService(t, s)
		setQueue(t, s, "echo", endpoints.QueueUpdate{Rate: &queue.Rate{Limit: 5, Per: time.Second}})
		submitEcho(t, s)
		takeOne(t, s, "w")
		time.Sleep(31 * time.Second) // it loses the job
		got := taking(t, s, "w")
		before := jobs.n.Load()
		time.Sleep(10 * time.Second)
		select {
		case list := <-got:
			t.Fatalf("the worker that lost the job got %v within 10 s", list)
		default:
		}
		if n := jobs.n.Load() - before; n > 100 {
			t.Errorf("%d calls of Stats in 10 s, want at most 100", n)
		}
		if list := <-got; len(list) != 1 {
			t.Errorf("the worker got %d jobs in the end, want one", len(list))
		}
	})
}
