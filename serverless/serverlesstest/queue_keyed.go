package serverlesstest

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// keyedCases are the rules of jobs that are submitted with an Idempotency-Key. Instants of the
// records are those of the shared rules, because a queue compares them with each other only.
func keyedCases() (list []QueueCase) {
	job := func(id string) queue.Job {
		return queue.Job{
			Ref: queue.Ref{Endpoint: echo, ID: queue.JobID(id)}, Input: []byte("{}"),
			State: queue.State{Submitted: start, Queued: start, Expires: start + ttl, Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Minute}},
		}
	}
	rules := suite.KeyedRules(suite.Keyed[queue.JobQueue]{
		Create: func(ctx context.Context, q queue.JobQueue, id string, r idempotency.Record) error {
			j := job(id)
			j.Creation = &r
			return q.Enqueue(ctx, []queue.Job{j})
		},
		Get: func(ctx context.Context, q queue.JobQueue, id string) error {
			_, err := q.Get(ctx, start, job(id).Ref)
			return err
		},
		Delete: func(ctx context.Context, q queue.JobQueue, _ string) error {
			_, err := q.Expire(ctx, start+ttl, 10)
			return err
		},
		ErrExists: queue.ErrExists, ErrNotFound: queue.ErrNotFound,
	})
	for _, r := range rules {
		list = append(list, QueueCase{r.Name, r.Why, func(t *testing.T, q queue.JobQueue) { r.Run(t, q) }})
	}
	return append(list, rule("JobIsReadWithoutItsKey",
		"the key belongs to the request: no method returns it with the job",
		func(k *fixture) {
			r := idempotency.Record{Request: *idempotency.NewRequest("key", nil), ID: "job-0001", At: k.now.Time()}
			j := k.job()
			j.Creation = &r
			j = k.enqueue(j)[0]
			j.Creation = nil
			k.wantEqual("Get", j, k.get(j))
			second := k.job(func(j *queue.Job) { j.Creation = &r })
			if err := k.q.Enqueue(k.Context(), []queue.Job{k.job(), second}); !errors.Is(err, idempotency.ErrTaken) {
				k.Errorf("Enqueue of two jobs, one with the key = %v, want ErrTaken", err)
			}
			k.wantEqual("Queued", int64(1), k.stats(echo).Queued)
			if got := k.take("w"); got.Creation != nil || got.ID != j.ID {
				k.Errorf("Claim gave %q with the key %v, want %q without", got.ID, got.Creation, j.ID)
			}
		}))
}
