package serverless

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/serverless/queue"
)

// A WebhookState says what became of the webhook of a job.
type WebhookState string

// The states of a webhook.
const (
	WebhookPending   WebhookState = "pending"   // it is sent, now or again
	WebhookDelivered WebhookState = "delivered" // the receiver took it
	WebhookFailed    WebhookState = "failed"    // no more attempts are made
)

// A Webhook is what became of the webhook of a job that has ended.
type Webhook struct {
	Job      Job // without payloads
	State    WebhookState
	Attempts []Attempt // oldest first; those of a delivery that was sent again are after the others
}

// MaxWebhooks is the largest WebhookQuery.Limit.
const MaxWebhooks = 1000

// maxWebhookBytes is the size of attempts from which a page of Webhooks is complete. A job may have
// many attempts, and the page is in memory as a whole.
const maxWebhookBytes = 1 << 20

// attemptSize is the size of an Attempt without its texts, about.
const attemptSize = 200

// A WebhookQuery selects webhooks of an endpoint.
type WebhookQuery struct {
	State WebhookState // empty: any
	Limit int          // the most webhooks that are looked at, from 1 to MaxWebhooks
	From  uint64       // the next of the call before; 0: the newest
}

// Webhooks returns what became of the webhooks of jobs of owner, or of AllOwners, that have ended
// and are still kept, newest job first. next is for the call that goes on; 0: there are no more. It
// looks at a bounded number of jobs and returns a bounded number of bytes, so it may return few or
// none and still have a next. It returns ErrNoEndpoint for an unknown endpoint.
func (s *Service) Webhooks(ctx context.Context, owner, endpoint string, q WebhookQuery) (list []Webhook, next uint64, err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, 0, err
	}
	keep := func(j *Job) bool { return j.Flags&queue.HasWebhook != 0 && j.Status.Terminal() }
	jobs, next, err := s.scan(ctx, owner, endpoint, scanQuery{before: q.From, limit: q.Limit, keep: keep})
	if err != nil {
		return nil, 0, err
	}
	size := 0
	for i := range jobs {
		log, err := s.queue.Attempts(ctx, jobs[i].Ref)
		if err != nil {
			return nil, 0, fmt.Errorf("serverless: webhooks of %q: %w", endpoint, err)
		}
		w := Webhook{jobs[i], webhookState(log), log}
		if q.State != "" && q.State != w.State {
			continue
		}
		list = append(list, w)
		if size += w.size(); size >= maxWebhookBytes && i+1 < len(jobs) {
			return list, jobs[i].Seq, nil
		}
	}
	return list, next, nil
}

// size returns how many bytes the attempts take, about.
func (w *Webhook) size() int {
	n := 0
	for i := range w.Attempts {
		a := &w.Attempts[i]
		n += attemptSize + len(a.DeliveryID) + len(a.Err)
	}
	return n
}

func webhookState(log []Attempt) WebhookState {
	if len(log) == 0 {
		return WebhookPending
	}
	switch last := &log[len(log)-1]; {
	case last.Next != 0:
		return WebhookPending
	case last.Err == "" && last.Status >= 200 && last.Status < 300:
		return WebhookDelivered
	}
	return WebhookFailed
}
