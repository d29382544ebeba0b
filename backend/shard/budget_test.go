package shard_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// endpointsOn returns an endpoint for each shard of a world of three.
func endpointsOn(t *testing.T, q *shard.Queue) (list []string) {
	t.Helper()
	seen := map[string]bool{}
	for i := 0; len(list) < 3; i++ {
		endpoint := fmt.Sprint("endpoint-", i)
		submit(t, q, endpoint, "first")
		if on := where(t, q, endpoint).Shard; !seen[on] {
			seen[on] = true
			list = append(list, endpoint)
		}
	}
	return list
}

func limit(q budget.Counter, jobs int64) {
	q.Limit(budget.NewSet(budget.Users{Limits: budget.Limits{Jobs: jobs}}))
}

func held(t *testing.T, q *shard.Queue) int64 {
	t.Helper()
	u, err := q.Usage(t.Context(), "u")
	if err != nil {
		t.Fatal(err)
	}
	return u[budget.Jobs]
}

// full tries to submit a job for which its owner has no room.
func full(t *testing.T, q queue.JobQueue, endpoint string) {
	t.Helper()
	var e *budget.Error
	if err := q.Enqueue(t.Context(), []queue.Job{job(endpoint, "more", time.Now())}); !errors.As(err, &e) {
		t.Errorf("Enqueue on %s = %v, want a *budget.Error", endpoint, err)
	}
}

func TestABudgetHoldsOverAllShards(t *testing.T) {
	q := newWorld(3).open(t, "one")
	on := endpointsOn(t, q)
	has := held(t, q)
	limit(q, has+2)
	submit(t, q, on[0], "1")
	jobs := []queue.Job{job(on[0], "2", time.Now()), job(on[1], "2", time.Now())}
	var e *budget.Error
	if err := q.Enqueue(t.Context(), jobs); !errors.As(err, &e) || e.Used != has+1 || e.Asked != 2 {
		t.Errorf("Enqueue of two jobs = %v, want a *budget.Error of %d used and 2 more", err, has+1)
	}
	submit(t, q, on[1], "3")
	full(t, q, on[2])
	if err := q.Enqueue(t.Context(), []queue.Job{job(on[1], "3", time.Now())}); !errors.Is(err, queue.ErrExists) {
		t.Errorf("a repeated Enqueue = %v, want ErrExists", err)
	}
	finish(t, q, claim(t, q, on[0], 9, nil)...)
	full(t, q, on[2]) // ended jobs count as long as they are kept
	if got := held(t, q); got != has+2 {
		t.Errorf("Usage = %d jobs, want %d", got, has+2)
	}
	if users, err := q.Users(t.Context()); err != nil || !slices.Equal(users, []string{"u"}) {
		t.Errorf("Users = %q, %v, want u", users, err)
	}
}

func TestConcurrentSubmitsToSeveralShardsDoNotGoOverABudget(t *testing.T) {
	q := newWorld(3).open(t, "one")
	on := endpointsOn(t, q)
	const room = 50
	limit(q, held(t, q)+room)
	var taken atomic.Int64
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := range 3 {
				j := job(on[(i+n)%3], fmt.Sprint(i, "-", n), time.Now())
				if err := q.Enqueue(t.Context(), []queue.Job{j}); err == nil {
					taken.Add(1)
				}
			}
		})
	}
	if all.Wait(); taken.Load() != room {
		t.Errorf("%d jobs were taken, want %d", taken.Load(), room)
	}
}

func TestWhatAnotherServerSubmitsCountsASecondLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		one, two := w.open(t, "one"), w.open(t, "two")
		on := endpointsOn(t, one)
		has := held(t, one)
		limit(one, 4*has)
		limit(two, 4*has)
		submit(t, one, on[0], "1")
		for i := has + 1; i < 4*has; i++ {
			submit(t, two, on[1], fmt.Sprint("two-", i))
		}
		time.Sleep(time.Second)
		full(t, two, on[0])
		full(t, one, on[2])
	})
}

func TestAShardThatDoesNotAnswerCountsAsItDid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		q := w.open(t, "one")
		on := endpointsOn(t, q)
		limit(q, held(t, q)+2)
		submit(t, q, on[0], "1")
		w.shards[slices.Index([]string{"a", "b", "c"}, where(t, q, on[0]).Shard)].set(true)
		time.Sleep(time.Minute)
		submit(t, q, on[1], "2")
		full(t, q, on[2])
	})
}

func TestASubmitNearALimitDoesNotWaitForOthersAfterItsCallerHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(3)
		on := endpointsOn(t, w.open(t, "one"))
		q := w.open(t, "two", func(o *shard.Options) { o.Shards[0].Jobs = hanging{w.shards[0]} })
		limit(q, 100)
		var all sync.WaitGroup
		for i, gone := range []time.Duration{time.Hour, time.Second} {
			ctx, cancel := context.WithTimeout(t.Context(), gone)
			defer cancel()
			all.Go(func() {
				began := time.Now()
				_ = q.Enqueue(ctx, []queue.Job{job(on[1], fmt.Sprint(i), began)})
				if took := time.Since(began); took > gone {
					t.Errorf("a call that was given up after %v took %v", gone, took)
				}
			})
			synctest.Wait()
		}
		all.Wait()
	})
}
