package process

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/podyard/podyard/backend/process/internal/supervise"
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

// devices returns the device files of the GPUs that a pod sees in bubblewrap.
func (r *Runtime) devices(s pods.Spec) []string {
	all, _ := filepath.Glob("/dev/nvidia*") // the pattern is good
	if len(s.Devices) == 0 && r.opts.GPUs != nil {
		return nil
	}
	found, minors := 0, map[string]bool{}
	infos, _ := filepath.Glob("/proc/driver/nvidia/gpus/*/information") // see above
	for _, path := range infos {
		info, err := supervise.ReadBounded(path)
		if err != nil {
			continue
		}
		values := map[string]string{}
		for line := range strings.Lines(string(info)) {
			name, value, _ := strings.Cut(line, ":")
			values[strings.TrimSpace(name)] = strings.TrimSpace(value)
		}
		given := slices.Contains(s.Devices, values["GPU UUID"])
		minors["/dev/nvidia"+values["Device Minor"]] = given
		if given {
			found++
		}
	}
	if found < len(s.Devices) { // parts of GPUs, for example: only the environment says which
		return all
	}
	return slices.DeleteFunc(all, func(path string) bool {
		given, isGPU := minors[path]
		return r.opts.GPUs != nil && isGPU && !given
	})
}
