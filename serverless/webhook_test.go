package serverless_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A sender is a Sender that answers 200 unless it has an answer, and knows the times of
// its calls.
type sender struct {
	answer func(ctx context.Context, d *serverless.Delivery, n int) (int, error) // n: of this delivery, from 1
	begin  time.Time
	log    lineLog // "<seconds> <delivery id> <try>: <job object>"
}

func newSender(answer func(context.Context, *serverless.Delivery, int) (int, error)) *sender {
	return &sender{answer: answer, begin: time.Now()}
}

func (s *sender) Send(ctx context.Context, d *serverless.Delivery) (int, error) {
	n := 1
	for _, l := range s.log.all() {
		if strings.Contains(l, d.ID) {
			n++
		}
	}
	s.log.add(fmt.Sprintf("%v %s %d: %s", time.Since(s.begin).Seconds(), d.ID, d.Tries, d.Job.AppendJSON(nil, true)))
	if s.answer == nil {
		return 200, nil
	}
	return s.answer(ctx, d, n)
}

// times are the seconds at which something was sent.
func (s *sender) times() string {
	var ts []string
	for _, l := range s.log.all() {
		at, _, _ := strings.Cut(l, " ")
		ts = append(ts, at)
	}
	return strings.Join(ts, " ")
}

const hook = "https://receiver.example/hook"

func TestEveryEndOfAJobSendsItsWebhook(t *testing.T) {
	for _, tt := range []struct {
		name string
		end  func(t *testing.T, s *serverless.Service, ref serverless.Ref)
		want string // of the object, but for the id
	}{
		{"completed", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			if err := finish(t, s, ref, "w", `{"out":1}`); err != nil {
				t.Fatal(err)
			}
		}, `{"delayTime":0,"executionTime":0,"id":"?","input":{"a":1},"output":{"out":1},"status":"COMPLETED","workerId":"w"}`},
		{"failed", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			op := queue.Op{Ref: ref, Kind: queue.OpFinish, Worker: "w", Status: serverless.Failed, Error: "a \"bad\" day"}
			if err := s.Report(t.Context(), op); err != nil {
				t.Fatal(err)
			}
		}, `{"delayTime":0,"error":"a \"bad\" day","executionTime":0,"id":"?","input":{"a":1},"status":"FAILED","workerId":"w"}`},
		{"cancelled in the queue", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}, `{"delayTime":0,"executionTime":0,"id":"?","input":{"a":1},"status":"CANCELLED"}`},
		{"cancelled while it ran", func(t *testing.T, s *serverless.Service, ref serverless.Ref) {
			takeOne(t, s, "w")
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}, `{"delayTime":0,"executionTime":0,"id":"?","input":{"a":1},"status":"CANCELLED","workerId":"w"}`},
		{"purged", func(t *testing.T, s *serverless.Service, _ serverless.Ref) {
			if n, err := s.Purge(t.Context(), "alice", "echo"); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}, `{"delayTime":0,"executionTime":0,"id":"?","input":{"a":1},"status":"CANCELLED"}`},
		{"timed out", func(t *testing.T, s *serverless.Service, _ serverless.Ref) {
			takeOne(t, s, "w")
			time.Sleep(5 * time.Second)
		}, `{"delayTime":0,"error":"execution timeout: the job ran longer than 5000 ms","executionTime":5000,"id":"?","input":{"a":1},"status":"TIMED_OUT","workerId":"w"}`},
		{"without workers", func(t *testing.T, s *serverless.Service, _ serverless.Ref) {
			for _, w := range []serverless.WorkerID{"a", "b", "c"} {
				takeOne(t, s, w)
				if err := s.ReportUnhealthy(t.Context(), "echo", w, "broken"); err != nil {
					t.Fatal(err)
				}
			}
		}, `{"delayTime":0,"error":"worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it is not healthy: broken","executionTime":0,"id":"?","input":{"a":1},"status":"FAILED","workerId":"c"}`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newSender(nil)
				s := newService(t, &serverless.Options{Sender: out})
				ref := submitEcho(t, s, withInput(`{"a":1}`), withWebhook(hook), withTimeout(5*time.Second),
					func(r *serverless.Request) { r.Extra = []byte(`{"s3Config":{"accessSecret":"hush"}}`) })
				synctest.Wait()
				if out.log.all() != nil {
					t.Error("something was sent before the end")
				}
				tt.end(t, s, ref)
				synctest.Wait()
				if len(out.log.all()) == 0 {
					t.Error("nothing is sent at the moment of the end")
				}
				time.Sleep(time.Hour)
				sent := out.log.all()
				if len(sent) != 1 {
					t.Fatalf("%d webhooks, want one:\n%s", len(sent), strings.Join(sent, "\n"))
				}
				_, got, _ := strings.Cut(sent[0], ": ")
				if want := strings.Replace(tt.want, "?", string(ref.ID), 1); got != want {
					t.Errorf("sent %s\nwant %s", got, want)
				}
			})
		})
	}
}

func TestDeletionByTTLSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSender(nil)
		s := newService(t, &serverless.Options{Sender: out})
		for range 2 {
			submitEcho(t, s, withWebhook(hook), withTTL(10*time.Second))
		}
		takeOne(t, s, "w")
		time.Sleep(time.Hour)
		if sent := out.log.all(); sent != nil {
			t.Errorf("sent %v, want nothing", sent)
		}
	})
}

func TestJobWithoutAWebhookSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSender(nil)
		s := newService(t, &serverless.Options{Sender: out})
		serve(t, s, echo, nil)
		ref := submitEcho(t, s)
		time.Sleep(time.Minute)
		wantStatus(t, s, ref, serverless.Completed)
		if sent := out.log.all(); sent != nil {
			t.Errorf("sent %v, want nothing", sent)
		}
	})
}

func TestWebhookIsTriedThreeTimesTenSecondsApart(t *testing.T) {
	refused := errors.New("connection refused")
	for _, tt := range []struct {
		name   string
		answer func(ctx context.Context, d *serverless.Delivery, n int) (int, error)
		times  string
		log    []serverless.Attempt
	}{
		{"at once", nil, "0", []serverless.Attempt{{Status: 200}}},
		{"any 2xx", func(context.Context, *serverless.Delivery, int) (int, error) { return 299, nil }, "0", []serverless.Attempt{{Status: 299}}},
		{"at the second try", func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			return []int{500, 204}[n-1], nil
		}, "0 10", []serverless.Attempt{{Status: 500}, {Status: 204}}},
		{"never", func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			return []int{199, 302, 0}[n-1], []error{nil, nil, refused}[n-1]
		}, "0 10 20", []serverless.Attempt{{Status: 199}, {Status: 302}, {Err: "connection refused"}}},
		{"slowly", func(context.Context, *serverless.Delivery, int) (int, error) {
			time.Sleep(30 * time.Second)
			return 0, refused
		}, "0 40 80", []serverless.Attempt{{Err: "connection refused"}, {Err: "connection refused"}, {Err: "connection refused"}}},
		{"a 200 that comes with an error", func(context.Context, *serverless.Delivery, int) (int, error) {
			return 200, refused
		}, "0 10 20", []serverless.Attempt{{Status: 200, Err: "connection refused"}, {Status: 200, Err: "connection refused"}, {Status: 200, Err: "connection refused"}}},
		{"when a receiver that is gone has said so", func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			return []int{503, 410}[n-1], nil
		}, "0 10", []serverless.Attempt{{Status: 503}, {Status: 410}}},
		{"when the receiver wants it", func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			return 429, &serverless.RetryAfterError{After: []time.Duration{time.Minute, time.Second, time.Second}[n-1]}
		}, "0 60 70", []serverless.Attempt{
			{Status: 429, Err: "the receiver wants the next attempt after 1m0s"}, {Status: 429, Err: "the receiver wants the next attempt after 1s"},
			{Status: 429, Err: "the receiver wants the next attempt after 1s"},
		}},
		{"ten minutes later at most", func(_ context.Context, _ *serverless.Delivery, n int) (int, error) {
			return []int{503, 200}[n-1], []error{&serverless.RetryAfterError{After: 1 << 62}, nil}[n-1]
		}, "0 600", []serverless.Attempt{{Status: 503, Err: "the receiver wants the next attempt after " + time.Duration(1<<62).String()}, {Status: 200}}},
		{"by a sender that panics", func(context.Context, *serverless.Delivery, int) (int, error) {
			panic("secret")
		}, "0 10 20", []serverless.Attempt{{Err: "the sender panicked"}, {Err: "the sender panicked"}, {Err: "the sender panicked"}}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				out := newSender(tt.answer)
				s := newService(t, &serverless.Options{Sender: out})
				serve(t, s, echo, nil)
				ref := submitEcho(t, s, withWebhook(hook))
				time.Sleep(20 * time.Minute)
				if got := out.times(); got != tt.times {
					t.Errorf("sent at %s s, want %s", got, tt.times)
				}
				log, err := s.Deliveries(t.Context(), "alice", ref)
				var got []serverless.Attempt
				for _, a := range log {
					got = append(got, serverless.Attempt{Status: a.Status, Err: a.Err})
				}
				if diff := cmp.Diff(tt.log, got); diff != "" || err != nil {
					t.Errorf("%v, log (-want +got):\n%s", err, diff)
				}
			})
		})
	}
}

func TestWebhookOutlivesItsJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSender(func(_ context.Context, _ *serverless.Delivery, _ int) (int, error) { return 500, nil })
		s := newService(t, &serverless.Options{Sender: out})
		serve(t, s, echo, nil)
		ref := submitEcho(t, s, withWebhook(hook), withInput(`{"keep":1}`))
		time.Sleep(5 * time.Second)
		if _, err := s.SetTTL(t.Context(), "alice", ref, time.Second); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantGone(t, s, ref)
		sent := out.log.all()
		if len(sent) != 3 || !strings.Contains(sent[2], `"input":{"keep":1},"output":{"keep":1}`) {
			t.Errorf("sent %s, want three times the whole object", strings.Join(sent, "\n"))
		}
	})
}

func TestRetriedJobSendsItsWebhookAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := newSender(nil)
		s := newService(t, &serverless.Options{Sender: out})
		runs := 0
		serve(t, s, func(context.Context, *serverless.Task) ([]byte, error) {
			if runs++; runs < 3 {
				return nil, fmt.Errorf("run %d", runs)
			}
			return []byte(`3`), nil
		}, nil)
		ref := submitEcho(t, s, withWebhook(hook))
		for range 2 {
			synctest.Wait()
			if _, err := s.Retry(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		var got []string
		for _, l := range out.log.all() {
			got = append(got, strings.Split(l, " ")[1])
		}
		want := []string{queue.DeliveryID(ref, 0), queue.DeliveryID(ref, 1), queue.DeliveryID(ref, 2)}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("deliveries (-want +got): one of its own for each run\n%s", diff)
		}
	})
}

func TestSlowReceiverDelaysNoOther(t *testing.T) {
	const slow, host = 500, "https://slow.example/"
	synctest.Test(t, func(t *testing.T) {
		var atOnce gauge
		var quick lineLog
		begin := time.Now()
		out := senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			if !strings.HasPrefix(d.Job.Webhook, host) {
				quick.add(time.Since(begin).String())
				return 200, nil
			}
			defer atOnce.enter()()
			time.Sleep(30 * time.Second)
			return 200, nil
		})
		s := newService(t, &serverless.Options{Sender: out})
		serve(t, s, echo, &serverless.ServeOptions{Concurrency: 100})
		for i := range slow {
			submitEcho(t, s, withWebhook(fmt.Sprint(host, i)))
		}
		synctest.Wait()
		for i := range 10 {
			submitEcho(t, s, withWebhook(fmt.Sprintf("https://quick%d.example/", i)))
		}
		time.Sleep(10 * time.Second)
		if got := quick.all(); len(got) != 10 || slices.ContainsFunc(got, func(at string) bool { return at != "0s" }) {
			t.Errorf("the others were told at %v, want all ten at once", got)
		}
		if n := atOnce.most(); n != 16 {
			t.Errorf("%d attempts at once at the slow receiver, want a sixteenth of 256", n)
		}
	})
}

type senderFunc func(ctx context.Context, d *serverless.Delivery) (int, error)

func (f senderFunc) Send(ctx context.Context, d *serverless.Delivery) (int, error) { return f(ctx, d) }

func TestDeliveriesAreBoundedAndAllArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var atOnce gauge
		var sent lineLog
		out := senderFunc(func(_ context.Context, d *serverless.Delivery) (int, error) {
			defer atOnce.enter()()
			time.Sleep(time.Second)
			sent.add(d.ID)
			return 200, nil
		})
		s := newService(t, &serverless.Options{Sender: out, Deliveries: 32})
		for i := range 400 {
			submitEcho(t, s, withWebhook(fmt.Sprintf("https://r%d.example/", i%50)))
		}
		if _, err := s.Purge(t.Context(), "alice", "echo"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		got := sent.all()
		slices.Sort(got)
		if n := len(slices.Compact(got)); n != 400 || len(got) != 400 || atOnce.most() > 32 {
			t.Errorf("%d of 400 arrived, %d sent, %d at once, want 32 at most", n, len(got), atOnce.most())
		}
	})
}

func TestAttemptThatCouldNotBeRecordedIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFaultyQueue()
		out := newSender(nil)
		s := serviceOn(t, q, &serverless.Options{Sender: out})
		serve(t, s, echo, nil)
		q.failCalls("Record", 1)
		ref := submitEcho(t, s, withWebhook(hook))
		time.Sleep(10 * time.Minute)
		if got := out.times(); got != "0 40" {
			t.Errorf("sent at %s s, want again when the lease of the delivery is over", got)
		}
		if log, err := s.Deliveries(t.Context(), "alice", ref); err != nil || len(log) != 1 {
			t.Errorf("log has %d attempts, %v, want the recorded one", len(log), err)
		}
		q.loseAnswers("Record", 1)
		ref = submitEcho(t, s, withWebhook(hook))
		time.Sleep(10 * time.Minute)
		if log, err := s.Deliveries(t.Context(), "alice", ref); err != nil || len(log) != 1 {
			t.Errorf("log has %d attempts, %v, want one: it was recorded although the answer was lost", len(log), err)
		}
	})
}

func TestWebhooksWaitForAServiceThatSends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		s := serviceOn(t, q, nil)
		serve(t, s, echo, nil)
		submitEcho(t, s, withWebhook(hook))
		time.Sleep(25 * time.Hour)
		out := newSender(nil)
		serviceOn(t, q, &serverless.Options{Sender: out})
		synctest.Wait()
		if got := out.times(); got != "0" {
			t.Errorf("sent at %q s, want at once, after the job itself has gone", got)
		}
	})
}

func TestTwoServicesSendAWebhookOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		out := newSender(func(context.Context, *serverless.Delivery, int) (int, error) {
			time.Sleep(29 * time.Second)
			return 200, nil
		})
		a := serviceOn(t, q, &serverless.Options{Sender: out})
		serviceOn(t, q, &serverless.Options{Sender: out})
		serve(t, a, echo, nil)
		submitEcho(t, a, withWebhook(hook))
		for range 10 {
			time.Sleep(5 * time.Second)
			submitEcho(t, a) // both look
		}
		time.Sleep(10 * time.Minute)
		if got := out.times(); got != "0" {
			t.Errorf("sent at %s s, want once", got)
		}
	})
}

func TestAttemptThatTheEndOfTheServiceCutsShortIsMadeAtOnceByTheNext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		cut := newSender(func(ctx context.Context, _ *serverless.Delivery, _ int) (int, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		s := serverless.New(q, twoEndpoints(t), &serverless.Options{Sender: cut})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		ref := submitEcho(t, s, withWebhook(hook))
		if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		cancel()
		if err := <-done; err != nil || cut.times() != "0" {
			t.Fatalf("Run = %v, sent at %s s", err, cut.times())
		}
		out := newSender(nil)
		serviceOn(t, q, &serverless.Options{Sender: out})
		time.Sleep(2 * time.Minute)
		if got := out.log.all(); len(got) != 1 || !strings.HasPrefix(got[0], "0 "+queue.DeliveryID(ref, 0)+" 0:") {
			t.Errorf("sent %v, want the first try at once, with the same id", got)
		}
	})
}

// A remoteQueue is at a server: a call whose context ends returns an error and was made all the same.
type remoteQueue struct {
	serverless.JobQueue
	leased func() // is called while Deliveries is
}

func (q *remoteQueue) Deliveries(ctx context.Context, now, until serverless.Instant, limit int) ([]serverless.Delivery, error) {
	ds, err := q.JobQueue.Deliveries(ctx, now, until, limit)
	if len(ds) > 0 {
		q.leased()
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return ds, err
}

func (q *remoteQueue) Record(ctx context.Context, as []serverless.Attempt) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return q.JobQueue.Record(ctx, as)
}

func TestWebhooksThatAreLeasedAtTheEndOfTheServiceDoNotWaitForTheirLease(t *testing.T) {
	const all = 20 // 16 may be sent at once, the others are postponed
	synctest.Test(t, func(t *testing.T) {
		q := memory.NewJobs()
		filler := serverless.New(q, twoEndpoints(t), nil)
		for range all {
			ref := submitEcho(t, filler, withWebhook(hook))
			if _, err := filler.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cut := newSender(func(ctx context.Context, _ *serverless.Delivery, _ int) (int, error) { return 0, ctx.Err() })
		if err := serverless.New(&remoteQueue{q, cancel}, twoEndpoints(t), &serverless.Options{Sender: cut}).Run(ctx); err != nil {
			t.Fatal(err)
		}
		out := newSender(nil)
		serviceOn(t, q, &serverless.Options{Sender: out})
		time.Sleep(10 * time.Second)
		if got := out.log.all(); len(got) != all {
			t.Errorf("%d of %d webhooks were sent in the first 10 s of the next service: %q", len(got), all, got)
		}
	})
}

// A silentQueue does not answer calls of Deliveries.
type silentQueue struct{ serverless.JobQueue }

func (q silentQueue) Deliveries(ctx context.Context, _, _ serverless.Instant, _ int) ([]serverless.Delivery, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestAQueueThatDoesNotAnswerHoldsUpTheEndOfTheServiceForTwoSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		s := serverless.New(silentQueue{memory.NewJobs()}, twoEndpoints(t), &serverless.Options{Sender: newSender(nil)})
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		time.Sleep(time.Hour)
		began := time.Now()
		cancel()
		if err := <-done; err != nil || time.Since(began) != 2*time.Second {
			t.Errorf("Run = %v after %v, want nil after 2 s", err, time.Since(began))
		}
	})
}
