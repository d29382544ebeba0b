package kube

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podyard/podyard/pods"
)

// at is when the Pods of these tests were made.
var at = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func observed(p *corev1.Pod, after time.Duration) pods.ContainerState {
	p.CreationTimestamp = metav1.NewTime(at)
	o := (&Options{Instance: "test"}).withDefaults()
	return o.observe(p, pods.ContainerState{PodID: "a", Gen: 1, Run: 1, Phase: pods.PhaseHealthy}, at.Add(after))
}

func TestTheEndOfAPodThatOthersDeleteIsNoExitOfItsOwn(t *testing.T) {
	p := &corev1.Pod{}
	now := metav1.NewTime(at)
	p.DeletionTimestamp = &now
	terminate(p, 143, "Error")
	if got := observed(p, time.Second); got.Phase != pods.PhaseExited || !got.Stopped || got.ExitCode != 143 || got.Reason != deletedByOthers {
		t.Errorf("state is %+v, want it stopped with code 143 and a reason", got)
	}
}

func TestAContainerThatCannotBeMadeYetIsTriedFor10Seconds(t *testing.T) {
	for _, reason := range []string{"CreateContainerConfigError", "CreateContainerError"} {
		p := &corev1.Pod{}
		setContainer(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: "couldn't find key env-1-2-0 in Secret"}})
		p.Spec.NodeName = "node"
		if got := observed(p, time.Second); got.Phase != pods.PhasePulling || got.Reason == "" {
			t.Errorf("%s after 1 s is %+v, want pulling with a reason", reason, got)
		}
		o := (&Options{Instance: "test"}).withDefaults()
		if wait := o.patience(p, at.Add(time.Second)); wait != 9*time.Second {
			t.Errorf("%s: it is looked at again in %v, want 9 s", reason, wait)
		}
		if got := observed(p, 10*time.Second); got.Phase != pods.PhaseFailed {
			t.Errorf("%s after 10 s is %+v, want failed", reason, got)
		}
	}
}

func TestANodeThatDoesNotAnswerIsTold(t *testing.T) {
	p := &corev1.Pod{Status: corev1.PodStatus{Phase: corev1.PodRunning}}
	setContainer(p, corev1.ContainerState{Running: &corev1.ContainerStateRunning{}})
	for ready, want := range map[corev1.ConditionStatus]string{corev1.ConditionTrue: "", corev1.ConditionFalse: "its node does not answer"} {
		// The cluster marks the Pod as not ready; that its containers are is the last that the kubelet said.
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}, {Type: corev1.ContainersReady, Status: corev1.ConditionTrue}}
		if got := observed(p, time.Minute); got.Phase != pods.PhaseHealthy || got.Reason != want {
			t.Errorf("ready %s is %+v, want healthy with the reason %q", ready, got, want)
		}
	}
}

func TestANumberInTheNameOfAnImageIsNoRefusal(t *testing.T) {
	for message, want := range map[string]bool{
		"failed to pull registry.test/tool:1.403: connection reset":             false,
		"failed to resolve registry.test/tool: unexpected status: 503":          false,
		"failed to authorize: failed to fetch oauth token: 401 Unauthorized":    true,
		"failed to resolve registry.test/tool:1: registry.test/tool: not found": true,
	} {
		if got := hopeless(message); got != want {
			t.Errorf("hopeless(%q) = %t, want %t", message, got, want)
		}
	}
}

// A Pod may wait for long, for a scheduler or while its image comes: then only a change is a reason to look.
func TestNoTimeIsLookedAtOnceItHasPassed(t *testing.T) {
	o := (&Options{Instance: "test"}).withDefaults()
	p := &corev1.Pod{}
	p.CreationTimestamp = metav1.NewTime(at)
	want := func(what string, after, want time.Duration) {
		t.Helper()
		if got := o.patience(p, at.Add(after)); got != want {
			t.Errorf("%s, %v after it was made: look again in %v, want %v", what, after, got, want)
		}
	}
	want("without a node", o.Room-time.Second, time.Second)
	want("without a node", o.Room, 0)
	want("without a node", time.Hour, 0)
	p.Spec.NodeName = "node"
	setContainer(p, corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})
	want("with an image that comes", o.PullPatience-time.Second, time.Second)
	want("with an image that comes", time.Hour, 0)
}
