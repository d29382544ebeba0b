package container

import (
	"path"
	"strings"
)

// MinPersistentSize is the smallest persistent mount in GB.
const MinPersistentSize = 10

// PersistentMount requires a size and a path of a persistent mount. A zero value means that
// it is missing.
func (v Rules) PersistentMount(gb int, path string) {
	if gb < MinPersistentSize || gb > MaxDisk {
		v.Invalid("/mounts/persistent/size", "must be %d to %d GB", MinPersistentSize, MaxDisk)
	}
	v.MountPath("/mounts/persistent/path", path)
}

// MountPath requires a path in its only valid spelling, other than the root.
func (v Rules) MountPath(place, s string) {
	switch {
	case !path.IsAbs(s) || path.Clean(s) != s || s == "/":
		v.Invalid(place, "must be an absolute path without '.', '..', '//' and a last '/', and not '/' itself")
	case strings.ContainsRune(s, 0):
		v.Invalid(place, "must have no NUL byte")
	}
}
