package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A queued job whose input is damaged ends: waiting callers return, its webhook is sent, its
// owner reads why, and the worker that asked for a job gets the next one.
func TestADamagedJobFailsAndOthersGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := fault.Jobs(memory.NewJobs(), fault.NewPlan(1))
		var sent lineLog
		s := serviceOn(t, q, &serverless.Options{Sender: senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			sent.add(string(d.Job.AppendJSON(nil, true)))
			return 200, nil
		})})
		bad := submitEcho(t, s, withInput(`{"n":1}`), withWebhook("https://example.com/hook"))
		good := submitEcho(t, s, withInput(`{"n":2}`))
		waited := make(chan serverless.Job, 1)
		go func() {
			j, err := s.Wait(t.Context(), "alice", bad, time.Minute)
			if err != nil {
				t.Errorf("Wait: %v", err)
			}
			waited <- j
		}()
		synctest.Wait()
		q.Damage(bad)
		if j := takeOne(t, s, "w"); j.Ref != good {
			t.Errorf("Take gives %s, want the other job", j.ID)
		}
		j := <-waited
		if j.Status != serverless.Failed || j.Input != nil || !strings.HasPrefix(j.ErrorText(), "damaged: ") {
			t.Errorf("the job is %v with input %s and error %q, want FAILED as damaged", j.Status, j.Input, j.ErrorText())
		}
		synctest.Wait()
		want := []string{fmt.Sprintf(`{"delayTime":0,"error":%q,"executionTime":0,"id":%q,"status":"FAILED"}`, j.ErrorText(), bad.ID)}
		if diff := cmp.Diff(want, sent.all()); diff != "" {
			t.Errorf("webhooks (-want +got):\n%s", diff)
		}
		if _, err := s.Retry(t.Context(), "alice", bad); !errors.Is(err, queue.ErrInputLost) {
			t.Errorf("Retry = %v, want ErrInputLost", err)
		}
	})
}

// A corruptQueue cannot read what some jobs have put out.
type corruptQueue struct {
	serverless.JobQueue
	corrupt map[serverless.Ref]bool
}

func (q *corruptQueue) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	j, err := q.JobQueue.Get(ctx, now, ref)
	if err == nil && j.Output != nil && q.corrupt[ref] {
		j.Output, err = nil, serverless.ErrDamaged
	}
	return j, err
}

func (q *corruptQueue) LoadDelivery(ctx context.Context, d *serverless.Delivery) error {
	err := q.JobQueue.LoadDelivery(ctx, d)
	if q.corrupt[d.Job.Ref] {
		d.Job.Output, d.Fault = nil, "damaged"
	}
	return err
}

// A result that cannot be read is an error to who asks for it. What does not need it is
// done all the same.
func TestADamagedOutputDoesNotAffectOtherJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &corruptQueue{memory.NewJobs(), map[serverless.Ref]bool{}}
		s := serviceOn(t, q, &serverless.Options{Sender: senderFunc(func(context.Context, *serverless.Delivery) (int, error) {
			t.Error("a webhook was sent without the output")
			return 200, nil
		})})
		ref := submitEcho(t, s, withWebhook("https://example.com/hook"))
		takeOne(t, s, "w")
		q.corrupt[ref] = true
		op := queue.Op{Ref: ref, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no", Payload: []byte("1")}
		if err := s.Report(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if _, err := s.Get(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrDamaged) {
			t.Errorf("Get = %v, want ErrDamaged", err)
		}
		if _, err := s.Get(t.Context(), "bob", ref); !errors.Is(err, serverless.ErrNotFound) {
			t.Errorf("Get by another user = %v, want ErrNotFound", err)
		}
		if _, err := s.Cancel(t.Context(), "alice", ref); !errors.Is(err, serverless.ErrDamaged) {
			t.Errorf("Cancel of a job that has ended = %v, want ErrDamaged: its answer has the output", err)
		}
		as, err := s.Deliveries(t.Context(), "alice", ref)
		if err != nil || len(as) != serverless.WebhookTries || as[0].Err != "damaged" {
			t.Errorf("Deliveries = %+v, %v, want %d attempts that say why", as, err, serverless.WebhookTries)
		}
		for _, full := range []bool{false, true} {
			p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Limit: 10, Full: full})
			if err != nil || len(p.Jobs) != 1 || p.Jobs[0].Ref != ref || p.Jobs[0].Status != serverless.Failed {
				t.Errorf("Requests, full %v = %+v, %v, want the job as it was listed", full, p.Jobs, err)
			}
		}
		if j, err := s.Retry(t.Context(), "alice", ref); err != nil || j.Status != serverless.InQueue {
			t.Errorf("Retry = %v, %v, want it queued", j.Status, err)
		}
	})
}
