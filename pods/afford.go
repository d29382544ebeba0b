package pods

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Afford calls start if the owner may spend so many USD an hour more, and returns its error; else it
// returns why not, with the kind problem.TooManyRequests (docs/decisions.md 56). Calls for one owner
// follow one another, so that together they do not go over a budget.
type Afford func(ctx context.Context, owner string, more float64, start func() error) error

// hourly is what p costs in USD an hour while it has compute, with its disks.
func (s *Service) hourly(p *Pod) float64 {
	disks, _ := s.diskPrices(&p.Config)
	return s.price(p) + disks
}

// affordable calls start if the owner of pods that are to get compute may spend that.
func (s *Service) affordable(ctx context.Context, list []*Pod, start func() error) error {
	if s.afford == nil {
		return start()
	}
	var more float64
	for _, p := range list {
		more += s.hourly(p)
		if !p.Placement.Since.IsZero() {
			more -= p.Placement.KeptPrice // for which it stops to pay
		}
	}
	if more > 0 && s.queue {
		waiting, err := s.waitingCost(ctx, list[0].Owner)
		if err != nil {
			return err
		}
		more += waiting
	}
	return s.afford(ctx, list[0].Owner, more, start)
}

// resizable calls start if the owner of p may spend what its disks cost more in the container that p gets.
func (s *Service) resizable(ctx context.Context, p *Pod, start func() error) error {
	next, _ := s.diskPrices(&p.Config)
	now, _ := s.diskPrices(&p.Want.Applied)
	if s.afford == nil || next <= now {
		return start()
	}
	return s.afford(ctx, p.Owner, next-now, start)
}

// waitingCost is what the pods of owner that wait for a host will cost.
func (s *Service) waitingCost(ctx context.Context, owner string) (usd float64, err error) {
	for p, err := range s.store.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return 0, fmt.Errorf("pods: list what waits: %w", err)
		}
		if p.spends() && len(p.Placement.Claims) == 0 {
			usd += s.hourly(p)
		}
	}
	return usd, nil
}

// spends reports whether p has compute and is to keep it, or waits for some.
func (p *Pod) spends() bool {
	if p.Want.Power != PowerOn {
		return false
	}
	status := p.Status()
	return len(p.Placement.Claims) > 0 || status != Exited && status != Errored
}

// A CostNotice is how near the end of its owner's budget of a month is, as the log of a pod says it
// (docs/decisions.md 56). Each pod says it once.
type CostNotice struct {
	Month time.Time // its begin
	Limit float64   // USD
	Level int       // higher is nearer
}

// NotifyCost writes text into the system logs of the pods of owner that run or wait, unless they
// have it; with stop it also stops them, locked ones and members of clusters too. A stop keeps the
// disks. Several servers may call it for the same owner: what one of them has done the others do not
// do again. A pod that fails does not keep the others.
func (s *Service) NotifyCost(ctx context.Context, owner string, n CostNotice, text string, stop bool) error {
	var errs []error
	for p, err := range s.store.List(ctx, Filter{Owner: owner}) {
		if err != nil {
			return fmt.Errorf("pods: list what costs: %w", err)
		}
		if p.toldCost(n, stop) {
			continue
		}
		if err := s.notifyCost(ctx, p.ID, n, text, stop); err != nil {
			errs = append(errs, fmt.Errorf("pods: tell %q of its cost: %w", p.ID, err))
		}
	}
	return errors.Join(errs...)
}

// toldCost reports whether there is nothing to tell p.
func (p *Pod) toldCost(n CostNotice, stop bool) bool {
	was := p.Told
	same := was.Month.Equal(n.Month) && was.Limit == n.Limit && was.Level >= n.Level
	return !p.spends() || same && !stop
}

func (s *Service) notifyCost(ctx context.Context, id string, n CostNotice, text string, stop bool) error {
	_, err := s.store.Update(ctx, id, func(p *Pod) error {
		if p.toldCost(n, stop) {
			return errUnchanged
		}
		p.Told = n
		p.appendJournal(s.clock.Now(), text)
		if stop {
			p.Want.Power, p.Want.Grace, p.Want.Why = PowerOff, p.Config.Extras.Grace(), text
			p.Seen.succeeded()
		}
		return nil
	})
	if errors.Is(err, errUnchanged) || errors.Is(err, ErrNotFound) {
		return nil
	}
	if err == nil {
		s.notifyChanged(id)
	}
	return err
}
