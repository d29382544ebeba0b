package pods_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func TestAVolumeIsInUseUntilTheHostConfirmsThatNothingOfATerminatedPodIsLeft(t *testing.T) {
	failing := &failingRemove{}
	w := newTestEnv(t, func(c *envConfig) {
		withDependencies(c)
		c.hosts = func(rt pods.Runtime) []pods.Host {
			failing.Runtime = rt
			return pods.SimulatedHosts(c.catalog, failing)
		}
	})
	r := cpuPod()
	r.Mounts.Network = []pods.NetworkMount{{VolumeID: "vol", Path: "/v"}}
	p := w.running(r)
	used := func(when string, want bool) {
		t.Helper()
		got, err := pods.References{Pods: w.store}.VolumeInUse(t.Context(), alice, "vol")
		if got != want || err != nil {
			t.Errorf("VolumeInUse %s = %t, %v, want %t", when, got, err, want)
		}
	}
	used("of a running pod", true)
	failing.err = errors.New("the host is away")
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	used("of a pod that was terminated just now", true)
	w.advance(time.Minute)
	used("of a terminated pod whose host is away", true)
	failing.err = nil
	w.advance(10 * time.Minute)
	used("of a pod that was removed", false)
}

func TestAVolumeOfATerminatedPodThatNeverHadAPlaceIsNotInUse(t *testing.T) {
	w := newTestEnv(t, func(c *envConfig) {
		withDependencies(c)
		c.options.WaitForCapacity = true
		c.hosts = func(pods.Runtime) []pods.Host { return nil }
	})
	r := cpuPod()
	r.Mounts.Network = []pods.NetworkMount{{VolumeID: "vol", Path: "/v"}}
	p := w.create(r)
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	if got, err := (pods.References{Pods: w.store}).VolumeInUse(t.Context(), alice, "vol"); got || err != nil {
		t.Errorf("VolumeInUse = %t, %v, want false: nothing of the pod is on a host", got, err)
	}
}

// A failingRemove is a runtime that does not take the call to remove a pod.
type failingRemove struct {
	pods.Runtime
	err error
}

func (f *failingRemove) Remove(ctx context.Context, id string, grace time.Duration) error {
	if f.err != nil {
		return f.err
	}
	return f.Runtime.Remove(ctx, id, grace)
}
