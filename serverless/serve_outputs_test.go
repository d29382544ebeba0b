package serverless_test

import (
	"bytes"
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A delayedQueue takes a second to store what a worker has made.
type delayedQueue struct {
	serverless.JobQueue
	stored gauge // bytes that are being stored
}

func (q *delayedQueue) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	n := 0
	for i := range ops {
		n += len(ops[i].Payload)
	}
	if n > 0 {
		q.stored.add(n)
		defer q.stored.add(-n)
		time.Sleep(time.Second)
	}
	return q.JobQueue.Apply(ctx, now, ops, res)
}

// outputSize is the size of the outputs.
const outputSize = 256 << 10

// outputBubble runs f with a worker of 64 slots, a pool with room for four outputs of each user, and a
// queue that is slow.
func outputBubble(t *testing.T, work serverless.WorkerFunc, f func(t *testing.T, s *serverless.Service, q *delayedQueue, pool *budget.Pool)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
			t.Fatal(err)
		}
		q := &delayedQueue{JobQueue: memory.NewJobs()}
		pool := budget.NewPool(0, func(string) int64 { return 4 * outputSize })
		s := serverless.New(q, eps, &serverless.Options{Outputs: pool.Hold})
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = s.Run(ctx) }()
		go func() { _ = s.Serve(ctx, "e", work, &serverless.ServeOptions{Concurrency: 64, Drain: -1}) }()
		synctest.Wait()
		f(t, s, q, pool)
		cancel()
		synctest.Wait()
	})
}

// output is a string of n bytes.
func output(n int) []byte {
	b := bytes.Repeat([]byte("x"), n)
	b[0], b[n-1] = '"', '"'
	return b
}

func TestJobsWaitWhileOutputsOfTheirUserAreStored(t *testing.T) {
	work := func(_ context.Context, k *serverless.Task) ([]byte, error) {
		if string(k.Input) == `{"large":1}` {
			return output(outputSize), nil
		}
		return []byte("1"), nil
	}
	outputBubble(t, work, func(t *testing.T, s *serverless.Service, q *delayedQueue, pool *budget.Pool) {
		submit := func(owner, input string) serverless.Ref {
			j, err := s.Submit(t.Context(), owner, "e", serverless.Request{Input: []byte(input)})
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			return j.Ref
		}
		var refs []serverless.Ref
		for range 20 {
			refs = append(refs, submit("rude", `{"large":1}`))
		}
		if of, _, waiting := pool.InUse("rude"); of != 4*outputSize || waiting != 16 {
			t.Errorf("%d bytes are held and %d jobs wait, want 1 MB and 16", of, waiting)
		}
		began := time.Now()
		other := submit("other", `{}`)
		if j, err := s.Wait(t.Context(), "other", other, time.Minute); err != nil || j.Status != serverless.Completed || time.Since(began) > time.Second {
			t.Errorf("a job of another user is %v after %v, %v", j.Status, time.Since(began), err)
		}
		for _, ref := range refs {
			if j, err := s.Wait(t.Context(), "rude", ref, time.Minute); err != nil || j.Status != serverless.Completed || len(j.Output) != outputSize || j.Deliveries != 1 {
				t.Errorf("a job is %v with %d bytes after %d deliveries, %v", j.Status, len(j.Output), j.Deliveries, err)
			}
		}
		synctest.Wait()
		if most := q.stored.most(); most > 5*outputSize+1 {
			t.Errorf("%d bytes were stored at once, want at most 1 MB, one output more and the one of the other user", most)
		}
		if _, all, waiting := pool.InUse(""); all != 0 || waiting != 0 {
			t.Errorf("at the end %d bytes are held, and %d jobs wait", all, waiting)
		}
	})
}

func TestAJobThatRunsForLongKeepsNoRoomForItsOutput(t *testing.T) {
	work := func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		if string(k.Input) == `{"large":1}` {
			return output(outputSize), nil
		}
		select {
		case <-time.After(time.Hour):
		case <-ctx.Done():
		}
		return nil, ctx.Err()
	}
	outputBubble(t, work, func(t *testing.T, s *serverless.Service, _ *delayedQueue, pool *budget.Pool) {
		for _, input := range []string{`{"large":1}`, `{}`, `{}`} {
			if _, err := s.Submit(t.Context(), "rude", "e", serverless.Request{Input: []byte(input)}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if of, _, _ := pool.InUse("rude"); of != 3*outputSize {
			t.Errorf("%d bytes are held, want 768 KB: one output, and room for two", of)
		}
		time.Sleep(2 * time.Second)
		if of, _, _ := pool.InUse("rude"); of != 0 {
			t.Errorf("%d bytes are held, want none: the jobs run on, and their room is given back", of)
		}
	})
}

func TestChunksCountUntilTheyAreStored(t *testing.T) {
	work := func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		if err := k.Emit(ctx, output(outputSize)); err != nil {
			return nil, fmt.Errorf("emit: %w", err)
		}
		return nil, k.Progress(ctx, output(outputSize/2))
	}
	outputBubble(t, work, func(t *testing.T, s *serverless.Service, _ *delayedQueue, pool *budget.Pool) {
		j, err := s.Submit(t.Context(), "rude", "e", serverless.Request{Input: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range []int64{outputSize, outputSize / 2, 0} {
			synctest.Wait()
			if of, _, _ := pool.InUse("rude"); of != want {
				t.Errorf("%d bytes are held, want %d", of, want)
			}
			time.Sleep(time.Second)
		}
		if j, err := s.Wait(t.Context(), "rude", j.Ref, time.Minute); err != nil || j.Status != serverless.Completed {
			t.Errorf("the job is %v, %v", j.Status, err)
		}
	})
}
