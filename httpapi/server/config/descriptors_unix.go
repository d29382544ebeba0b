//go:build unix

package config

import "syscall"

// descriptors returns how many files this process may have open; 0: unknown.
func descriptors() int {
	var r syscall.Rlimit
	if syscall.Getrlimit(syscall.RLIMIT_NOFILE, &r) != nil {
		return 0
	}
	return int(min(uint64(r.Cur), 1<<30)) //nolint:unconvert // on other systems it is signed
}
