package kube

import (
	"cmp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/podyard/podyard/pods"
)

const deadlineExceeded = "DeadlineExceeded"

// observe returns what a Pod shows at an instant, without its ports. was is the state before.
func (o *Options) observe(p *corev1.Pod, was pods.ContainerState, now time.Time) pods.ContainerState {
	s := pods.ContainerState{PodID: was.PodID, Gen: was.Gen, Run: was.Run, Started: was.Started, CUDA: was.CUDA, At: now}
	c := status(p)
	switch {
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		ended(&s, p, c)
	case c != nil && c.State.Terminated != nil: // the phase, which says why, comes a moment later
		s.Phase, s.Reason = was.Phase, was.Reason
	case c != nil && c.State.Running != nil:
		s.Started = c.State.Running.StartedAt.Time
		s.Phase = pods.PhaseStarting
		if c.Ready || was.Phase == pods.PhaseHealthy {
			s.Phase = pods.PhaseHealthy
		}
	case c != nil && c.State.Waiting != nil:
		o.waiting(&s, p, c.State.Waiting, now)
	default:
		o.unplaced(&s, p, now)
	}
	if !final(s.Phase) && lost(p) {
		s.Reason = "its node does not answer"
	}
	return s
}

func status(p *corev1.Pod) *corev1.ContainerStatus {
	for i := range p.Status.ContainerStatuses {
		if p.Status.ContainerStatuses[i].Name == container {
			return &p.Status.ContainerStatuses[i]
		}
	}
	return nil
}

// final reports whether a run does not change any more.
func final(phase pods.Phase) bool { return phase >= pods.PhaseExited }

// terminal reports whether the kubelet does nothing more for p.
func terminal(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

const (
	deletedByOthers = "it was deleted in the cluster"

	codeKilled = 137
	reasonOOM  = "OOMKilled"
)

func ended(s *pods.ContainerState, p *corev1.Pod, c *corev1.ContainerStatus) {
	s.Phase = pods.PhaseExited
	var t corev1.ContainerStateTerminated
	if c != nil && c.State.Terminated != nil {
		t = *c.State.Terminated
	}
	s.ExitCode, s.OOM = int(t.ExitCode), t.Reason == reasonOOM
	if t.Reason == "StartError" || t.Reason == "ContainerCannotRun" {
		s.Phase, s.ExitCode, s.Reason = pods.PhaseFailed, 0, cmp.Or(t.Message, t.Reason)
		return
	}
	switch {
	case p.Status.Reason == deadlineExceeded: // only a stop sets a deadline
		s.Stopped, s.OOM, s.Killed = true, false, s.ExitCode == codeKilled
	case p.DeletionTimestamp != nil: // the kubelet tells the end of a Pod before it is gone
		s.Stopped, s.OOM, s.Killed, s.Reason = true, false, s.ExitCode == codeKilled, deletedByOthers
		if disrupted(p) {
			s.Killed, s.Reason = false, disruption(p)
		}
	case disrupted(p):
		s.Stopped, s.OOM = true, false
		s.Reason = disruption(p)
	case c == nil && p.Status.Phase == corev1.PodFailed:
		s.Phase, s.Reason = pods.PhaseFailed, cmp.Or(p.Status.Message, p.Status.Reason, "the node did not take it")
	}
}

// disrupted reports whether the cluster ended p.
func disrupted(p *corev1.Pod) bool {
	return p.Status.Reason == "Evicted" || p.Status.Reason == "Preempting" || p.Status.Reason == "NodeShutdown" ||
		p.Status.Reason == "Terminated" || isTrue(p, corev1.DisruptionTarget)
}

// disruption says why the cluster ended p.
func disruption(p *corev1.Pod) string {
	return cmp.Or(p.Status.Message, "it was ended with its node: "+cmp.Or(p.Status.Reason, "disruption"))
}

func isTrue(p *corev1.Pod, kind corev1.PodConditionType) bool {
	c := condition(p, kind)
	return c != nil && c.Status == corev1.ConditionTrue
}

func condition(p *corev1.Pod, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == kind {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// lost reports whether the node of p has not answered for a while.
func lost(p *corev1.Pod) bool {
	ready, containers := condition(p, corev1.PodReady), condition(p, corev1.ContainersReady)
	// The cluster says of a Pod on such a node that it is not ready, and leaves what its kubelet said last.
	return p.Status.Reason == "NodeLost" || ready != nil && containers != nil && ready.Status != corev1.ConditionTrue && containers.Status == corev1.ConditionTrue
}

// waiting is for a container that was not started yet.
func (o *Options) waiting(s *pods.ContainerState, p *corev1.Pod, w *corev1.ContainerStateWaiting, now time.Time) {
	s.Phase = pods.PhasePulling
	switch w.Reason {
	case "InvalidImageName":
		s.Phase = pods.PhaseFailed
	case "CreateContainerConfigError", "CreateContainerError", "RunContainerError": // also while the kubelet has an older Secret
		if now.Sub(scheduled(p)) >= o.Room {
			s.Phase = pods.PhaseFailed
		}
	case "ErrImagePull", "ImagePullBackOff", "ErrImageNeverPull", "RegistryUnavailable":
		if hopeless(w.Message) || now.Sub(scheduled(p)) >= o.PullPatience {
			s.Phase = pods.PhaseFailed
		}
	default: // ContainerCreating, PodInitializing
		return
	}
	s.Reason = cmp.Or(w.Message, w.Reason)
}

// hopeless reports whether a pull that failed so would fail again.
func hopeless(message string) bool {
	m := strings.ToLower(message)
	for _, part := range []string{"not found", "unauthorized", "forbidden", "denied", "manifest unknown", "no match for platform"} {
		if strings.Contains(m, part) {
			return true
		}
	}
	return false
}

// scheduled is when p got its node, or was made.
func scheduled(p *corev1.Pod) time.Time {
	if c := condition(p, corev1.PodScheduled); c != nil && c.Status == corev1.ConditionTrue && !c.LastTransitionTime.IsZero() {
		return c.LastTransitionTime.Time
	}
	return p.CreationTimestamp.Time
}

// unplaced is for a Pod without a container.
func (o *Options) unplaced(s *pods.ContainerState, p *corev1.Pod, now time.Time) {
	s.Phase = pods.PhasePulling
	c := condition(p, corev1.PodScheduled)
	if c == nil || c.Status != corev1.ConditionFalse {
		return
	}
	s.Reason = c.Message
	if now.Sub(p.CreationTimestamp.Time) >= o.Room {
		s.Phase, s.Reason = pods.PhaseFailed, "no node of the host has room: "+c.Message
	}
}

// patience is how long after now p may show another state by the passing of time alone; 0: never.
func (o *Options) patience(p *corev1.Pod, now time.Time) time.Duration {
	if terminal(p) {
		return 0
	}
	if p.Spec.NodeName == "" {
		return max(0, p.CreationTimestamp.Add(o.Room).Sub(now))
	}
	if c := status(p); c != nil && c.State.Waiting != nil {
		if strings.HasSuffix(c.State.Waiting.Reason, "Error") && c.State.Waiting.Reason != "ErrImagePull" && now.Sub(scheduled(p)) < o.Room {
			return scheduled(p).Add(o.Room).Sub(now)
		}
		return max(0, scheduled(p).Add(o.PullPatience).Sub(now))
	}
	return 0
}
