package process

import (
	"fmt"
	"strings"

	"github.com/podyard/podyard/pods"
)

// checkGPUs is nil when the pod gets the GPUs that it is to have. Where they have no names
// there is nothing to look for.
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

// gpuEnv tells programs which GPUs are theirs. It comes after what users set: another
// pod's are not to be had by their number.
func (r *Runtime) gpuEnv(s pods.Spec) []string {
	if len(s.Devices) > 0 {
		list := strings.Join(s.Devices, ",")
		return []string{"CUDA_VISIBLE_DEVICES=" + list, "NVIDIA_VISIBLE_DEVICES=" + list}
	}
	if r.opts.GPUs != nil {
		// The words that CUDA, and containers, have for none: an empty value is not one to all.
		return []string{"CUDA_VISIBLE_DEVICES=-1", "NVIDIA_VISIBLE_DEVICES=void"}
	}
	return nil
}
