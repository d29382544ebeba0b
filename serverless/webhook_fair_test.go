package serverless_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// silent is a sender to receivers that do not answer, but for those of quick.
func silent(quick *lineLog, begin time.Time) senderFunc {
	return func(_ context.Context, d *serverless.Delivery) (int, error) {
		if strings.HasPrefix(d.Job.Webhook, "https://quick") {
			quick.add(time.Since(begin).String())
			return 200, nil
		}
		time.Sleep(30 * time.Second)
		return 500, nil
	}
}

func TestDeliveriesOfOneUserToManySilentReceiversDelayNobodyElses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quick lineLog
		begin := time.Now()
		s := newService(t, &serverless.Options{
			Sender: silent(&quick, begin), Budgets: budget.NewSet(budget.Users{Limits: budget.Limits{Webhooks: 64}}),
		})
		serve(t, s, echo, &serverless.ServeOptions{Concurrency: 1000})
		for i := range 576 {
			submitEcho(t, s, withWebhook(fmt.Sprintf("https://silent%d.example/", i)))
		}
		synctest.Wait()
		r := serverless.Request{Input: []byte(`{}`), Webhook: "https://quick.example/"}
		if _, err := s.Submit(t.Context(), "somebody-else", "echo", r); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if got := quick.all(); len(got) != 1 || got[0] != "0s" {
			t.Errorf("the other user's webhook was sent at %v, want at once", got)
		}
		if users, _ := s.Sending().Users(t.Context()); len(users) != 1 {
			t.Fatalf("webhooks of %q are being sent, want those of one user", users)
		} else if u, _ := s.Sending().Usage(t.Context(), users[0]); u[budget.Webhooks] != 64 {
			t.Errorf("%d webhooks are being sent, want 64", u[budget.Webhooks])
		}
	})
}

// countedDeliveries counts the deliveries that are leased, and those whose payloads are read.
type countedDeliveries struct {
	serverless.JobQueue
	leased, read atomic.Int64
}

func (q *countedDeliveries) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	list, err := q.JobQueue.Deliveries(ctx, now, until, limit)
	q.leased.Add(int64(len(list)))
	return list, err
}

func (q *countedDeliveries) LoadDelivery(ctx context.Context, d *queue.Delivery) error {
	q.read.Add(1)
	return q.JobQueue.LoadDelivery(ctx, d)
}

func TestDeliveriesThatWaitForASilentReceiverAreReadLessAndLessOften(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var quick lineLog
		q := &countedDeliveries{JobQueue: memory.NewJobs()}
		s := serviceOn(t, q, &serverless.Options{Sender: silent(&quick, time.Now())})
		serve(t, s, echo, &serverless.ServeOptions{Concurrency: 1000})
		for range 300 {
			submitEcho(t, s, withWebhook("https://silent.example/"))
		}
		time.Sleep(time.Minute)
		if n := q.leased.Load(); n < 300 || n > 1200 {
			t.Errorf("300 webhooks to a silent receiver were leased %d times in a minute", n)
		}
		if n := q.read.Load(); n > 40 {
			t.Errorf("the payloads of webhooks to a silent receiver were read %d times in a minute", n)
		}
	})
}

// A receiver answers deliveries of the owner mallory with a status, which may change, and notes all.
type receiver struct {
	status atomic.Int32 // of answers to mallory
	sent   lineLog
}

func (r *receiver) Send(_ context.Context, d *serverless.Delivery) (int, error) {
	r.sent.add(d.Job.Owner + " " + d.Job.Webhook)
	if d.Job.Owner == "mallory" && strings.Contains(d.Job.Webhook, "shared") {
		return int(r.status.Load()), nil
	}
	return 200, nil
}

// count returns how many deliveries of an owner to a URL were sent.
func (r *receiver) count(owner, url string) (n int) {
	for _, line := range r.sent.all() {
		if line == owner+" "+url {
			n++
		}
	}
	return n
}

func submitHook(t *testing.T, s *serverless.Service, owner, url string) serverless.Ref {
	t.Helper()
	j, err := s.Submit(t.Context(), owner, "echo", serverless.Request{Input: []byte(`{}`), Webhook: url})
	if err != nil {
		t.Fatal(err)
	}
	return j.Ref
}

func TestAReceiverThatFailsIsLeftAloneAndHoldsNobodyBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const shared, other = "https://shared.example/", "https://other.example/"
		var r receiver
		r.status.Store(500)
		q := &countedDeliveries{JobQueue: memory.NewJobs()}
		s := serviceOn(t, q, &serverless.Options{Sender: &r})
		serve(t, s, echo, &serverless.ServeOptions{Concurrency: 1000})
		var refs []serverless.Ref
		for range 500 {
			refs = append(refs, submitHook(t, s, "mallory", shared))
		}
		time.Sleep(5 * time.Minute)
		if n := r.count("mallory", shared); n < 10 || n > 40 {
			t.Errorf("a receiver that fails gets %d webhooks in 5 minutes, want a few", n)
		}
		if n := q.read.Load(); n > 40 {
			t.Errorf("payloads were read %d times", n)
		}
		submitHook(t, s, "mallory", other)
		submitHook(t, s, "alice", shared)
		synctest.Wait()
		if r.count("mallory", other) != 1 || r.count("alice", shared) != 1 {
			t.Error("another receiver, and another user of this one, must not wait")
		}
		r.status.Store(200)
		before := r.count("mallory", shared)
		time.Sleep(5 * time.Minute)
		if n := r.count("mallory", shared) - before; n < 450 {
			t.Errorf("the receiver works again and got %d webhooks in 5 minutes, want all that were not given up", n)
		}
		attempts := 0
		for _, ref := range refs {
			log, err := s.Deliveries(t.Context(), "mallory", ref)
			if err != nil {
				t.Fatal(err)
			}
			attempts += len(log)
		}
		if sent := r.count("mallory", shared); attempts != sent {
			t.Errorf("%d attempts are in the logs, want the %d that were made: waiting is none", attempts, sent)
		}
	})
}

func TestWebhooksToAReceiverThatFailsForGoodDoNotPileUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r receiver
		r.status.Store(404)
		q := memory.NewJobs()
		s := serviceOn(t, q, &serverless.Options{Sender: &r})
		serve(t, s, echo, &serverless.ServeOptions{Concurrency: 1000})
		for range 300 {
			submitHook(t, s, "mallory", "https://shared.example/")
		}
		time.Sleep(20 * time.Minute)
		if next, err := q.NextDelivery(t.Context()); next == 0 || err != nil {
			t.Fatalf("NextDelivery = %v, %v, want that of those that wait", next, err)
		}
		time.Sleep(time.Hour)
		if next, err := q.NextDelivery(t.Context()); next != 0 || err != nil {
			t.Errorf("NextDelivery = %v, %v, want none: they were given up", next, err)
		}
		if u, err := q.Usage(t.Context(), "mallory"); err != nil || u[budget.Deliveries] != 0 {
			t.Errorf("%d deliveries are left, %v", u[budget.Deliveries], err)
		}
		if n := r.count("mallory", "https://shared.example/"); n > 150 {
			t.Errorf("the receiver got %d webhooks in that time", n)
		}
	})
}

func TestLargeWebhooksOfOneUserWaitForOneAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var most, now atomic.Int64
		s := newService(t, &serverless.Options{Sender: senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			most.Store(max(most.Load(), now.Add(int64(len(d.Job.Output)))))
			time.Sleep(time.Second)
			now.Add(-int64(len(d.Job.Output)))
			return 200, nil
		})})
		large := []byte(`"` + strings.Repeat("x", 8<<20) + `"`)
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) { return large, nil }, &serverless.ServeOptions{Concurrency: 100})
		for i := range 40 {
			submitEcho(t, s, withWebhook(fmt.Sprintf("https://host%d.example/", i)))
		}
		time.Sleep(time.Second / 2)
		if most.Load() > 128<<20 {
			t.Errorf("%d MB of payloads were read at once", most.Load()>>20)
		}
		begin := time.Now()
		submitHook(t, s, "alice", "https://host.example/")
		synctest.Wait()
		if now.Load() < 100<<20 || time.Since(begin) > 0 {
			t.Errorf("%d MB are being sent with the one of another user", now.Load()>>20)
		}
		time.Sleep(10 * time.Minute)
		if n := now.Load(); n != 0 {
			t.Errorf("%d bytes are still being sent", n)
		}
	})
}
