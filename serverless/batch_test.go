package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/queue"
)

// A batchYard is the stores that outlive servers.
type batchYard struct {
	t         *testing.T
	queue     *faultyQueue
	endpoints serverless.EndpointStore
	batches   batches.Store
	sender    serverless.Sender
}

func inBatchYard(t *testing.T, f func(t *testing.T, y *batchYard)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, &batchYard{t: t, queue: newFaultyQueue(), endpoints: twoEndpoints(t), batches: memory.NewBatches()})
	})
}

// server starts a server on the stores. stop ends it.
func (y *batchYard) server() (s *serverless.Service, stop func()) {
	s = serverless.New(y.queue, y.endpoints, &serverless.Options{Batches: y.batches, Sender: y.sender})
	ctx, cancel := context.WithCancel(y.t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	synctest.Wait()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			y.t.Errorf("Run = %v", err)
		}
	})
	y.t.Cleanup(stop)
	return s, stop
}

// inputs returns a request with so many requests.
func inputs(n int, change ...func(*serverless.BatchRequest)) serverless.BatchRequest {
	r := serverless.BatchRequest{Place: "/requests"}
	for i := range n {
		r.Requests = append(r.Requests, serverless.Request{Input: fmt.Appendf(nil, `{"n":%d}`, i)})
	}
	for _, f := range change {
		f(&r)
	}
	return r
}

func finalized(r *serverless.BatchRequest) { r.Finalize = true }

func createBatch(t *testing.T, s *serverless.Service, r serverless.BatchRequest) batches.Summary {
	t.Helper()
	b, err := s.CreateBatch(t.Context(), "alice", "echo", r)
	if err != nil {
		t.Fatalf("CreateBatch: %v", err)
	}
	return b
}

// counts returns a batch as "STATUS total running completed failed".
func counts(t *testing.T, s *serverless.Service, id string) string {
	t.Helper()
	synctest.Wait()
	b, err := s.Batches().Get(t.Context(), "alice", "echo", id)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%s %d %d %d %d", b.Status, b.RequestTotal, b.RequestInProgress, b.RequestCompleted, b.RequestFailed)
}

func wantCounts(t *testing.T, s *serverless.Service, id, want string) {
	t.Helper()
	if got := counts(t, s, id); got != want {
		t.Errorf("the batch is %q, want %q", got, want)
	}
}

// workBatch has a worker end the next jobs of echo, and returns their numbers in the batch.
func workBatch(t *testing.T, s *serverless.Service, n int) (numbers []string) {
	t.Helper()
	for range n {
		j := takeOne(t, s, "w")
		if err := finish(t, s, j.Ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		_, number, _ := strings.Cut(string(j.ID), "-")
		numbers = append(numbers, number)
	}
	synctest.Wait()
	return numbers
}

func batchPage(t *testing.T, s *serverless.Service, id string, offset, limit int) (list []string) {
	t.Helper()
	p, err := s.Batches().Requests(t.Context(), "alice", "echo", id, offset, limit)
	if err != nil {
		t.Fatal(err)
	}
	for _, j := range p.Requests {
		_, number, _ := strings.Cut(string(j.ID), "-")
		list = append(list, fmt.Sprintf("%s %s %s", number, j.Status, j.Output))
	}
	return list
}

func TestABatchOfHoursKeepsItsFirstResultsUntilHalfAnHourAfterItsLast(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(5, finalized))
		if b.Status != batches.Finalized || !strings.HasPrefix(b.ID, "batch_") {
			t.Errorf("the batch is %+v", b)
		}
		for i := range 5 {
			wantCounts(t, s, b.ID, fmt.Sprintf("FINALIZED 5 0 %d 0", i))
			if got := workBatch(t, s, 1); got[0] != fmt.Sprint(i) {
				t.Errorf("request %s was taken, want %d", got, i)
			}
			if i < 4 {
				time.Sleep(2 * time.Hour)
			}
		}
		wantCounts(t, s, b.ID, "FINALIZED 5 0 5 0")
		all := []string{"0 COMPLETED 1", "1 COMPLETED 1", "2 COMPLETED 1", "3 COMPLETED 1", "4 COMPLETED 1"}
		time.Sleep(29 * time.Minute)
		if diff := cmp.Diff(all, batchPage(t, s, b.ID, 0, 10)); diff != "" {
			t.Errorf("results (-want +got):\n%s", diff)
		}
		time.Sleep(2 * time.Minute)
		gone := []string{"0 COMPLETED ", "1 COMPLETED ", "2 COMPLETED ", "3 COMPLETED ", "4 COMPLETED "}
		if diff := cmp.Diff(gone, batchPage(t, s, b.ID, 0, 10)); diff != "" {
			t.Errorf("after half an hour the results are gone and the counts stay (-want +got):\n%s", diff)
		}
		wantCounts(t, s, b.ID, "FINALIZED 5 0 5 0")
		time.Sleep(batches.Retention)
		wantCounts(t, s, b.ID, `batches: get "`+b.ID+`": batch not found`)
	})
}

func TestNoRequestOfADraftIsStarted(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(2))
		if _, err := s.AddToBatch(t.Context(), "alice", "echo", b.ID, inputs(3)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(20 * time.Hour)
		if jobs := tryTake(t, s, "w"); len(jobs) != 0 {
			t.Errorf("a worker got %d requests of a draft", len(jobs))
		}
		wantCounts(t, s, b.ID, "DRAFT 5 0 0 0")
		if err := s.Batches().DeleteRequest(t.Context(), "alice", "echo", b.ID, b.ID+"-1"); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second changes nothing
			if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", b.ID); err != nil {
				t.Fatal(err)
			}
		}
		wantCounts(t, s, b.ID, "FINALIZED 4 0 0 0")
		time.Sleep(23 * time.Hour) // the ttl counts from here
		if got := workBatch(t, s, 4); !slices.Equal(got, []string{"0", "2", "3", "4"}) {
			t.Errorf("requests %q were taken, want them in order without the deleted one", got)
		}
		wantCounts(t, s, b.ID, "FINALIZED 4 0 4 0")
		if _, err := s.AddToBatch(t.Context(), "alice", "echo", b.ID, inputs(1)); !errors.Is(err, batches.ErrNotDraft) {
			t.Errorf("AddToBatch to a finalized batch = %v", err)
		}
		if err := s.Batches().DeleteRequest(t.Context(), "alice", "echo", b.ID, b.ID+"-1"); !errors.Is(err, batches.ErrNoRequest) {
			t.Errorf("DeleteRequest of a deleted one = %v", err)
		}
		if err := s.Batches().DeleteRequest(t.Context(), "alice", "echo", b.ID, b.ID+"-0"); !errors.Is(err, batches.ErrNotDraft) {
			t.Errorf("DeleteRequest of a finalized batch = %v", err)
		}
	})
}

func TestADraftGoesAfter24HoursAndSendsNothing(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		sent := newSender(nil)
		y.sender = sent
		s, _ := y.server()
		b := createBatch(t, s, inputs(2, func(r *serverless.BatchRequest) { r.Webhook, r.Requests[0].Webhook = hook, hook }))
		until(batches.DraftLife, func() { wantCounts(t, s, b.ID, "DRAFT 2 0 0 0") }, func() {
			wantCounts(t, s, b.ID, `batches: get "`+b.ID+`": batch not found`)
		})
		time.Sleep(time.Minute)
		synctest.Wait()
		if n := jobsOfBatch(t, y.queue); n != 0 {
			t.Errorf("%d jobs of the draft are left", n)
		}
		if list, err := y.batches.All(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the store has %v, %v", list, err)
		}
		if got := sent.log.all(); len(got) != 0 {
			t.Errorf("webhooks were sent: %q", got)
		}
	})
}

func jobsOfBatch(t *testing.T, q serverless.JobQueue) (n int) {
	t.Helper()
	for _, err := range q.List(t.Context(), serverless.At(time.Now()), queue.ListQuery{Endpoint: "echo"}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func TestTheRequestsOfAFinalizedBatchAreStartedByWhoeverFindsThem(t *testing.T) {
	for what, lose := range map[string]func(q *faultyQueue){
		"before the first is started": func(q *faultyQueue) { q.failCalls("Apply", 1) },
		"after some were started":     func(q *faultyQueue) { q.loseAnswers("Apply", 1) },
	} {
		t.Run(what, func(t *testing.T) {
			inBatchYard(t, func(t *testing.T, y *batchYard) {
				s, stop := y.server()
				b := createBatch(t, s, inputs(3))
				lose(y.queue)
				if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", b.ID); err != nil {
					t.Fatal(err)
				}
				stop()
				s, _ = y.server()
				time.Sleep(24*time.Hour - time.Minute)
				if got := workBatch(t, s, 3); !slices.Equal(got, []string{"0", "1", "2"}) {
					t.Errorf("requests %q were taken", got)
				}
				wantCounts(t, s, b.ID, "FINALIZED 3 0 3 0")
			})
		})
	}
}

func TestOutcomesThatNoServerSawAreFoundAtTheStart(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, stop := y.server()
		b := createBatch(t, s, inputs(4, finalized))
		workBatch(t, s, 1)
		j := takeOne(t, s, "w")
		stop()
		other := serverless.New(y.queue, y.endpoints, nil) // a server without batches
		runService(t, other)
		if err := finish(t, other, j.Ref, "w", `2`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		s, _ = y.server()
		workBatch(t, s, 1)
		time.Sleep(2 * time.Second)
		wantCounts(t, s, b.ID, "FINALIZED 4 0 3 0")
		stored, err := y.batches.Get(t.Context(), b.ID)
		if err != nil || string(stored.Outcomes) != "cccp" {
			t.Errorf("the record has the outcomes %s, %v, want three that are completed", stored.Outcomes, err)
		}
	})
}

func TestTwoServersCountARequestOnceAndSendOneSummary(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		sent := newSender(nil)
		y.sender = sent
		a, _ := y.server()
		b, _ := y.server()
		v := createBatch(t, a, inputs(3, finalized, func(r *serverless.BatchRequest) { r.Webhook = hook }))
		workBatch(t, b, 3)
		time.Sleep(5 * time.Second)
		wantCounts(t, a, v.ID, "FINALIZED 3 0 3 0")
		wantCounts(t, b, v.ID, "FINALIZED 3 0 3 0")
		if got := sent.log.all(); len(got) != 1 || !strings.Contains(got[0], "msg_"+v.ID) {
			t.Errorf("sent %q, want one summary", got)
		}
	})
}

func TestOneSummaryIsSentAfterTheLastEndAndEachRequestsOwnToo(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		var bodies lineLog
		y.sender = senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			bodies.add(string(d.Payload()))
			if len(bodies.all()) == 2 {
				return 500, nil // the first attempt of the summary
			}
			return 200, nil
		})
		s, _ := y.server()
		b := createBatch(t, s, inputs(2, finalized, func(r *serverless.BatchRequest) { r.Webhook, r.Requests[0].Webhook = hook, hook }))
		workBatch(t, s, 1)
		time.Sleep(time.Minute)
		if got := bodies.all(); len(got) != 1 || !strings.Contains(got[0], `"status":"COMPLETED"`) {
			t.Errorf("sent %q before the last end, want the webhook of a request", got)
		}
		workBatch(t, s, 1)
		time.Sleep(time.Minute)
		want := fmt.Sprintf(`{"id":%q,"endpointId":"echo","status":"FINALIZED","requestTotal":2,"requestInProgress":0,"requestCompleted":2,"requestFailed":0,"createdAt":%d}`, b.ID, b.CreatedAt)
		if diff := cmp.Diff([]string{want, want}, bodies.all()[1:]); diff != "" {
			t.Errorf("summaries (-want +got):\n%s", diff)
		}
	})
}

func TestWebhooksOfBatchesOfOneUserToSilentReceiversDelayNobodyElses(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		var quick lineLog
		var silent atomic.Int64
		y.sender = senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			if strings.HasPrefix(d.Job.Webhook, "https://quick") {
				quick.add(time.Now().Format(time.TimeOnly))
				return 200, nil
			}
			silent.Add(1)
			time.Sleep(30 * time.Second)
			return 500, nil
		})
		s, _ := y.server()
		for i := range 40 {
			createBatch(t, s, inputs(1, finalized, func(r *serverless.BatchRequest) { r.Webhook = fmt.Sprintf("https://silent%d.example/", i%2) }))
			workBatch(t, s, 1)
		}
		time.Sleep(2 * time.Second)
		if n := silent.Load(); n != 32 {
			t.Errorf("%d webhooks are being sent to two silent receivers, want 16 to each", n)
		}
		_, err := s.CreateBatch(t.Context(), "bob", "echo", inputs(1, finalized, func(r *serverless.BatchRequest) { r.Webhook = "https://quick.example/" }))
		if err != nil {
			t.Fatal(err)
		}
		workBatch(t, s, 1)
		ended := time.Now()
		time.Sleep(time.Second)
		if got := quick.all(); len(got) != 1 || got[0] != ended.Format(time.TimeOnly) {
			t.Errorf("the webhook of the other user's batch was sent at %q, want once, at %s", got, ended.Format(time.TimeOnly))
		}
		time.Sleep(10 * time.Minute)
		if n := silent.Load(); n < 40 {
			t.Errorf("%d of 40 webhooks to silent receivers were sent", n)
		}
	})
}

func TestASummaryThatTheEndOfItsServerCutShortIsSentByTheNext(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		hangs := true
		arrived := 0
		y.sender = senderFunc(func(ctx context.Context, _ *serverless.Delivery) (int, error) {
			if hangs {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			arrived++
			return 200, nil
		})
		s, stop := y.server()
		createBatch(t, s, inputs(1, finalized, func(r *serverless.BatchRequest) { r.Webhook = hook }))
		workBatch(t, s, 1)
		time.Sleep(2 * time.Second)
		stop()
		hangs = false
		y.server()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if arrived != 1 {
			t.Errorf("%d summaries arrived, want one", arrived)
		}
	})
}

func TestCancelEndsWhatWaitsAndLeavesWhatRuns(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(4, finalized))
		workBatch(t, s, 1)
		j := takeOne(t, s, "w")
		if _, err := s.Batches().Cancel(t.Context(), "alice", "echo", b.ID); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, b.ID, "FINALIZED 4 1 1 2") // CANCELLED when what runs has ended
		want := []string{"2 CANCELLED ", "3 CANCELLED ", "1 IN_PROGRESS ", "0 COMPLETED 1"}
		if diff := cmp.Diff(want, batchPage(t, s, b.ID, 0, 10)); diff != "" {
			t.Errorf("requests (-want +got):\n%s", diff)
		}
		if err := finish(t, s, j.Ref, "w", `1`); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Second)
		wantCounts(t, s, b.ID, "CANCELLED 4 0 2 2")
		if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", b.ID); !errors.Is(err, batches.ErrEnded) {
			t.Errorf("Finalize of a cancelled batch = %v", err)
		}
		if v, err := s.Batches().Cancel(t.Context(), "alice", "echo", b.ID); err != nil || v.Status != batches.Cancelled {
			t.Errorf("Cancel of a cancelled batch = %v, %v", v, err)
		}
		draft := createBatch(t, s, inputs(1))
		if v, err := s.Batches().Cancel(t.Context(), "alice", "echo", draft.ID); err != nil || v.Status != batches.Cancelled || v.RequestFailed != 1 {
			t.Errorf("Cancel of a draft = %+v, %v", v, err)
		}
	})
}

func TestWhatExpiresOrFailsCountsAsFailed(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		short := time.Minute
		b := createBatch(t, s, inputs(3, func(r *serverless.BatchRequest) { r.Requests[1].Policy.TTL = &short }))
		time.Sleep(time.Hour) // the ttl does not run in a draft
		if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", b.ID); err != nil {
			t.Fatal(err)
		}
		j := takeOne(t, s, "w")
		if err := s.Report(t.Context(), queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Worker: "w", Status: queue.Failed, Error: "no"}); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, b.ID, "FINALIZED 3 0 0 1")
		time.Sleep(2 * time.Minute)
		wantCounts(t, s, b.ID, "FINALIZED 3 0 0 2")
		workBatch(t, s, 1)
		wantCounts(t, s, b.ID, "FINALIZED 3 0 1 2")
		want := []string{"0 FAILED ", "1 FAILED "}
		if diff := cmp.Diff(want, batchPage(t, s, b.ID, 0, 2)); diff != "" {
			t.Errorf("failures come first (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"2 COMPLETED 1"}, batchPage(t, s, b.ID, 2, 2)); diff != "" {
			t.Errorf("the second page (-want +got):\n%s", diff)
		}
	})
}

func TestABatchWhoseRequestsAreAllGoneHasFailed(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(2))
		for _, n := range []string{"-0", "-1"} {
			ref := serverless.Ref{Endpoint: "echo", ID: serverless.JobID(b.ID + n)}
			if _, err := s.SetTTL(t.Context(), "alice", ref, time.Second); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		v, err := s.Batches().Finalize(t.Context(), "alice", "echo", b.ID)
		if err != nil || v.Status != batches.Failed || v.RequestFailed != 2 {
			t.Errorf("Finalize = %+v, %v, want FAILED", v, err)
		}
		empty := createBatch(t, s, inputs(0))
		if _, err := s.Batches().Finalize(t.Context(), "alice", "echo", empty.ID); !errors.Is(err, batches.ErrEmpty) {
			t.Errorf("Finalize of an empty batch = %v", err)
		}
	})
}

func TestWorkersSeeTheBatchAndRequestsHaveALowPriority(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(1, finalized, func(r *serverless.BatchRequest) {
			r.Requests[0].Extra = []byte(`{"s3Config":{"accessSecret":"x"}}`)
		}))
		j := takeOne(t, s, "w")
		if want := `{"batchId":"` + b.ID + `","s3Config":{"accessSecret":"x"}}`; string(j.Extra) != want || j.Priority != 3 {
			t.Errorf("the worker sees %s with priority %d, want %s with 3", j.Extra, j.Priority, want)
		}
	})
}

func TestLimitsOfBatches(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(batches.MaxRequests-1))
		if _, err := s.AddToBatch(t.Context(), "alice", "echo", b.ID, inputs(2)); problem.KindOf(err) != problem.TooManyRequests {
			t.Errorf("AddToBatch beyond the limit = %v", err)
		}
		if _, err := s.AddToBatch(t.Context(), "alice", "echo", b.ID, inputs(1)); err != nil {
			t.Errorf("AddToBatch up to the limit = %v", err)
		}
		for range batches.MaxActive - 1 {
			createBatch(t, s, inputs(0))
		}
		if _, err := s.CreateBatch(t.Context(), "alice", "echo", inputs(1)); problem.KindOf(err) != problem.TooManyRequests {
			t.Errorf("CreateBatch beyond the limit = %v", err)
		}
		if _, err := s.CreateBatch(t.Context(), "bob", "echo", inputs(1)); err != nil {
			t.Errorf("CreateBatch of another user = %v", err)
		}
		if _, err := s.CreateBatch(t.Context(), "alice", "other", inputs(1)); err != nil {
			t.Errorf("CreateBatch on another endpoint = %v", err)
		}
		if _, err := s.Batches().Cancel(t.Context(), "alice", "echo", b.ID); err != nil {
			t.Fatal(err)
		}
		createBatch(t, s, inputs(0)) // there is room again
	})
}

func TestARequestThatIsRefusedMakesNoBatchAndNoJobs(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		_, err := s.CreateBatch(t.Context(), "alice", "echo", inputs(3, finalized, func(r *serverless.BatchRequest) {
			r.Requests[2].Input, r.Webhook = []byte(`[]`), "x"
			r.Requests[1].Queue.StartAfter = new(time.Duration)
		}))
		_, list := faults(t, err)
		want := []string{"/webhook: must be an absolute http or https URL", "/requests/1/queue/startAfter: must be absent: the batch says when its requests start", "/requests/2/input: must be a JSON object"}
		if diff := cmp.Diff(want, list); diff != "" {
			t.Errorf("faults (-want +got):\n%s", diff)
		}
		y.queue.failCalls("Enqueue", 1)
		if _, err := s.CreateBatch(t.Context(), "alice", "echo", inputs(3, finalized)); err == nil {
			t.Error("CreateBatch on a queue that fails succeeded")
		}
		if n := jobsOfBatch(t, y.queue); n != 0 {
			t.Errorf("%d jobs are queued", n)
		}
		if all, err := s.Batches().List(t.Context(), "alice", "echo"); err != nil || len(all) != 0 {
			t.Errorf("batches: %v, %v", all, err)
		}
		b := createBatch(t, s, inputs(1))
		y.queue.failCalls("Enqueue", 1)
		if _, err := s.AddToBatch(t.Context(), "alice", "echo", b.ID, inputs(3)); err == nil {
			t.Error("AddToBatch on a queue that fails succeeded")
		}
		wantCounts(t, s, b.ID, "DRAFT 1 0 0 0")
	})
}

func TestARequestWithAKeyMakesOneBatch(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		keyed := func(r *serverless.BatchRequest) {
			r.Idempotency = idempotency.NewRequest("k", []string{"alice"}, []byte("x"))
		}
		b := createBatch(t, s, inputs(2, finalized, keyed))
		_, err := s.CreateBatch(t.Context(), "alice", "echo", inputs(2, finalized, keyed))
		if r := (*idempotency.Repeated)(nil); !errors.As(err, &r) || r.ID != b.ID {
			t.Errorf("the repetition = %v, want %s", err, b.ID)
		}
		if n := jobsOfBatch(t, y.queue); n != 2 {
			t.Errorf("%d jobs are queued, want 2", n)
		}
	})
}

func TestBatchesGoWithTheirEndpoint(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		b := createBatch(t, s, inputs(2, finalized))
		if err := s.UndeclareEndpoint(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, s, b.ID, `batches: get "`+b.ID+`": batch not found`)
		time.Sleep(31 * time.Minute)
		synctest.Wait()
		if list, err := y.batches.All(t.Context()); err != nil || len(list) != 0 {
			t.Errorf("the store has %v, %v", list, err)
		}
	})
}

// A store without a key keeps no secrets, so what the service itself tells workers must be none:
// otherwise schedules and batches would be accepted there and their jobs never run.
func TestWhatTheServiceTellsWorkersIsNoSecret(t *testing.T) {
	inBatchYard(t, func(t *testing.T, y *batchYard) {
		s, _ := y.server()
		createBatch(t, s, inputs(1, finalized))
		if j := takeOne(t, s, "w"); !queue.PlainExtra(j.Extra) || len(j.Extra) == 0 {
			t.Errorf("a store without a key refuses the request of a batch with %s", j.Extra)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		s, _ := newYard(t).server()
		v := create(t, s, nil)
		if _, err := s.Schedules().RunNow(t.Context(), "alice", "echo", v.ID); err != nil {
			t.Fatal(err)
		}
		if j := takeOne(t, s, "w"); !queue.PlainExtra(j.Extra) || len(j.Extra) == 0 {
			t.Errorf("a store without a key refuses the job of a schedule with %s", j.Extra)
		}
	})
	for extra, want := range map[string]bool{
		`{}`: true, `{"schedule":{}}`: true, `{"batchId":"b","schedule":1}`: true,
		`{"s3Config":{}}`: false, `{"schedule":{},"s3Config":{}}`: false, `{"schedule":{}`: false, ``: false, `[]`: false, `null`: false, "\x7b\x01\x02": false,
	} {
		if got := queue.PlainExtra([]byte(extra)); got != want {
			t.Errorf("PlainExtra(%q) = %v, want %v", extra, got, want)
		}
	}
}
