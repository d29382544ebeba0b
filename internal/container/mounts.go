package container

import (
	"path"
	"strings"
)

// MinPersistent is the smallest persistent mount in GB.
const MinPersistent = 10

// Persistent asks for a size and a path of a persistent mount, whose zero values are what
// was left out.
func (v Rules) Persistent(gb int, path string) {
	if gb < MinPersistent || gb > MaxDisk {
		v.Invalid("/mounts/persistent/size", "is required and must be %d to %d GB", MinPersistent, MaxDisk)
	}
	v.MountPath("/mounts/persistent/path", path)
}

// MountPath asks for a path that has one spelling and is not the root.
func (v Rules) MountPath(place, s string) {
	switch {
	case !path.IsAbs(s) || path.Clean(s) != s || s == "/":
		v.Invalid(place, "is required and must be an absolute path without '.', '..', '//' and a last '/', and not '/' itself")
	case strings.ContainsRune(s, 0):
		v.Invalid(place, "must have no NUL byte")
	}
}
