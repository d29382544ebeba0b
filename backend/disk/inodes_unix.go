//go:build linux || darwin || freebsd

package disk

import "syscall"

// freeInodes returns how many files can still be made on the file system of dir, and how many it
// can have. total is 0 where there is no fixed number, for example on btrfs.
func freeInodes(dir string) (free, total int64) {
	var s syscall.Statfs_t
	if err := syscall.Statfs(dir, &s); err != nil {
		return 0, 0
	}
	return int64(s.Ffree), int64(s.Files)
}
