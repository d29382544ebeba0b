package postgres_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A deafQueue hears of no event, as when notifications are lost or a pooler does not pass them on.
// If it does not say that it is shared, its service does not look by itself.
type deafQueue struct {
	*postgres.Jobs
	looks   bool
	claimed chan struct{} // after a claim, if there is room
}

func (q deafQueue) Shared() bool { return q.looks }

func (q deafQueue) Watch(ctx context.Context, _ func([]queue.Event)) error {
	<-ctx.Done()
	return ctx.Err()
}

func (q deafQueue) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	out, err := q.Jobs.Claim(ctx, now, slots, out)
	select {
	case q.claimed <- struct{}{}:
	default:
	}
	return out, err
}

// service runs a service until the test ends.
func service(t *testing.T, q serverless.JobQueue, eps serverless.EndpointStore) *serverless.Service {
	t.Helper()
	s := serverless.New(q, eps, nil)
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := s.Run(ctx); err != nil && !errors.Is(err, context.Canceled) {
			t.Errorf("Run = %v", err)
		}
	})
	t.Cleanup(func() { cancel(); running.Wait() })
	return s
}

// Looking once a second is enough where every notification is lost. Without it, a job at another
// server is never found: so this test finds both mistakes together.
func TestAServerThatHearsNothingFindsJobsBecauseItLooks(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, looks := range map[string]bool{"it looks": true, "it does not look": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url, eps := postgresql.Database(t), memory.NewEndpoints()
			must(t, eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}))
			here := service(t, openURL(t, url).Jobs(), eps)
			claimed := make(chan struct{}, 2)
			there := service(t, deafQueue{openURL(t, url).Jobs(), looks, claimed}, eps)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var jobs []queue.Job
			var err error
			taken := make(chan struct{})
			go func() {
				defer close(taken)
				jobs, err = there.Take(ctx, "e", "w", 1)
			}()
			for range cap(claimed) { // then it waits
				select {
				case <-claimed:
				case <-taken:
					t.Fatalf("Take = %d jobs, %v, before there is one", len(jobs), err)
				}
			}
			_, refused := here.Submit(t.Context(), "alice", "e", serverless.Request{Input: []byte(`{}`)})
			must(t, refused)
			limit := 4 * time.Second
			if looks {
				limit = suite.Within(limit)
			}
			defer time.AfterFunc(limit, cancel).Stop()
			<-taken
			if err != nil || (len(jobs) == 1) != looks {
				t.Errorf("Take = %d jobs, %v, want one: %v", len(jobs), err, looks)
			}
		})
	}
}
