package disk

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"

	"github.com/podyard/podyard/serverless/queue"
)

// Deleting a job removes all its records, also those from before a new opening.
func TestADeletedJobLeavesNothing(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	apply := func(j *queue.Job, kind queue.OpKind, change func(*queue.Op)) {
		t.Helper()
		op := queue.Op{Ref: j.Ref, Kind: kind, Worker: "w", Token: j.Token, Payload: []byte("1")}
		if change != nil {
			change(&op)
		}
		must(t, applyOne(t, s.Jobs(), op).Err)
	}
	failed := func(op *queue.Op) { op.Status = queue.Failed }
	attempt := func(next queue.Instant) {
		t.Helper()
		for _, d := range deliveries(t, s) {
			must(t, s.Jobs().Record(ctx, []queue.Attempt{{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: at + 10, Next: next}}))
		}
	}
	lives := []func(j *queue.Job){
		func(*queue.Job) {},
		func(j *queue.Job) { apply(j, queue.OpChunk, nil); apply(j, queue.OpChunk, nil) },
		func(j *queue.Job) {
			for range oneByOne + 1 {
				apply(j, queue.OpChunk, nil)
			}
		},
		func(j *queue.Job) {
			apply(j, queue.OpChunk, nil)
			apply(j, queue.OpDrain, func(op *queue.Op) { op.N, op.Bytes = 1, 1 })
		},
		func(j *queue.Job) { apply(j, queue.OpProgress, nil); apply(j, queue.OpProgress, nil) },
		func(j *queue.Job) {
			for range oneByOne {
				apply(j, queue.OpProgress, nil)
			}
		},
		func(j *queue.Job) { apply(j, queue.OpChunk, nil); apply(j, queue.OpRelease, nil) },
		func(j *queue.Job) { apply(j, queue.OpFinish, failed) },
		func(j *queue.Job) {
			apply(j, queue.OpFinish, failed)
			attempt(at + 10)
			apply(j, queue.OpRetry, nil)
		},
		func(j *queue.Job) { apply(j, queue.OpFinish, failed); attempt(0) },
		func(j *queue.Job) { apply(j, queue.OpFinish, failed); attempt(at + 10); attempt(0) },
		func(j *queue.Job) {
			apply(j, queue.OpFinish, failed)
			attempt(at + 10)
			s = reopen(t, s)
			attempt(0)
		},
		func(j *queue.Job) {
			apply(j, queue.OpFinish, failed)
			attempt(0)
			apply(j, queue.OpRedeliver, nil)
			attempt(at + 10)
		},
	}
	for i, live := range lives {
		j := jobWithWebhook(fmt.Sprint("job-", i))
		must(t, s.Jobs().Enqueue(ctx, []queue.Job{j}))
		for j = claimOne(t, s.Jobs(), "w"); j.ID != queue.JobID(fmt.Sprint("job-", i)); j = claimOne(t, s.Jobs(), "w") {
			continue // an older job that is queued again
		}
		live(&j)
		if as, err := s.Jobs().Attempts(ctx, j.Ref); err != nil || i == 11 && len(as) != 2 {
			t.Errorf("%s has %d attempts, %v", j.ID, len(as), err)
		}
	}
	attempt(0)
	s = reopen(t, s)
	attempt(0)
	for next := at; next != 0; {
		var err error
		next, err = s.Jobs().Expire(ctx, at+100_000_000, 100)
		must(t, err)
	}
	e, err := s.engine()
	must(t, err)
	must(t, e.commit(func(*pebble.Batch) {}, nil)) // after this commit the clean-up is written
	it, err := e.db.NewIter(nil)
	must(t, err)
	for it.First(); it.Valid(); it.Next() {
		if k := it.Key(); k[0] != keyMeta && k[0] != keyCount {
			t.Errorf("%s is left: %x", kindNames[k[0]], k)
		}
	}
	must(t, it.Close())
}
