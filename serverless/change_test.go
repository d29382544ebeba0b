package serverless_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A racedQueue queue lets something else happen before a user's change.
type racedQueue struct {
	serverless.JobQueue
	first func()
}

func (q *racedQueue) Apply(ctx context.Context, now serverless.Instant, ops []queue.Op, res []queue.Result) error {
	if k := ops[0].Kind; k == queue.OpSetTTL || k == queue.OpCancel {
		q.first()
	}
	return q.JobQueue.Apply(ctx, now, ops, res)
}

func TestAChangeThatTheEndOvertakesIsAnsweredWithTheResult(t *testing.T) {
	for name, change := range map[string]func(*serverless.Service, context.Context, serverless.Ref) (serverless.Job, error){
		"SetTTL": func(s *serverless.Service, ctx context.Context, ref serverless.Ref) (serverless.Job, error) {
			return s.SetTTL(ctx, "alice", ref, time.Minute)
		},
		"Cancel": func(s *serverless.Service, ctx context.Context, ref serverless.Ref) (serverless.Job, error) {
			return s.Cancel(ctx, "alice", ref)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &racedQueue{JobQueue: memory.NewJobs()}
				s := serviceOn(t, q, nil)
				ref := submitEcho(t, s)
				takeOne(t, s, "worker")
				q.first = func() {
					if err := finish(t, s, ref, "worker", `{"made":1}`); err != nil {
						t.Error(err)
					}
				}
				j, err := change(s, t.Context(), ref)
				if err != nil || j.Status != serverless.Completed || string(j.Output) != `{"made":1}` {
					t.Errorf("%s = %v with output %s, %v, want COMPLETED with its output", name, j.Status, j.Output, err)
				}
			})
		})
	}
}
