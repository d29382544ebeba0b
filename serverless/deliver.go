package serverless

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"runtime/debug"
	"sync"
	"time"
)

// The schedule of a webhook (section 4.2): up to 2 more tries, 10 seconds apart.
const (
	WebhookTries = 3
	WebhookDelay = 10 * time.Second

	// deliveryLease outlives any attempt: a sender gives up after 30 s.
	deliveryLease = time.Minute
	// postponed is how long a delivery waits whose receiver has enough under way.
	postponed = 2 * time.Second
)

// DeliveryID names the webhook of one run of a job; it is the same for every attempt.
func DeliveryID(ref Ref, run uint32) string {
	return fmt.Sprintf("msg_%s_%d", ref.ID, run)
}

// A postman bounds what is on its way: in all, and to each receiver, so that a slow one
// does not hold up the others.
type postman struct {
	mu      sync.Mutex
	limit   int
	total   int
	perHost map[string]int
}

func (p *postman) init(limit int) {
	if limit <= 0 {
		limit = 256
	}
	p.limit, p.perHost = limit, map[string]int{}
}

func (p *postman) free() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit - p.total
}

// enter reports false when the host has enough under way.
func (p *postman) enter(host string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.perHost[host] >= max(p.limit/16, 1) {
		return false
	}
	p.perHost[host]++
	p.total++
	return true
}

func (p *postman) leave(host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	if p.perHost[host]--; p.perHost[host] == 0 {
		delete(p.perHost, host)
	}
}

// deliver starts what is due and can go, and says when there is more.
func (s *Service) deliver(ctx context.Context, now Instant) (Instant, error) {
	if s.sender == nil {
		return 0, nil
	}
	for {
		n := s.post.free()
		if n == 0 {
			return 0, nil // an attempt that ends arms the next look
		}
		ds, err := s.queue.Deliveries(ctx, now, now.Add(deliveryLease), n)
		if err != nil {
			return 0, err
		}
		var later []Attempt
		for _, d := range ds { // each on its own: one under way keeps no other in memory
			host := hostOf(d.Job.Webhook)
			if !s.post.enter(host) {
				later = append(later, Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Next: now.Add(postponed), Postponed: true})
				continue
			}
			s.runs.Go(func() {
				defer s.arm(s.now())
				defer s.post.leave(host)
				s.send(ctx, &d)
			})
		}
		if len(later) > 0 {
			if err := s.queue.Record(ctx, later); err != nil {
				return 0, err
			}
		}
		if len(ds) < n {
			return s.queue.NextDelivery(ctx)
		}
	}
}

// send makes one attempt and records it. One that our own end cut short is not counted:
// its lease runs out and it is made again.
func (s *Service) send(ctx context.Context, d *Delivery) {
	status, err := s.attempt(ctx, d)
	if ctx.Err() != nil && err != nil {
		return
	}
	now := s.now()
	a := Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Status: status}
	if err != nil {
		a.Err = err.Error()
	}
	if ok := err == nil && status >= 200 && status < 300; !ok && d.Tries+1 < WebhookTries {
		a.Next = now.Add(WebhookDelay)
	}
	if err := s.queue.Record(context.WithoutCancel(ctx), []Attempt{a}); err != nil {
		s.log.Error("recording a delivery failed", "delivery", d.ID, "err", err)
	}
}

// attempt calls the sender. A panic is the attempt's failure: the delivery would be there
// again after a restart, and panic again. So is a delivery that is damaged.
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

// Deliveries is the delivery log of a job's webhooks, oldest first.
func (s *Service) Deliveries(ctx context.Context, owner string, ref Ref) ([]Attempt, error) {
	if _, err := s.find(ctx, owner, ref); err != nil && !errors.Is(err, ErrDamaged) {
		return nil, err
	}
	return s.queue.Attempts(ctx, ref)
}

// Redeliver has the webhook of an ended job of owner sent again, with all its attempts,
// and returns the id of the delivery, which is the one it had. One that is still on its
// way stays as it is. Errors: those of Get; ErrStatus for a job that has not ended or has
// no webhook.
func (s *Service) Redeliver(ctx context.Context, owner string, ref Ref) (id string, err error) {
	j, err := s.Get(ctx, owner, ref)
	if err != nil {
		return "", err
	}
	if j.Flags&HasWebhook == 0 {
		return "", refused("the job has no webhook")
	}
	r, err := s.apply(ctx, Op{Ref: ref, Kind: OpRedeliver})
	if errors.Is(err, ErrStatus) {
		return "", refused("the job has not ended, and its webhook is sent when it has")
	}
	if err != nil {
		return "", err
	}
	return DeliveryID(ref, r.State.Run), nil
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}
