package serverless

import (
	"context"
	"errors"
	"runtime/debug"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

// The schedule of a webhook: up to WebhookTries attempts, WebhookDelay apart, or longer if the
// receiver asks for it, up to MaxWebhookDelay. The status 410 ends the attempts: the receiver says that
// there will never be anybody.
const (
	WebhookTries    = 3
	WebhookDelay    = 10 * time.Second
	MaxWebhookDelay = 10 * time.Minute

	// deliveryLease is longer than any attempt: a sender gives up after 30 s. Until its end nobody
	// else sends what a server had that was killed.
	deliveryLease = 40 * time.Second
)

// A Sender sends webhooks. Send posts one delivery and returns the HTTP status of the answer.
// It must not retry, and must return soon after ctx ends. The text of its error goes into the
// delivery log and must hold no secret. It may be a RetryAfterError beside a status. Send is called
// concurrently.
type Sender interface {
	Send(ctx context.Context, d *Delivery) (status int, err error)
}

// A RetryAfterError is the error of a Sender whose receiver has answered that it wants the next attempt
// after a while, as the header Retry-After says it.
type RetryAfterError struct{ After time.Duration }

func (e *RetryAfterError) Error() string {
	return "the receiver wants the next attempt after " + e.After.String()
}

// deliver starts the deliveries that are due, as many as the limit allows, and returns the
// instant of the next one.
func (s *Service) deliver(ctx context.Context, now Instant) (Instant, error) {
	if s.sender == nil {
		return 0, nil
	}
	uncut, cancel := outliving(ctx)
	defer cancel()
	for ctx.Err() == nil {
		n := s.deliveryLimit.available()
		if n == 0 {
			return 0, nil // the end of an attempt wakes Run
		}
		ds, err := s.queue.Deliveries(uncut, now, now.Add(deliveryLease), n)
		if err != nil {
			return 0, err
		}
		var later []Attempt
		for _, d := range ds { // a copy each, so that a delivery in flight does not keep all of ds in memory
			slot, wait, err := s.deliveryLimit.acquire(&d, now)
			if err != nil {
				later = append(later, s.unsent(&d, now, err))
				continue
			}
			if slot == nil {
				later = append(later, Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Next: now.Add(wait), Postponed: true})
				continue
			}
			s.goroutines.Go(func() {
				defer s.arm(s.now())
				s.send(ctx, &d, slot)
			})
		}
		if len(later) > 0 {
			if err := s.queue.Record(uncut, later); err != nil {
				return 0, err
			}
		}
		if len(ds) < n {
			return s.queue.NextDelivery(ctx)
		}
	}
	return 0, ctx.Err()
}

// outliving returns a context that ends two seconds after ctx, for calls that lease or record. If the
// end of ctx cut them off, other servers would have to wait for the end of leases that nobody has.
func outliving(ctx context.Context) (context.Context, context.CancelFunc) {
	longer, cancel := context.WithCancel(context.WithoutCancel(ctx))
	system := clock.System{} // another one may stand still when the service ends
	stop := context.AfterFunc(ctx, func() { system.AfterFunc(system.Now().Add(2*time.Second), cancel) })
	return longer, func() {
		stop()
		cancel()
	}
}

// unsent returns the attempt of a delivery that was not made.
func (s *Service) unsent(d *Delivery, now Instant, why error) Attempt {
	a := Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Err: why.Error()}
	if d.Tries+1 < WebhookTries {
		a.Next = now.Add(WebhookDelay)
	}
	s.observeAttempt(d, &a, 0)
	return a
}

// send makes one attempt and records it. An attempt that the end of ctx cut short does not
// count: its lease is given back, so that the next service makes it again at once.
func (s *Service) send(ctx context.Context, d *Delivery, slot *deliverySlot) {
	began := s.clock.Now()
	status := 0
	err := s.queue.LoadDelivery(ctx, d)
	if err != nil {
		err = &unreadError{err}
	} else {
		status, err = s.attempt(ctx, d)
	}
	now := s.now()
	a, outcome := attempted(ctx, d, now, status, err)
	s.deliveryLimit.release(slot, now, outcome)
	if err := s.queue.Record(context.WithoutCancel(ctx), []Attempt{a}); err != nil {
		s.log.Error("recording a delivery failed", "delivery", d.ID, "err", err)
		return
	}
	s.observeAttempt(d, &a, s.clock.Now().Sub(began))
}

// attempted returns the attempt of a delivery at now, and what it says about the receiver.
func attempted(ctx context.Context, d *Delivery, now Instant, status int, err error) (Attempt, deliveryOutcome) {
	a := Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Status: status}
	unread := (*unreadError)(nil)
	switch {
	case err != nil && ctx.Err() != nil:
		a.Status, a.Next, a.Postponed = 0, now, true
		return a, deliveryCut
	case errors.As(err, &unread):
		a.Next, a.Postponed = now.Add(busyDelay), true
		return a, deliveryCut
	case err == nil && status >= 200 && status < 300:
		return a, deliveryMade
	}
	if err != nil {
		a.Err = err.Error()
	}
	if d.Tries+1 < WebhookTries && status != statusGone {
		a.Next = now.Add(nextTry(err))
	}
	if d.Fault != "" {
		return a, deliveryCut
	}
	return a, deliveryFailed
}

const statusGone = 410

// nextTry returns how long after a failed attempt the next one is made.
func nextTry(err error) time.Duration {
	if asked := (*RetryAfterError)(nil); errors.As(err, &asked) {
		return min(max(asked.After, WebhookDelay), MaxWebhookDelay)
	}
	return WebhookDelay
}

// attempt calls the sender. A panic of the sender fails the attempt; otherwise the same
// delivery would panic again after a restart. A damaged delivery fails too.
func (s *Service) attempt(ctx context.Context, d *Delivery) (status int, err error) {
	defer func() {
		if p := recover(); p != nil {
			s.log.Error("sender panicked", "delivery", d.ID, "panic", p, "stack", string(debug.Stack()))
			status, err = 0, errors.New("the sender panicked")
		}
	}()
	if d.Fault != "" {
		return 0, errors.New(d.Fault)
	}
	return s.sender.Send(ctx, d)
}

// An unreadError is the error of a delivery whose payloads could not be read, or whose lease was
// lost.
type unreadError struct{ error }

// Deliveries returns the delivery log of a job's webhooks, oldest first. Errors are those of
// Get, without ErrDamaged.
func (s *Service) Deliveries(ctx context.Context, owner string, ref Ref) ([]Attempt, error) {
	if _, err := s.find(ctx, owner, ref); err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	return s.queue.Attempts(ctx, ref)
}

// Redeliver sends the webhook of an ended job again, with the full number of attempts, and
// returns the id of the delivery, which is the same as before. It changes nothing if the
// delivery is not settled yet. Errors are those of Get, and ErrStatus for a job that has not
// ended or has no webhook.
func (s *Service) Redeliver(ctx context.Context, owner string, ref Ref) (id string, err error) {
	j, err := s.Get(ctx, owner, ref)
	if err != nil {
		return "", err
	}
	if j.Flags&queue.HasWebhook == 0 {
		return "", refused("the job has no webhook")
	}
	r, err := s.apply(ctx, queue.Op{Ref: ref, Kind: queue.OpRedeliver})
	if errors.Is(err, ErrStatus) {
		return "", refused("the job has not ended, and its webhook is sent when it has")
	}
	if err != nil {
		return "", err
	}
	return queue.DeliveryID(ref, r.State.Run), nil
}
