package docker

import "syscall"

// freePercent returns how much of the disk with path is free to users other than root.
func freePercent(path string) (float64, error) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(path, &s); err != nil || s.Blocks == 0 {
		return 100, err
	}
	return 100 * float64(s.Bavail) / float64(s.Blocks), nil
}
