package pods

import (
	"slices"
	"strings"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods/catalog"
)

// cudaVersion is the CUDA version with which a host runs GPUs of a type. GPUs of makers other
// than NVIDIA have none.
func (r *Placer) cudaVersion(h *Host, gpu string) string {
	if t, _ := r.Catalog().GPU(gpu); t.Manufacturer == catalog.AMD {
		return ""
	}
	return h.CUDA
}

// match reports whether a host with this version is allowed. An unknown version is allowed only
// when nothing is asked.
func (c CUDAVersions) match(version string) bool {
	same := func(v string) bool { return container.CompareCUDA(v, version) == 0 }
	switch {
	case len(c.Allowed) > 0:
		return version != "" && slices.ContainsFunc(c.Allowed, same)
	case c.Min != "":
		return version != "" && container.CompareCUDA(version, c.Min) >= 0
	}
	return true
}

// String is the text that follows the name of a GPU; empty when c selects all.
func (c CUDAVersions) String() string {
	switch {
	case len(c.Allowed) > 0:
		return " with CUDA " + strings.Join(c.Allowed, " or ")
	case c.Min != "":
		return " with CUDA " + c.Min + " or later"
	}
	return ""
}

// CompareCUDA compares two versions number by number: 12.11 is above 12.2.
func CompareCUDA(a, b string) int { return container.CompareCUDA(a, b) }
