package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// submitAs submits n jobs of a user.
func submitAs(t *testing.T, s *serverless.Service, owner string, n int) (refs []serverless.Ref) {
	t.Helper()
	for range n {
		j, err := s.Submit(t.Context(), owner, "echo", serverless.Request{Input: []byte(`{}`)})
		if err != nil {
			t.Fatal(err)
		}
		refs = append(refs, j.Ref)
	}
	return refs
}

func TestPurgeCancelsTheQueuedJobsOfOneUser(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		running := submitEcho(t, s)
		takeOne(t, s, "w")
		mine, theirs := submitAs(t, s, "alice", 2500), submitAs(t, s, "bob", 3)
		w := waitAsync(t.Context(), s, mine[1234], time.Hour)
		if n, err := s.Purge(t.Context(), "alice", "echo"); n != 2500 || err != nil {
			t.Fatalf("Purge = %d, %v, want 2500: more than one step of it", n, err)
		}
		if got := <-w; got.job.Status != serverless.Cancelled || got.after != 0 {
			t.Errorf("Wait = %v after %v, want CANCELLED at once", got.job.Status, got.after)
		}
		for _, ref := range mine {
			wantStatus(t, s, ref, serverless.Cancelled)
		}
		wantStatus(t, s, running, serverless.InProgress)
		for _, ref := range theirs {
			if j, err := s.Get(t.Context(), "bob", ref); err != nil || j.Status != serverless.InQueue {
				t.Errorf("another user's job is %v, %v, want IN_QUEUE", j.Status, err)
			}
		}
		if n, err := s.Purge(t.Context(), "alice", "echo"); n != 0 || err != nil {
			t.Errorf("second Purge = %d, %v, want 0", n, err)
		}
		if err := finish(t, s, running, "w", `1`); err != nil {
			t.Errorf("the running job's result = %v, want nil", err)
		}
	})
}

func TestPurgeOfAllOwners(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serviceOn(t, memory.NewJobs(), nil)
		submitAs(t, s, "alice", 3)
		submitAs(t, s, "bob", 4)
		if _, err := s.Submit(t.Context(), "alice", "other", serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Purge(t.Context(), serverless.AllOwners, "echo"); n != 7 || err != nil {
			t.Errorf("Purge of everyone = %d, %v, want 7", n, err)
		}
		if h, err := s.Health(t.Context(), "other"); err != nil || h.Jobs.Queued != 1 {
			t.Errorf("another endpoint has %d queued, %v, want 1", h.Jobs.Queued, err)
		}
	})
}

func TestJobsSubmittedDuringAPurgeStay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := &growing{Jobs: memory.NewJobs()}
		s := serviceOn(t, q, nil)
		submitAs(t, s, "alice", 1500)
		var late []serverless.Ref
		q.between = func() { late = append(late, submitAs(t, s, "alice", 1)...) }
		if n, err := s.Purge(t.Context(), "alice", "echo"); n != 1500 || err != nil {
			t.Fatalf("Purge = %d, %v, want the 1500 that were there", n, err)
		}
		if len(late) == 0 {
			t.Fatal("nothing was submitted meanwhile")
		}
		for _, ref := range late {
			wantStatus(t, s, ref, serverless.InQueue)
		}
	})
}

// A growing queue gets jobs between the steps of a purge.
type growing struct {
	*memory.Jobs
	between func()
}

func (q *growing) Purge(ctx context.Context, now serverless.Instant, p queue.PurgeQuery) (int, uint64, error) {
	q.between()
	return q.Jobs.Purge(ctx, now, p)
}

func TestRequestsAreNewestFirstAndInPages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		var want []serverless.JobID
		for i := range 25 {
			want = append(want, submitEcho(t, s, withInput(fmt.Sprintf(`{"n":%d}`, i))).ID)
			if i%5 == 0 {
				time.Sleep(time.Second)
			}
		}
		submitAs(t, s, "bob", 2)
		slices.Reverse(want)
		var got []serverless.JobID
		for offset := 0; offset < 30; offset += 10 {
			p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Offset: offset, Limit: 10})
			if err != nil || p.Total != 25 {
				t.Fatalf("Requests from %d: total %d, %v, want 25", offset, p.Total, err)
			}
			for _, j := range p.Jobs {
				got = append(got, j.ID)
				if j.Input != nil || j.Output != nil {
					t.Errorf("job %s comes with payloads nobody asked for", j.ID)
				}
			}
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("ids (-want +got):\n%s", diff)
		}
		if p, err := s.Requests(t.Context(), serverless.AllOwners, "echo", serverless.RequestsQuery{Limit: 1}); err != nil || p.Total != 27 || p.Jobs[0].Owner != "bob" {
			t.Errorf("everyone's: total %d, %v, want 27 and the newest one bob's", p.Total, err)
		}
		if p, err := s.Requests(t.Context(), "carol", "echo", serverless.RequestsQuery{Limit: 10}); err != nil || p.Total != 0 || len(p.Jobs) != 0 {
			t.Errorf("a stranger's: %+v, %v, want none", p, err)
		}
		if p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Offset: 25, Limit: 10}); err != nil || p.Total != 25 || len(p.Jobs) != 0 {
			t.Errorf("past the end: %d jobs of %d, %v, want none of 25", len(p.Jobs), p.Total, err)
		}
	})
}

func TestRequestsByStatusAndWithPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		done := submitEcho(t, s, withInput(`{"n":1}`))
		takeOne(t, s, "w")
		if err := finish(t, s, done, "w", `{"out":1}`); err != nil {
			t.Fatal(err)
		}
		running := submitEcho(t, s, withInput(`{"n":2}`))
		takeOne(t, s, "w")
		queued := submitEcho(t, s, withInput(`{"n":3}`))
		for _, tt := range []struct {
			status []serverless.Status
			want   []serverless.Ref
		}{
			{nil, []serverless.Ref{queued, running, done}},
			{[]serverless.Status{serverless.InQueue}, []serverless.Ref{queued}},
			{[]serverless.Status{serverless.Completed, serverless.InProgress}, []serverless.Ref{running, done}},
			{[]serverless.Status{serverless.TimedOut}, nil},
		} {
			p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Status: tt.status, Limit: 10, Full: true})
			if err != nil || p.Total != len(tt.want) {
				t.Errorf("%v: total %d, %v, want %d", tt.status, p.Total, err, len(tt.want))
			}
			var got []serverless.Ref
			for _, j := range p.Jobs {
				got = append(got, j.Ref)
				if whole := mustGet(t, s, j.Ref); !cmp.Equal(whole, j) || j.Input == nil {
					t.Errorf("full job (-want +got):\n%s", cmp.Diff(whole, j))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("%v (-want +got):\n%s", tt.status, diff)
			}
		}
	})
}

// A queue lists states: what the worker said of a failure is read besides.
func TestAListingSaysWhyJobsFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		failed := submitEcho(t, s, withInput(`{"n":1}`))
		takeOne(t, s, "w")
		op := queue.Op{Ref: failed, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "no luck", Payload: []byte(`{"half":1}`)}
		if err := s.Report(t.Context(), op); err != nil {
			t.Fatal(err)
		}
		submitEcho(t, s)
		p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Limit: 10})
		if err != nil || len(p.Jobs) != 2 {
			t.Fatalf("Requests = %d jobs, %v, want 2", len(p.Jobs), err)
		}
		want := mustGet(t, s, failed)
		want.Input, want.Output = nil, nil
		if diff := cmp.Diff(want, p.Jobs[1]); diff != "" || want.ErrorText() != "no luck" {
			t.Errorf("the failed job (-want +got):\n%s", diff)
		}
		if j := p.Jobs[0]; j.Input != nil || j.Status != serverless.InQueue {
			t.Errorf("the queued job is listed as %v with input %s, want IN_QUEUE without", j.Status, j.Input)
		}
	})
}

func TestListingThatTheQueueBreaksOffIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		s := serviceOn(t, q, nil)
		submitEcho(t, s)
		for _, method := range []string{"List", "Get"} {
			q.failCalls(method, 1)
			if p, err := s.Requests(t.Context(), "alice", "echo", serverless.RequestsQuery{Limit: 10, Full: true}); !errors.Is(err, errInjected) {
				t.Errorf("Requests without %s = %d jobs, %v, want the queue's error", method, len(p.Jobs), err)
			}
		}
	})
}
