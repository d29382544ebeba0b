package serverless_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A forgetfulQueue takes jobs and forgets those that need not be durable yet, as a store that
// fails and is opened again.
type forgetfulQueue struct {
	serverless.JobQueue
	notify func([]queue.Event)
}

func (q *forgetfulQueue) Enqueue(ctx context.Context, jobs []queue.Job) error {
	if jobs[0].Unshown() {
		time.AfterFunc(time.Second, func() { q.notify([]queue.Event{{Kind: queue.EventGap}}) })
		return nil
	}
	return q.JobQueue.Enqueue(ctx, jobs)
}

func (q *forgetfulQueue) Watch(ctx context.Context, f func([]queue.Event)) error {
	q.notify = f
	return q.JobQueue.Watch(ctx, f)
}

// The caller of a job that a failed store has forgotten learns it at once. A job that is only
// submitted is durable, and so is one whose waiting begins later.
func TestTheCallerOfAForgottenJobLearnsItAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e"}); err != nil {
			t.Fatal(err)
		}
		s := serverless.New(&forgetfulQueue{JobQueue: memory.NewJobs()}, eps, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = s.Run(ctx) }()
		synctest.Wait()
		began := time.Now()
		_, err := s.SubmitAndWait(ctx, "alice", "e", serverless.Request{Input: []byte(`{}`), Wait: time.Minute})
		if waited := time.Since(began); !errors.Is(err, serverless.ErrForgotten) || waited != time.Second {
			t.Errorf("SubmitAndWait = %v after %v, want ErrForgotten after 1 s", err, waited)
		}
		j, err := s.Submit(ctx, "alice", "e", serverless.Request{Input: []byte(`{}`), Sync: true})
		if err != nil || j.Unshown() {
			t.Fatalf("Submit = %+v, %v, want a durable job", j, err)
		}
		if j, err := s.Wait(ctx, "alice", j.Ref, time.Minute); err != nil || j.Status != serverless.InQueue {
			t.Errorf("Wait = %v, %v, want IN_QUEUE", j.Status, err)
		}
		cancel()
	})
}
