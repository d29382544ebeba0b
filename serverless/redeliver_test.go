package serverless_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A scriptedSender is a Sender that answers with the statuses it is told, and then with 200.
type scriptedSender struct {
	mu       sync.Mutex
	statuses []int
	log      []string // delivery ids
}

func (p *scriptedSender) Send(_ context.Context, d *serverless.Delivery) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, d.ID+" "+string(d.Job.Output))
	if len(p.statuses) == 0 {
		return 200, nil
	}
	s := p.statuses[0]
	p.statuses = p.statuses[1:]
	return s, nil
}

func (p *scriptedSender) sent() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.log)
}

func TestRedeliveryIsAMoveOfEndedJobsWithAWebhook(t *testing.T) {
	const now = 1000
	for st := serverless.InQueue; st <= serverless.TimedOut; st++ {
		for _, flags := range []queue.Flags{0, queue.HasWebhook} {
			s := queue.State{Status: st, Flags: flags, Finished: 1, Terms: queue.Terms{Retain: 5 * time.Second}, Expires: 9000, Run: 3}
			before := s
			eff, err := s.Apply(now, &queue.Op{Kind: queue.OpRedeliver})
			switch {
			case s != before:
				t.Errorf("%v: redelivery changed the state: %s", st, cmp.Diff(before, s))
			case st.Terminal() && flags != 0:
				if eff != queue.PutOutbox || err != nil {
					t.Errorf("%v with a webhook: %v, %v, want PutOutbox", st, eff, err)
				}
			case eff != 0 || !errors.Is(err, serverless.ErrStatus):
				t.Errorf("%v with flags %v: %v, %v, want ErrStatus", st, flags, eff, err)
			}
		}
	}
	gone := queue.State{Status: serverless.Completed, Flags: queue.HasWebhook, Finished: 1, Terms: queue.Terms{Retain: 10 * time.Millisecond}, Expires: 9000}
	if _, err := gone.Apply(now, &queue.Op{Kind: queue.OpRedeliver}); !errors.Is(err, serverless.ErrNotFound) {
		t.Errorf("past its retention: %v, want ErrNotFound", err)
	}
	if !queue.OpRedeliver.Durable() {
		t.Error("a redelivery that was promised is lost with power")
	}
}

func TestSettledDeliveryIsSentAgainUnderItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		post := &scriptedSender{statuses: []int{500, 500, 500, 503}}
		s := newService(t, &serverless.Options{Sender: post})
		serve(t, s, echo, nil)
		j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{"a":1}`), Webhook: "http://example.com/"})
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute) // three attempts in vain
		id, err := s.Redeliver(t.Context(), "alice", j.Ref)
		if want := queue.DeliveryID(j.Ref, 0); id != want || err != nil {
			t.Fatalf("Redeliver = %q, %v, want %q", id, err, want)
		}
		if again, err := s.Redeliver(t.Context(), "alice", j.Ref); again != id || err != nil {
			t.Errorf("Redeliver of what is on its way = %q, %v, want the same delivery", again, err)
		}
		time.Sleep(time.Minute) // once more in vain, and then not
		one := id + ` {"a":1}`
		if diff := cmp.Diff([]string{one, one, one, one, one}, post.sent()); diff != "" {
			t.Errorf("sent (-want +got):\n%s", diff)
		}
		var got []int
		log, err := s.Deliveries(t.Context(), "alice", j.Ref)
		for _, a := range log {
			got = append(got, a.Status)
		}
		if diff := cmp.Diff([]int{500, 500, 500, 503, 200}, got); diff != "" || err != nil {
			t.Errorf("the log (%v, -want +got):\n%s", err, diff)
		}
	})
}

func TestRedeliveryNeedsAnOwnEndedJobWithAWebhook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService(t, nil)
		submit := func(hook string) serverless.Ref {
			j, err := s.Submit(t.Context(), "alice", "echo", serverless.Request{Input: []byte(`{}`), Webhook: hook})
			if err != nil {
				t.Fatal(err)
			}
			return j.Ref
		}
		queued, plain := submit("http://example.com/"), submit("")
		if _, err := s.Cancel(t.Context(), "alice", plain); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			name, owner string
			ref         serverless.Ref
			want        error
		}{
			{"a queued job", "alice", queued, serverless.ErrStatus},
			{"a job without a webhook", "alice", plain, serverless.ErrStatus},
			{"another user's job", "bob", queued, serverless.ErrNotFound},
			{"no job", "alice", serverless.Ref{Endpoint: "echo", ID: "none"}, serverless.ErrNotFound},
			{"no endpoint", "alice", serverless.Ref{Endpoint: "none", ID: "none"}, serverless.ErrNoEndpoint},
		} {
			if _, err := s.Redeliver(t.Context(), tt.owner, tt.ref); !errors.Is(err, tt.want) || problem.KindOf(err) == problem.Internal {
				t.Errorf("Redeliver of %s = %v, want %v", tt.name, err, tt.want)
			}
		}
	})
}
