package serverless

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

const (
	// A delivery whose receiver or owner is at its limit is postponed: by busyDelay, and by
	// longer the more of them wait.
	busyDelay    = 2 * time.Second
	maxBusyDelay = time.Minute

	// After failuresInRow attempts of an owner's deliveries to a receiver have failed, with none
	// that succeeded between them, one attempt is made at a time, and a pause follows each
	// failure: firstPause, and twice as long each time up to maxPause. Deliveries that are due in
	// a pause are postponed, which is no attempt. So that they do not pile up, those of jobs that
	// ended longer ago than maxPostponed fail without being sent.
	failuresInRow = 8
	firstPause    = time.Second
	maxPause      = time.Minute
	maxPostponed  = time.Hour
	waitsInDelay  = 64 // how many of a route that are postponed for a pause are due in busyDelay after it

	// maxDeliveryBytes is how many bytes of payloads are read for deliveries at once. An owner
	// gets half of them at most, and one delivery in any case.
	maxDeliveryBytes = 256 << 20
)

// A deliveryLimiter limits the deliveries in flight, in total, to each receiver and of each
// owner, so that slow receivers do not delay the others. It knows which receivers fail.
type deliveryLimiter struct {
	mu      sync.Mutex
	limit   int
	total   int
	bytes   int64
	budgets *budget.Set // nil: no limit for owners
	hosts   map[string]*deliveryLine
	owners  map[string]*deliveryLine
	routes  map[deliveryRoute]*deliveryLine
	sweepAt int // the number of routes at which those that no longer matter are removed
}

// A deliveryRoute is from an owner to a receiver. Another owner may have a path there that works.
type deliveryRoute struct{ owner, host string }

// A deliveryLine counts the deliveries to a receiver, of an owner, or both.
type deliveryLine struct {
	sending   int
	postponed int // since the last one ended
	bytes     int64

	failures int           // in a row
	pause    time.Duration // the present or last one
	since    Instant       // when it began
	quiet    Instant       // since when something is under way and nothing has arrived; 0: nothing is
	failing  Instant       // of the first of failures
}

// until is the end of the pause.
func (l *deliveryLine) until() Instant { return l.since.Add(l.pause) }

// A deliverySlot is the place of one delivery.
type deliverySlot struct {
	route deliveryRoute
	began Instant
	bytes int64
	to    *deliveryLine // to the receiver
	of    *deliveryLine // of the owner
	along *deliveryLine // of the route
}

// A deliveryOutcome is what an attempt says about its receiver.
type deliveryOutcome uint8

const (
	deliveryMade deliveryOutcome = iota
	deliveryFailed
	deliveryCut // nothing
)

func (p *deliveryLimiter) init(limit int, budgets *budget.Set) {
	if limit <= 0 {
		limit = 256
	}
	p.limit, p.budgets = limit, budgets
	p.hosts, p.owners, p.routes = map[string]*deliveryLine{}, map[string]*deliveryLine{}, map[deliveryRoute]*deliveryLine{}
	p.sweepAt = 1024
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

func lineOf[K comparable](lines map[K]*deliveryLine, name K) *deliveryLine {
	if lines[name] == nil {
		lines[name] = &deliveryLine{}
	}
	return lines[name]
}

// acquire takes a place for a delivery. Without a place it returns for how long to postpone the
// delivery, or the error of one that waits for nothing.
func (p *deliveryLimiter) acquire(d *Delivery, now Instant) (slot *deliverySlot, postpone time.Duration, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := deliverySlot{route: deliveryRoute{d.Job.Owner, hostOf(d.Job.Webhook)}, began: now, bytes: d.Job.State.Bytes()}
	s.to, s.of, s.along = lineOf(p.hosts, s.route.host), lineOf(p.owners, s.route.owner), lineOf(p.routes, s.route)
	if wait := p.wait(&s, now); wait > 0 {
		failures := s.along.failures
		p.forget(&s)
		if failures >= failuresInRow && now.Sub(d.Job.Finished) > maxPostponed {
			return nil, 0, fmt.Errorf("not sent: the last %d webhooks to the receiver have failed", failures)
		}
		return nil, wait, nil
	}
	if s.along.sending == 0 {
		s.along.quiet = now
	}
	for _, l := range s.lines() {
		l.sending++
		l.bytes += s.bytes
	}
	p.total++
	p.bytes += s.bytes
	return &s, 0, nil
}

func (s *deliverySlot) lines() [3]*deliveryLine { return [3]*deliveryLine{s.to, s.of, s.along} }

// wait returns for how long a delivery has to wait; 0: there is a place.
func (p *deliveryLimiter) wait(s *deliverySlot, now Instant) time.Duration {
	most := max(p.limit/16, 1)
	if s.along.failures >= failuresInRow {
		if until := s.along.until(); now < until {
			return until.Sub(now) + s.along.postpone(waitsInDelay) - busyDelay // not all at once
		}
		most = 1
	}
	for _, l := range [...]struct {
		line *deliveryLine
		most int
	}{{s.along, most}, {s.to, max(p.limit/4, 1)}, {s.of, p.ofOwner(s.route.owner)}} {
		if l.line.sending >= l.most {
			return l.line.postpone(l.most)
		}
	}
	if s.of.sending > 0 && s.of.bytes+s.bytes > maxDeliveryBytes/2 || p.total > 0 && p.bytes+s.bytes > maxDeliveryBytes {
		return s.of.postpone(max(s.of.sending, 1))
	}
	return 0
}

// postpone returns for how long a delivery waits for one of most places.
func (l *deliveryLine) postpone(most int) time.Duration {
	l.postponed++
	return min(busyDelay*time.Duration(1+l.postponed/most), maxBusyDelay)
}

// release gives back the place of a delivery, and notes what its attempt says about the receiver.
func (p *deliveryLimiter) release(s *deliverySlot, now Instant, outcome deliveryOutcome) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total--
	p.bytes -= s.bytes
	for _, l := range s.lines() {
		l.sending--
		l.bytes -= s.bytes
		l.postponed = max(l.postponed-1, 0)
	}
	switch {
	case s.along.sending == 0:
		s.along.quiet = 0
	case outcome == deliveryMade:
		s.along.quiet = now
	}
	s.along.note(s.began, now, outcome)
	p.forget(s)
	p.sweep(now)
}

// note notes the outcome of an attempt that began at an instant. Failures of attempts that began
// before the last pause are of the failures that it is for.
func (l *deliveryLine) note(began, now Instant, outcome deliveryOutcome) {
	switch outcome {
	case deliveryMade:
		l.failures, l.pause, l.since, l.failing = 0, 0, 0, 0
	case deliveryFailed:
		if l.failures >= failuresInRow && began < l.until() {
			return
		}
		if l.failures == 0 {
			l.failing = began
		}
		if l.failures++; l.failures >= failuresInRow {
			l.pause = min(max(2*l.pause, firstPause), maxPause)
			l.since = now
		}
	}
}

// forget removes lines that say nothing.
func (p *deliveryLimiter) forget(s *deliverySlot) {
	if s.to.sending == 0 {
		delete(p.hosts, s.route.host)
	}
	if s.of.sending == 0 {
		delete(p.owners, s.route.owner)
	}
	if s.along.sending == 0 && s.along.failures == 0 {
		delete(p.routes, s.route)
	}
}

// sweep removes routes of receivers that have failed and to which nothing has been sent for long,
// after so many new ones that this costs little.
func (p *deliveryLimiter) sweep(now Instant) {
	if len(p.routes) < p.sweepAt {
		return
	}
	for r, l := range p.routes {
		if l.sending == 0 && now > l.since.Add(2*maxPause) {
			delete(p.routes, r)
		}
	}
	p.sweepAt = 2*len(p.routes) + 1024
}

func hostOf(rawURL string) string {
	u, err := url.Parse(rawURL)
	if err != nil {
		return ""
	}
	return u.Host
}

// hangsAfter is how long a receiver may take before it counts as one that hangs.
const hangsAfter = 5 * time.Second

// maxReceivers is how many Receivers returns.
const maxReceivers = 100

// A ReceiverTrouble is a receiver of webhooks that fails or does not answer, as this server has seen it.
type ReceiverTrouble struct {
	Host, Owner string
	Failures    int // in a row
	Since       Instant
}

// Receivers returns the receivers of webhooks that have failed several times in a row, or that hang: at
// most 100.
func (s *Service) Receivers() []ReceiverTrouble { return s.deliveryLimit.troubles(s.now()) }

func (p *deliveryLimiter) troubles(now Instant) (list []ReceiverTrouble) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for r, l := range p.routes {
		hangs := l.quiet != 0 && now.Sub(l.quiet) >= hangsAfter
		if (hangs || l.failures >= failuresInRow) && len(list) < maxReceivers {
			since := l.failing
			if since == 0 {
				since = l.quiet
			}
			list = append(list, ReceiverTrouble{r.host, r.owner, l.failures, since})
		}
	}
	return list
}
