package serverless_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A storingQueue takes a second to store the result of a job.
type storingQueue struct {
	serverless.JobQueue
	shared bool
}

func (q storingQueue) Shared() bool { return q.shared }

func (q storingQueue) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	if ops[0].Kind == queue.OpFinish {
		time.Sleep(time.Second)
	}
	return q.JobQueue.Apply(ctx, now, ops, res)
}

// A database takes a while to store a result. A worker with one slot begins the next job meanwhile, but
// no third one.
func TestASlotIsFreeWhileTheResultIsStoredInASharedQueue(t *testing.T) {
	for shared, want := range map[bool][]time.Duration{
		true:  {0, 100, 1100, 1200, 2200},
		false: {0, 1100, 2200, 3300, 4400},
	} {
		t.Run(fmt.Sprint("shared: ", shared), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				eps := twoEndpoints(t)
				s := serverless.New(storingQueue{memory.NewJobs(), shared}, eps, nil)
				for range want {
					submitEcho(t, s)
				}
				ctx, cancel := context.WithCancel(t.Context())
				go func() { _ = s.Run(ctx) }()
				began, starts := time.Now(), []time.Duration(nil)
				served := make(chan error)
				go func() {
					served <- s.Serve(ctx, "echo", serverless.WorkerFunc(func(context.Context, *serverless.Task) ([]byte, error) {
						starts = append(starts, time.Since(began)/time.Millisecond)
						time.Sleep(100 * time.Millisecond)
						return []byte("1"), nil
					}), nil)
				}()
				time.Sleep(4500 * time.Millisecond)
				cancel()
				if err := <-served; err != nil || !slices.Equal(starts, want) {
					t.Errorf("Serve = %v, the jobs start after %d ms, want %d", err, starts, want)
				}
			})
		})
	}
}
