package pods

import (
	"context"
	"errors"
	"time"

	"github.com/podyard/podyard/problem"
)

// Act performs an action on a pod of owner and returns the pod after it.
//
// Errors: ErrNotFound; ErrInvalidStatus and ErrLocked when a cannot be done now; ErrNoCapacity
// when the pod cannot start, on its own host, for lack of capacity; a problem of kind BadRequest
// when its owner may not start its image any more; what Options.Afford returns. On an error nothing was changed.
func (s *Service) Act(ctx context.Context, owner, id string, a Action) (*Pod, error) {
	return s.act(ctx, owner, id, a, false)
}

// ActAsOperator is Act for an operator, who may start a pod whose owner may not: the operator
// decides whose programs run.
func (s *Service) ActAsOperator(ctx context.Context, owner, id string, a Action) (*Pod, error) {
	return s.act(ctx, owner, id, a, true)
}

func (s *Service) act(ctx context.Context, owner, id string, a Action, operator bool) (*Pod, error) {
	for {
		p, err := s.Get(ctx, owner, id)
		if err != nil {
			return nil, err
		}
		order, ok := actionEffects[a]
		if !ok {
			return nil, problem.Newf(problem.Invalid, "unknown action %q", string(a))
		}
		if err := checkAction(p, a); err != nil {
			return nil, err
		}
		if !operator {
			if err := s.admitStart(p, a); err != nil {
				return nil, err
			}
		}
		q, err := s.applyAction(ctx, p, a, order)
		if !errors.Is(err, errReleased) {
			return q, err
		}
	}
}

// noteAsked makes ready what counts from an action on: the grace of a stop, and what is counted
// since the last start.
func (s *Service) noteAsked(p *Pod, a Action) {
	switch a {
	case Stop:
		p.Want.Grace, p.Want.Why = p.Config.Extras.Grace(), ""
	case Terminate:
		p.Want.Grace = s.grace
	case Start, Restart, Reset:
		p.Seen.Restarts, p.Seen.Began = 0, time.Time{}
	}
}

// admitStart asks the runtimes whether the owner of a pod may start it: what its image allows may
// have changed since it was made. A pod that runs goes on.
func (s *Service) admitStart(p *Pod, a Action) error {
	var faults problem.Violations
	if a == Start || a == Restart || a == Reset {
		s.admit(p, p.Config, &faults)
	}
	return faults.Err(nil)
}

// errReleased: the pod had compute when it was read, and has lost it since.
var errReleased = errors.New("pods: the compute was released meanwhile")

// applyAction stores the result of an action. An action that starts a pod without compute
// claims the compute in the same write, so that nothing runs without a claim.
func (s *Service) applyAction(ctx context.Context, p *Pod, a Action, order func(*Pod)) (*Pod, error) {
	starts := a == Start || a == Reset
	do := func(pl *Placement) (*Pod, error) {
		return s.change(ctx, p.Owner, p.ID, func(p *Pod) error {
			if err := checkAction(p, a); err != nil {
				return err
			}
			switch {
			case !starts || len(p.Placement.Claims) > 0:
			case pl != nil:
				p.closeUsage(pl.Since)
				p.Placement = *pl
			case p.Placement.Host != "":
				return errReleased // its container has ended since p was read
			}
			was := p.Want.Applied
			order(p)
			s.resized(p, &was)
			s.noteAsked(p, a)
			// A new action does not wait for the retries of an earlier one.
			p.Seen.succeeded()
			p.appendJournal(s.clock.Now(), string(a)+lineAsked)
			return nil
		})
	}
	var q *Pod
	switch {
	case starts && len(p.Placement.Claims) == 0:
		err := s.affordable(ctx, []*Pod{p}, func() (err error) {
			q, err = s.claimCompute(ctx, p, do)
			return err
		})
		return q, err
	case starts || a == Restart:
		err := s.resizable(ctx, p, func() (err error) {
			q, err = do(nil)
			return err
		})
		return q, err
	}
	return do(nil)
}

// claimCompute calls do with new compute for p. If there is none and pods may wait, it calls do
// without compute.
func (s *Service) claimCompute(ctx context.Context, p *Pod, do func(*Placement) (*Pod, error)) (q *Pod, err error) {
	err = s.place(ctx, p, func(pl Placement) error {
		q, err = do(&pl)
		return err
	})
	if errors.Is(err, ErrNoCapacity) && s.queue && p.Placement.Host == "" {
		return do(nil)
	}
	return q, err
}

// Reset makes the container of a pod anew, from an image pulled again, on the same host
// and with the same mounts (docs/decisions.md 18 and 19).
func (s *Service) Reset(ctx context.Context, owner, id string) (*Pod, error) {
	return s.Act(ctx, owner, id, Reset)
}

// Terminate deletes a pod for good. It disappears from lists at once. Its compute is free when
// its host has confirmed that nothing of the pod is left.
func (s *Service) Terminate(ctx context.Context, owner, id string) error {
	_, err := s.Act(ctx, owner, id, Terminate)
	return err
}

// actionEffects change the desired state.
var actionEffects = map[Action]func(*Pod){
	Start: func(p *Pod) {
		p.Want.Power, p.Want.Pull = PowerOn, false
		p.Want.Run++
		// The same container starts again, unless there is none or its settings have changed.
		if p.Seen.Started.IsZero() || !p.Config.Equal(p.Want.Applied) {
			p.newGeneration()
		}
	},
	Stop: func(p *Pod) { p.Want.Power = PowerOff },
	Restart: func(p *Pod) {
		p.Want.Power, p.Want.Pull = PowerOn, false
		p.Want.Run++
		p.newGeneration()
	},
	Reset: func(p *Pod) {
		p.Want.Power, p.Want.Pull = PowerOn, true
		p.Want.Run++
		p.newGeneration()
	},
	Terminate: func(p *Pod) { p.Want.Power = PowerTerminated },
}

// newGeneration asks for another container, with the present configuration.
func (p *Pod) newGeneration() {
	p.Want.Gen++
	p.Want.Applied = p.Config.Clone()
}
