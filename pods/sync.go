package pods

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// errUnchanged makes Update change nothing.
var errUnchanged = errors.New("pods: nothing to change")

// sync processes one pod: it applies what was reported, and makes the one call that brings the
// host nearer to the desired state. The result of that call comes with the next report.
func (s *Service) sync(ctx context.Context, it *workItem, now time.Time) error {
	p, err := s.applyReports(ctx, it, now)
	if errors.Is(err, ErrNotFound) {
		s.loop.forget(it.id)
		s.loop.noteCapacityFreed()
		return s.removeOrphan(ctx, it)
	}
	if err != nil {
		return err
	}
	if len(p.Placement.Claims) == 0 {
		s.loop.noteCapacityFreed()
	}
	if p.Placement.Host == "" {
		return s.syncUnplaced(ctx, p, now)
	}
	h, ours := s.owned(p.Placement.Host)
	if !ours || s.shared != nil && !s.fence(p) {
		return nil
	}
	if over, err := s.followCluster(ctx, p); over || err != nil {
		return err
	}
	if err := s.recordUsage(ctx, p); err != nil {
		return err
	}
	if now.Before(p.Seen.RetryAt) {
		s.loop.scheduleAt(p.ID, p.Seen.RetryAt)
		return nil
	}
	over := p.Seen.ended()
	if p.Want.Power == PowerOn && p.Seen.Phase == PhaseHealthy && !over {
		if stops, err := s.keepTerms(ctx, p, now); stops || err != nil {
			return err // the change wakes the loop
		}
	}
	switch {
	case p.Want.Power == PowerTerminated:
		return s.remove(ctx, h, p, now)
	case p.Want.Power == PowerOn && (p.Seen.Gen != p.Want.Gen || p.Seen.Run != p.Want.Run):
		return s.ensure(ctx, h, p, now)
	case p.Want.Power == PowerOff && (!over || len(p.Placement.Claims) > 0), over && it.containerRuns():
		return s.stop(ctx, h, p, now)
	}
	return nil
}

// containerRuns reports whether the last report is about a container that has not ended.
func (it *workItem) containerRuns() bool {
	return len(it.states) > 0 && it.states[len(it.states)-1].Phase < PhaseExited
}

// applyReports stores what was reported about a pod.
func (s *Service) applyReports(ctx context.Context, it *workItem, now time.Time) (*Pod, error) {
	if len(it.states) == 0 && it.missingAt == nil {
		return s.store.Get(ctx, it.id)
	}
	p, err := s.updateSeen(ctx, it.id, it.states, func(p *Pod) bool {
		changed := it.missingAt != nil && p.containerLost(*it.missingAt, now)
		for _, st := range it.states {
			changed = p.observe(st, now) || changed
		}
		return changed
	})
	if p == nil && err == nil {
		return s.store.Get(ctx, it.id)
	}
	return p, err
}

// update stores what fn leaves if fn returns true; otherwise p is nil.
func (s *Service) update(ctx context.Context, id string, fn func(*Pod) bool) (p *Pod, err error) {
	return s.updateSeen(ctx, id, nil, fn)
}

// updateSeen is update for a change that comes from reports of a runtime.
func (s *Service) updateSeen(ctx context.Context, id string, states []ContainerState, fn func(*Pod) bool) (p *Pod, err error) {
	var was ObservedState
	p, err = s.store.Update(ctx, id, func(p *Pod) error {
		was = p.Seen
		if !s.fence(p) || !fn(p) {
			return errUnchanged
		}
		return nil
	})
	if errors.Is(err, errUnchanged) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("pods: update %q: %w", id, err)
	}
	s.observeChange(was, p, states)
	s.subscribers.notify(id)
	return p, nil
}

// removeOrphan removes a listed container that belongs to no pod.
func (s *Service) removeOrphan(ctx context.Context, it *workItem) error {
	if it.source == nil || s.foreign != nil && s.foreign(it.id) || len(s.ownedOf(it.source)) == 0 {
		return nil
	}
	s.log.InfoContext(ctx, "pods: remove a container of no pod", "pod", it.id)
	if err := s.call("remove", it.source.hosts[0].ID, it.id, func() error { return it.source.rt.Remove(ctx, it.id, s.grace) }); err != nil {
		return fmt.Errorf("pods: remove stray %q: %w", it.id, err)
	}
	return nil
}

// syncUnplaced processes a pod without a host.
func (s *Service) syncUnplaced(ctx context.Context, p *Pod, now time.Time) error {
	switch {
	case p.Want.Power == PowerTerminated:
		return s.deletePod(ctx, p)
	case p.Want.Power == PowerOn:
		s.loop.addWaiting(p.ID) // first, so that nothing that becomes free from here on is missed
		if err := s.assignHost(ctx, p, now); !errors.Is(err, ErrNoCapacity) {
			return err
		}
		return nil
	case p.Seen.ended():
		return nil
	}
	_, err := s.update(ctx, p.ID, func(p *Pod) bool {
		if p.Want.Power != PowerOff || p.Placement.Host != "" {
			return false
		}
		p.finishRun(Exited, "stopped before it had a place", now)
		return true
	})
	return err
}

// placeWaiting tries to place the pods that wait, oldest first, if something has become free.
// When there is no capacity for one, others with the same requirements are skipped.
func (s *Service) placeWaiting(ctx context.Context, now time.Time) error {
	var list []*Pod
	for _, id := range s.loop.takeWaiting() {
		p, err := s.store.Get(ctx, id)
		if err != nil && !errors.Is(err, ErrNotFound) {
			return err
		}
		if err != nil || p.Want.Power != PowerOn || p.Placement.Host != "" {
			s.loop.removeWaiting(id)
			continue
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b *Pod) int {
		if c := a.Created.Compare(b.Created); c != 0 {
			return c
		}
		return strings.Compare(a.ID, b.ID)
	})
	none := make(map[string]bool)
	for _, p := range list {
		if none[describeRequirements(p)] {
			continue
		}
		err := s.assignHost(ctx, p, now)
		switch {
		case errors.Is(err, ErrNoCapacity):
			none[describeRequirements(p)] = true
		case err != nil:
			return err
		}
	}
	return nil
}

// assignHost places a waiting pod, or returns ErrNoCapacity.
func (s *Service) assignHost(ctx context.Context, p *Pod, now time.Time) error {
	err := s.place(ctx, p, func(pl Placement) error {
		_, err := s.update(ctx, p.ID, func(p *Pod) bool {
			if p.Want.Power != PowerOn || p.Placement.Host != "" {
				return false
			}
			p.Placement = pl
			p.appendJournal(now, "capacity was found in "+pl.DataCenter)
			return true
		})
		return err
	})
	if err != nil && !errors.Is(err, ErrNotFound) {
		return err
	}
	s.loop.removeWaiting(p.ID)
	s.loop.push(p.ID, nil)
	return nil
}

// ensure makes the host create or start the container.
func (s *Service) ensure(ctx context.Context, h *Host, p *Pod, now time.Time) error {
	s.loop.clearStop(p.ID)
	with, missing, err := s.withSecrets(ctx, p)
	if errors.Is(err, ErrSecretTooLong) {
		return s.failStart(ctx, h, p, problem.Of(err).Detail, now)
	}
	if err != nil {
		return s.scheduleRetry(ctx, p, "start", err, now)
	}
	spec, err := s.spec(ctx, h, with)
	if problem.KindOf(err) == problem.NotFound {
		return s.failStart(ctx, h, p, "registry credential "+p.Want.Applied.Registry+" does not exist any more", now)
	}
	if err == nil {
		err = s.call("ensure", h.ID, p.ID, func() error { return h.Runtime.Ensure(ctx, spec) })
	}
	if err != nil {
		return s.scheduleRetry(ctx, p, "start", err, now)
	}
	reported := s.loop.takeStates(p.ID)
	_, err = s.updateSeen(ctx, p.ID, reported, func(p *Pod) bool {
		if p.Want.Gen != spec.Gen || p.Want.Run != spec.Run {
			return false
		}
		p.runAccepted(now)
		p.noteMissing(missing, now)
		for _, st := range reported {
			p.observe(st, now)
		}
		return true
	})
	return err
}

// failStart fails a pod that no host can start, such as one whose registry credential does not exist
// any more. If it still has a container, that is an older one, which is not wanted any more.
func (s *Service) failStart(ctx context.Context, h *Host, p *Pod, reason string, now time.Time) error {
	if err := s.stopContainer(ctx, h, p); err != nil {
		return s.scheduleRetry(ctx, p, "stop", err, now)
	}
	was := p.Want
	_, err := s.update(ctx, p.ID, func(p *Pod) bool {
		if p.Want.Gen != was.Gen || p.Want.Run != was.Run || p.Want.Power != PowerOn {
			return false
		}
		p.Seen.Gen, p.Seen.Run = was.Gen, was.Run
		p.finishRun(Errored, reason, now)
		return true
	})
	return err
}

// stopRecheckDelay is how long after its grace a stop without effect is checked.
const stopRecheckDelay = 5 * time.Second

// stop makes the host end the container. The report of its end makes the pod EXITED.
func (s *Service) stop(ctx context.Context, h *Host, p *Pod, now time.Time) error {
	asked, pending := s.loop.stopPending(p.ID, p.Want.Run)
	if again := asked.Add(p.Want.Grace + stopRecheckDelay); pending && now.Before(again) {
		s.loop.scheduleAt(p.ID, again)
		return nil
	}
	if err := s.stopContainer(ctx, h, p); err != nil {
		return s.scheduleRetry(ctx, p, "stop", err, now)
	}
	s.loop.stopAccepted(p.ID, p.Want.Run, now)
	if !pending && p.Seen.Gen != 0 && !p.Seen.ended() {
		s.loop.scheduleAt(p.ID, now.Add(p.Want.Grace+stopRecheckDelay))
		return nil
	}
	// No report came, or none can come because the host never accepted that container.
	list, err := s.listContainers(ctx, h.ID, h.Runtime)
	if err != nil {
		return s.scheduleRetry(ctx, p, "stop", err, now)
	}
	i := slices.IndexFunc(list, func(st ContainerState) bool { return st.PodID == p.ID })
	if i >= 0 && list[i].Phase < PhaseExited {
		s.loop.scheduleAt(p.ID, now.Add(p.Want.Grace+stopRecheckDelay))
		return nil
	}
	s.loop.clearStop(p.ID)
	_, err = s.update(ctx, p.ID, func(p *Pod) bool {
		if p.Want.Power != PowerOff {
			return false
		}
		p.finishRun(Exited, cmp.Or(p.Want.Why, "stopped by its user"), now)
		return true
	})
	return err
}

// remove makes the host destroy everything of the pod, and then deletes the pod. Its compute is
// free when the host has confirmed.
func (s *Service) remove(ctx context.Context, h *Host, p *Pod, now time.Time) error {
	if err := s.call("remove", h.ID, p.ID, func() error { return h.Runtime.Remove(ctx, p.ID, p.Want.Grace) }); err != nil {
		return s.scheduleRetry(ctx, p, "remove", err, now)
	}
	s.observeRemoved(p)
	if err := s.recordFinalUsage(ctx, p, now); err != nil {
		return err
	}
	return s.deletePod(ctx, p)
}

// errFenced is the error of a delete that another server must make.
var errFenced = errors.New("pods: another server has the host")

// deletePod deletes a pod that was seen without anything on its host, or without a host.
func (s *Service) deletePod(ctx context.Context, p *Pod) error {
	s.loop.forget(p.ID)
	err := s.store.Delete(ctx, p.ID, func(now *Pod) error {
		if now.Placement.Host != p.Placement.Host || !s.fence(now) {
			return errFenced
		}
		return nil
	})
	if errors.Is(err, errFenced) {
		return nil
	}
	if err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("pods: delete %q: %w", p.ID, err)
	}
	s.subscribers.notify(p.ID)
	s.loop.noteCapacityFreed()
	return nil
}

// maxFailure is how many bytes are kept of the error of a host.
const maxFailure = 500

func firstBytes(s string, most int) string {
	if len(s) > most {
		s = s[:most]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// scheduleRetry notes that a host failed a call, and when to try again.
func (s *Service) scheduleRetry(ctx context.Context, p *Pod, what string, cause error, now time.Time) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.log.WarnContext(ctx, "pods: host did not take a call", "pod", p.ID, "host", p.Placement.Host, "call", what, "err", cause)
	q, err := s.update(ctx, p.ID, func(p *Pod) bool {
		if p.Seen.Tries == 0 {
			p.appendJournal(now, lineRefused+what+" the container; it is tried again")
		}
		p.Seen.Tries++
		p.Seen.Failure = firstBytes(cause.Error(), maxFailure)
		p.Seen.RetryAt = now.Add(backoff(p.Seen.Tries))
		return true
	})
	if err != nil {
		return err
	}
	s.loop.scheduleAt(q.ID, q.Seen.RetryAt)
	return nil
}
