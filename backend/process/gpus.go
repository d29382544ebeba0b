package process

import (
	"fmt"
	"strings"

	"github.com/podyard/podyard/pods"
)

// checkGPUs returns an error if a GPU of the pod is not there. GPUs without names are not
// checked.
func (r *Runtime) checkGPUs(s pods.Spec) error {
	if len(s.Devices) == 0 && r.opts.GPUs == nil {
		return nil
	}
	if len(s.Devices) != s.GPUs {
		return fmt.Errorf("it is to have %d GPUs, and the host gave it %d", s.GPUs, len(s.Devices))
	}
	if len(s.Devices) == 0 || r.opts.GPUs == nil {
		return nil
	}
	if err := r.opts.GPUs(s.Devices); err != nil {
		return fmt.Errorf("its GPUs are not there: %w", err)
	}
	return nil
}

// gpuEnv returns the variables that say which GPUs the pod has. They override the user's, so
// that a pod cannot choose the GPUs of another pod.
func (r *Runtime) gpuEnv(s pods.Spec) []string {
	if len(s.Devices) > 0 {
		list := strings.Join(s.Devices, ",")
		return []string{"CUDA_VISIBLE_DEVICES=" + list, "NVIDIA_VISIBLE_DEVICES=" + list}
	}
	if r.opts.GPUs != nil {
		// These values mean "none" to CUDA and to containers; not every program takes an empty
		// value for that.
		return []string{"CUDA_VISIBLE_DEVICES=-1", "NVIDIA_VISIBLE_DEVICES=void"}
	}
	return nil
}
