package serverless_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
)

// A wordyQueue has attempts with long errors.
type wordyQueue struct{ serverless.JobQueue }

func (q wordyQueue) Attempts(_ context.Context, ref serverless.Ref) ([]serverless.Attempt, error) {
	return []serverless.Attempt{{Ref: ref, Status: 500, Err: strings.Repeat("x", 600<<10)}}, nil
}

func TestAPageOfWebhooksEndsWhenItsAttemptsAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		eps := memory.NewEndpoints()
		if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "echo", Name: "echo"}); err != nil {
			t.Fatal(err)
		}
		s := serverless.New(wordyQueue{memory.NewJobs()}, eps, nil)
		want := map[serverless.JobID]bool{}
		for range 5 {
			ref := submitEcho(t, s, withWebhook(hook))
			if _, err := s.Cancel(t.Context(), "alice", ref); err != nil {
				t.Fatal(err)
			}
			want[ref.ID] = true
		}
		pages, q := 0, serverless.WebhookQuery{Limit: serverless.MaxWebhooks}
		for {
			list, next, err := s.Webhooks(t.Context(), "alice", "echo", q)
			if err != nil || len(list) > 2 {
				t.Fatalf("a page has %d webhooks with 600 KB each, %v, want at most 2", len(list), err)
			}
			for i := range list {
				if !want[list[i].Job.ID] {
					t.Errorf("%s comes twice", list[i].Job.ID)
				}
				delete(want, list[i].Job.ID)
			}
			pages++
			if q.From = next; next == 0 {
				break
			}
		}
		if pages != 3 || len(want) > 0 {
			t.Errorf("%d pages, and %d webhooks are in none, want 3 and 0", pages, len(want))
		}
	})
}
