package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// awayService is a service over q with the endpoint "e".
func awayService(t *testing.T, q serverless.JobQueue) *serverless.Service {
	t.Helper()
	eps := memory.NewEndpoints()
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
		t.Fatal(err)
	}
	return serverless.New(q, eps, nil)
}

// A worker that streams meets a restart of the database. That is nothing that its job did.
func TestAJobWhoseWorkerCannotReachTheStoreRunsAgain(t *testing.T) {
	for _, row := range []struct {
		name   string
		away   time.Duration // Emit waits for 25 s
		wrap   func(error) error
		status serverless.Status
		runs   int
	}{
		{"a short outage", 10 * time.Second, func(err error) error { return err }, serverless.Completed, 1},
		{"the error of Emit", 26 * time.Second, func(err error) error { return err }, serverless.Completed, 2},
		{"the error of Emit, wrapped", 26 * time.Second, func(err error) error { return fmt.Errorf("stream: %w", err) }, serverless.Completed, 2},
		{"an error of its own", 26 * time.Second, func(error) error { return errors.New("no luck") }, serverless.Failed, 1},
	} {
		t.Run(row.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				plan := fault.NewPlan(1)
				s := awayService(t, fault.Jobs(memory.NewJobs(), plan))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				runs := 0
				go func() { _ = s.Run(ctx) }()
				go func() {
					_ = s.Serve(ctx, "e", serverless.WorkerFunc(func(ctx context.Context, task *serverless.Task) ([]byte, error) {
						time.Sleep(time.Second) // the first renewal is made: the next call is that of Emit
						if runs++; runs == 1 {
							plan.Add(fault.Rule{Name: "away", Call: "jobs.Apply", Kind: fault.Before})
							time.AfterFunc(row.away, func() { plan.Enable("away", false) })
						}
						if task.Attempt != 1 {
							t.Errorf("attempt %d, want 1: the delivery is not counted", task.Attempt)
						}
						if err := task.Emit(ctx, []byte("1")); err != nil {
							return nil, row.wrap(err)
						}
						return []byte("[1]"), nil
					}), nil)
				}()
				j, err := s.SubmitAndWait(t.Context(), "ann", "e", serverless.Request{Input: []byte(`{}`), Wait: 2 * time.Minute})
				if err != nil || j.Status != row.status || runs != row.runs {
					t.Errorf("the job is %s with %q after %d runs, %v, want %s after %d", j.Status, j.Error, runs, err, row.status, row.runs)
				}
			})
		})
	}
}

// The only worker of an endpoint cannot renew its lease. It stops, and has the job again later.
func TestAnInProcessWorkerGetsAJobAgainWhoseLeaseItCouldNotRenew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plan := fault.NewPlan(1)
		s := awayService(t, fault.Jobs(memory.NewJobs(), plan))
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var causes []error
		go func() { _ = s.Run(ctx) }()
		go func() {
			_ = s.Serve(ctx, "e", serverless.WorkerFunc(func(ctx context.Context, _ *serverless.Task) ([]byte, error) {
				if len(causes) == 1 {
					return []byte("1"), nil
				}
				plan.Add(fault.Rule{Call: "jobs.Apply", Kind: fault.Before, Times: 100}) // once a second
				<-ctx.Done()
				causes = append(causes, context.Cause(ctx))
				return nil, ctx.Err()
			}), nil)
		}()
		j, err := s.SubmitAndWait(t.Context(), "ann", "e", serverless.Request{Input: []byte(`{}`), Wait: 5 * time.Minute})
		if err != nil || j.Status != serverless.Completed || j.Deliveries != 2 {
			t.Errorf("the job is %s after %d deliveries, %v, want COMPLETED after 2", j.Status, j.Deliveries, err)
		}
		if len(causes) != 1 || !errors.Is(causes[0], serverless.ErrLeaseLost) {
			t.Errorf("the first run was ended because of %v, want ErrLeaseLost", causes)
		}
	})
}

// A slowQueue answers a claim when its caller has gone.
type slowQueue struct{ serverless.JobQueue }

func (slowQueue) Claim(ctx context.Context, _ serverless.Instant, _ []queue.Slot, _ []queue.Job) ([]queue.Job, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// It is no error of the server that a worker goes while the store looks for a job.
func TestAWorkerThatGoesDuringAClaimGetsNoJobAndNoError(t *testing.T) {
	s := awayService(t, slowQueue{memory.NewJobs()})
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if jobs, err := s.Take(ctx, "e", "w", 1); err != nil || len(jobs) > 0 {
		t.Errorf("Take = %v, %v, want no job and no error", jobs, err)
	}
}
