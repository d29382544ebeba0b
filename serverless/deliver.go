package serverless

import (
	"context"
	"errors"
	"maps"
	"net/url"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// The schedule of a webhook: up to WebhookTries attempts, WebhookDelay apart.
const (
	WebhookTries = 3
	WebhookDelay = 10 * time.Second

	// deliveryLease is longer than any attempt: a sender gives up after 30 s.
	deliveryLease = time.Minute
	// A delivery whose receiver or owner is at its limit is postponed: by busyDelay, and by
	// longer the more of them wait, because each time its payloads are read again.
	busyDelay    = 2 * time.Second
	maxBusyDelay = time.Minute
)

// A Sender sends webhooks. Send posts one delivery and returns the HTTP status of the answer.
// It must not retry, and must return soon after ctx ends. The text of its error goes into the
// delivery log and must hold no secret. Send is called concurrently.
type Sender interface {
	Send(ctx context.Context, d *Delivery) (status int, err error)
}

// A deliveryLimiter limits the deliveries in flight, in total, to each receiver and of each
// owner, so that slow receivers do not delay the others.
type deliveryLimiter struct {
	mu      sync.Mutex
	limit   int
	total   int
	budgets *budget.Set // nil: no limit for owners
	hosts   map[string]*deliveryLine
	owners  map[string]*deliveryLine
}

// A deliveryLine counts the deliveries to a receiver, or of an owner.
type deliveryLine struct {
	sending   int
	postponed int // since the last one ended
}

func (p *deliveryLimiter) init(limit int, budgets *budget.Set) {
	if limit <= 0 {
		limit = 256
	}
	p.limit, p.budgets = limit, budgets
	p.hosts, p.owners = map[string]*deliveryLine{}, map[string]*deliveryLine{}
}

func (p *deliveryLimiter) available() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.limit - p.total
}

// ofOwner is the most deliveries of an owner at once: half of all at most, so that there is room
// for others.
func (p *deliveryLimiter) ofOwner(owner string) int {
	most := int(p.budgets.Of(owner).Of(budget.Webhooks))
	if most == 0 {
		return p.limit
	}
	return max(min(most, p.limit/2), 1)
}

// Sending returns what counts the webhooks that are being sent, for budget.NewLedger. Its limits are
// those of Options.Budgets.
func (s *Service) Sending() budget.Counter { return &s.deliveryLimit }

// Limit implements budget.Counter. The limits are those of the options.
func (p *deliveryLimiter) Limit(*budget.Set) {}

// Usage implements budget.Counter.
func (p *deliveryLimiter) Usage(_ context.Context, user string) (u budget.Usage, _ error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if l := p.owners[user]; l != nil {
		u[budget.Webhooks] = int64(l.sending)
	}
	return u, nil
}

// Users implements budget.Counter.
func (p *deliveryLimiter) Users(context.Context) ([]string, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Keys(p.owners)), nil
}

func lineOf(lines map[string]*deliveryLine, name string) *deliveryLine {
	if lines[name] == nil {
		lines[name] = &deliveryLine{}
	}
	return lines[name]
}

// acquire takes a place for a delivery of owner to host. If one of them is at its limit, it
// returns for how long to postpone the delivery.
func (p *deliveryLimiter) acquire(owner, host string) (postpone time.Duration, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	to, of := lineOf(p.hosts, host), lineOf(p.owners, owner)
	for _, l := range []struct {
		line *deliveryLine
		most int
	}{{to, max(p.limit/16, 1)}, {of, p.ofOwner(owner)}} {
		if l.line.sending >= l.most {
			l.line.postponed++
			drop(p.hosts, host)
			drop(p.owners, owner)
			return min(busyDelay*time.Duration(1+l.line.postponed/l.most), maxBusyDelay), false
		}
	}
	to.sending++
	of.sending++
	p.total++
	return 0, true
}

func (p *deliveryLimiter) release(owner, host string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	end(p.hosts, host)
	end(p.owners, owner)
}

func end(lines map[string]*deliveryLine, name string) {
	l := lines[name]
	l.sending--
	l.postponed = max(l.postponed-1, 0)
	drop(lines, name)
}

// drop forgets a line without deliveries.
func drop(lines map[string]*deliveryLine, name string) {
	if lines[name].sending == 0 {
		delete(lines, name)
	}
}

// deliver starts the deliveries that are due, as many as the limit allows, and returns the
// instant of the next one.
func (s *Service) deliver(ctx context.Context, now Instant) (Instant, error) {
	if s.sender == nil {
		return 0, nil
	}
	for {
		n := s.deliveryLimit.available()
		if n == 0 {
			return 0, nil // the end of an attempt wakes Run
		}
		ds, err := s.queue.Deliveries(ctx, now, now.Add(deliveryLease), n)
		if err != nil {
			return 0, err
		}
		var later []Attempt
		for _, d := range ds { // a copy each, so that a delivery in flight does not keep all of ds in memory
			host := hostOf(d.Job.Webhook)
			owner := d.Job.Owner
			if wait, ok := s.deliveryLimit.acquire(owner, host); !ok {
				later = append(later, Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Next: now.Add(wait), Postponed: true})
				continue
			}
			s.goroutines.Go(func() {
				defer s.arm(s.now())
				defer s.deliveryLimit.release(owner, host)
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

// send makes one attempt and records it. An attempt that the end of ctx cut short does not
// count: its lease is given back, so that the next service makes it again at once.
func (s *Service) send(ctx context.Context, d *Delivery) {
	began := s.clock.Now()
	status, err := s.attempt(ctx, d)
	now := s.now()
	a := Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Status: status}
	if err != nil {
		a.Err = err.Error()
	}
	switch ok := err == nil && status >= 200 && status < 300; {
	case err != nil && ctx.Err() != nil:
		a = Attempt{Ref: d.Job.Ref, DeliveryID: d.ID, Token: d.Token, At: now, Next: now, Postponed: true}
	case !ok && d.Tries+1 < WebhookTries:
		a.Next = now.Add(WebhookDelay)
	}
	if err := s.queue.Record(context.WithoutCancel(ctx), []Attempt{a}); err != nil {
		s.log.Error("recording a delivery failed", "delivery", d.ID, "err", err)
		return
	}
	s.observeAttempt(d, &a, s.clock.Now().Sub(began))
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

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}
