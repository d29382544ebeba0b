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

// countedDeliveries counts the deliveries that are read.
type countedDeliveries struct {
	serverless.JobQueue
	read atomic.Int64
}

func (q *countedDeliveries) Deliveries(ctx context.Context, now, until queue.Instant, limit int) ([]queue.Delivery, error) {
	list, err := q.JobQueue.Deliveries(ctx, now, until, limit)
	q.read.Add(int64(len(list)))
	return list, err
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
		if n := q.read.Load(); n < 300 || n > 1200 {
			t.Errorf("300 webhooks to a silent receiver were read %d times in a minute", n)
		}
	})
}
