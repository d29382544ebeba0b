package serverless_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A readCounter counts the reads of jobs with their payloads that have a mark in their context.
// A lease that is renewed while its job ends causes another one.
type readCounter struct {
	serverless.JobQueue
	reads atomic.Int64
}

type readMark struct{}

func (q *readCounter) Get(ctx context.Context, now serverless.Instant, ref serverless.Ref) (serverless.Job, error) {
	if ctx.Value(readMark{}) != nil {
		q.reads.Add(1)
	}
	return q.JobQueue.Get(ctx, now, ref)
}

// SubmitAndWait returns the result that a worker reports as Get returns it, and reads the job only
// if its input is long or something else has ended it.
func TestSubmitAndWaitReturnsTheReportedResult(t *testing.T) {
	extra := []byte(`{"s3Config":{}}`)
	for name, c := range map[string]struct {
		request serverless.Request
		work    func(*serverless.Service, *serverless.Task) ([]byte, error)
		reads   bool
	}{
		"an output": {serverless.Request{Input: []byte(`{"n":1}`), Extra: extra}, func(_ *serverless.Service, k *serverless.Task) ([]byte, error) { return k.Input, nil }, false},
		"no output": {serverless.Request{Input: []byte(`{}`)}, func(*serverless.Service, *serverless.Task) ([]byte, error) { return nil, nil }, false},
		"a failure": {serverless.Request{Input: []byte(`{}`)}, func(*serverless.Service, *serverless.Task) ([]byte, error) {
			return nil, &serverless.Failure{Output: []byte(`1`), Text: "no"}
		}, false},
		"a progress": {serverless.Request{Input: []byte(`{}`)}, func(_ *serverless.Service, k *serverless.Task) ([]byte, error) {
			return nil, errors.Join(k.Progress(t.Context(), []byte(`1`)), errors.New("bad"))
		}, false},
		"long input": {serverless.Request{Input: []byte(`{"x":"` + strings.Repeat("x", 5000) + `"}`)}, func(_ *serverless.Service, k *serverless.Task) ([]byte, error) { return k.Input, nil }, true},
		"cancelled": {serverless.Request{Input: []byte(`{}`)}, func(s *serverless.Service, k *serverless.Task) ([]byte, error) {
			_, err := s.Cancel(t.Context(), "alice", serverless.Ref{Endpoint: "echo", ID: k.ID})
			return []byte(`1`), err
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &readCounter{JobQueue: memory.NewJobs()}
				s := serviceOn(t, q, nil)
				serve(t, s, func(_ context.Context, k *serverless.Task) ([]byte, error) { return c.work(s, k) }, nil)
				j, err := s.SubmitAndWait(context.WithValue(t.Context(), readMark{}, true), "alice", "echo", c.request)
				if n := q.reads.Load(); err != nil || n > 0 != c.reads {
					t.Errorf("SubmitAndWait: %v after %d reads, want some: %v", err, n, c.reads)
				}
				synctest.Wait()
				if stored := mustGet(t, s, j.Ref); !reflect.DeepEqual(j, stored) || !j.Status.Terminal() {
					t.Errorf("SubmitAndWait = %+v, want %+v", j, stored)
				}
			})
		})
	}
}

// A report that is refused, or whose outcome is unknown, does not end the wait with its result.
func TestSubmitAndWaitReadsAJobWhoseReportFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		got := make(chan serverless.Job, 1)
		go func() {
			j, err := s.SubmitAndWait(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Wait: time.Minute})
			if err != nil {
				t.Error(err)
			}
			got <- j
		}()
		synctest.Wait()
		j := takeOne(t, s, "w")
		report := func(w serverless.WorkerID, out string) error {
			return s.Report(t.Context(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: serverless.Completed, Worker: w, Payload: []byte(out)})
		}
		if err := report("other", `1`); !errors.Is(err, serverless.ErrLeaseLost) {
			t.Errorf("a report of another worker: %v, want ErrLeaseLost", err)
		}
		synctest.Wait()
		if len(got) != 0 {
			t.Fatal("SubmitAndWait returned after a report that was refused")
		}
		q.loseAnswers("Apply", 1)
		if err := report("w", `2`); err == nil {
			t.Error("a report without an answer of the queue returned nil")
		}
		if end := <-got; end.Status != serverless.Completed || string(end.Output) != `2` {
			t.Errorf("SubmitAndWait = %v %s, want COMPLETED 2", end.Status, end.Output)
		}
	})
}
