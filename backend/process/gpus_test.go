package process

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// shown returns the variables for GPUs that a pod sees.
func shown(t *testing.T, rt *Runtime, s pods.Spec) []string {
	t.Helper()
	s.Image = "args"
	s.Args = []string{"/bin/sh", "-c", `echo "cuda=${CUDA_VISIBLE_DEVICES-unset}"; echo "nvidia=${NVIDIA_VISIBLE_DEVICES-unset}"; echo told`}
	ensure(t, rt, s)
	return awaitLine(t, rt, s.PodID, "told")
}

func TestAPodIsShownItsGPUsAndNoOthers(t *testing.T) {
	suite.SkipUnlessLong(t)
	all := func([]string) error { return nil }
	for name, tt := range map[string]struct {
		gpus func([]string) error
		spec pods.Spec
		want string
	}{
		"devices":                       {nil, pods.Spec{GPUs: 2, Devices: []string{"GPU-b", "GPU-a"}}, "GPU-b,GPU-a"},
		"devices that were asked about": {all, pods.Spec{GPUs: 1, Devices: []string{"GPU-a"}}, "GPU-a"},
		"devices win over its own variables": {
			all, pods.Spec{GPUs: 1, Devices: []string{"GPU-a"}, Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_VISIBLE_DEVICES": "all"}}, "GPU-a"},
		"none of a host without named GPUs": {nil, pods.Spec{}, "unset"},
		"some of a host without named GPUs": {nil, pods.Spec{GPUs: 1}, "unset"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := open(t, t.TempDir(), func(o *Options) { o.GPUs = tt.gpus })
			got := shown(t, rt, spec("gpus", tt.spec))
			if diff := cmp.Diff([]string{"cuda=" + tt.want, "nvidia=" + tt.want}, got); diff != "" {
				t.Errorf("GPUs that are shown (-want +got):\n%s", diff)
			}
		})
	}
	t.Run("none", func(t *testing.T) {
		rt := open(t, t.TempDir(), func(o *Options) { o.GPUs = all })
		got := shown(t, rt, spec("gpus", pods.Spec{Env: map[string]string{"CUDA_VISIBLE_DEVICES": "0"}}))
		if diff := cmp.Diff([]string{"cuda=-1", "nvidia=void"}, got); diff != "" {
			t.Errorf("GPUs that are shown (-want +got):\n%s", diff)
		}
	})
}

func TestAPodWhoseGPUsDidNotArriveFailsAndIsNotStarted(t *testing.T) {
	gone := func(devices []string) error {
		if slices.Contains(devices, "GPU-gone") {
			return errors.New("GPU-gone fell off the bus")
		}
		return nil
	}
	for name, tt := range map[string]struct {
		gpus func([]string) error
		spec pods.Spec
		want string
	}{
		"one is not there":          {gone, pods.Spec{GPUs: 2, Devices: []string{"GPU-a", "GPU-gone"}}, "GPU-gone fell off the bus"},
		"fewer than it is to have":  {nil, pods.Spec{GPUs: 2, Devices: []string{"GPU-a"}}, "2 GPUs, and the host gave it 1"},
		"none where they are named": {gone, pods.Spec{GPUs: 1}, "1 GPUs, and the host gave it 0"},
	} {
		t.Run(name, func(t *testing.T) {
			rt := open(t, t.TempDir(), func(o *Options) { o.GPUs = tt.gpus })
			tt.spec.Image, tt.spec.Args = "self", []string{"run"}
			ensure(t, rt, spec("gpus", tt.spec))
			got := await(t, rt, "gpus", "failure", phase(pods.PhaseFailed))
			if !strings.Contains(got.Reason, tt.want) || !got.Started.IsZero() {
				t.Errorf("started %v, Reason = %q, want it never started and %q", got.Started, got.Reason, tt.want)
			}
		})
	}
}
