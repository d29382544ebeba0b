package templates

import (
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
)

// check adds faults of the values of s to v. A new template must have a name and an image.
func (s *Settings) check(v container.Rules, isNew bool) {
	if isNew && s.Name == nil {
		v.Invalid("/name", "is required")
	}
	if isNew && s.Image == nil {
		v.Invalid("/image", "is required")
	}
	v.SetFields(s.Name, s.Image, s.command(), s.Disk)
	v.Ports(s.Ports)
	v.Env(s.Env)
	if m := s.Persistent; m != nil {
		v.PersistentMount(m.Size, m.Path)
	}
	if c := s.Category; c != nil && *c != CPU && *c != NVIDIA && *c != AMD {
		v.Add(problem.Invalid, "/category", "must be one of %s, %s, %s", CPU, NVIDIA, AMD)
	}
	v.CUDAVersions("/allowedCudaVersions", s.AllowedCUDAVersions)
}
