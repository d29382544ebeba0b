package pods

import (
	"context"
	"time"

	"github.com/podyard/podyard/pods/telemetry"
)

const (
	sharePause = 2 * time.Second // between two looks at the hosts of the others
	sharePolls = 3               // looks until the pods of the own hosts are read, and followers of logs look, in case a hint was lost
)

// shareHosts keeps the leases of the own hosts until ctx ends, and looks at those of the others.
func (s *Service) shareHosts(ctx context.Context) {
	for looks := 1; ctx.Err() == nil; looks++ {
		_ = s.sleep(ctx, sharePause, nil)
		if ctx.Err() != nil {
			return
		}
		err := s.refreshHosts(ctx)
		if err == nil && looks%sharePolls == 0 {
			s.subscribers.notifyAll()
			err = s.pollOwned(ctx)
		}
		if err != nil && ctx.Err() == nil {
			s.log.WarnContext(ctx, "pods: look at the hosts of all servers", "err", err)
			s.observeLoop(telemetry.LoopPods, "", time.Time{}, err)
		}
	}
}

// refreshHosts makes the loop begin with the hosts whose lease this server has got.
func (s *Service) refreshHosts(ctx context.Context) error {
	if s.shared == nil {
		return nil
	}
	gained, changed, err := s.shared.refresh(ctx, s.clock.Now())
	if err != nil {
		return err
	}
	for _, id := range gained {
		s.log.InfoContext(ctx, "pods: this server has the host", "host", id)
	}
	if len(gained) > 0 {
		s.loop.beginAgain(gained)
	}
	if changed {
		s.loop.noteCapacityFreed()
	}
	return nil
}

// pollOwned enqueues the pods of the own hosts that are not as they should be.
func (s *Service) pollOwned(ctx context.Context) error {
	for _, h := range s.order {
		if _, ok := s.owned(h.ID); !ok {
			continue
		}
		for p, err := range s.store.List(ctx, Filter{Host: h.ID}) {
			if err != nil {
				return err
			}
			if p.unsettled() {
				s.loop.push(p.ID, nil)
			}
		}
	}
	s.loop.noteCapacityFreed()
	return nil
}

// unsettled reports whether a host has something to do for p.
func (p *Pod) unsettled() bool {
	switch p.Want.Power {
	case PowerOn:
		return p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run
	case PowerOff:
		return !p.Seen.ended() || len(p.Placement.Claims) > 0
	}
	return true
}
