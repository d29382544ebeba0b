package process

import (
	"io/fs"
	"syscall"
)

const canIsolate = true

// selfPath is this program, also when it was replaced or its directory is closed.
const selfPath = "/proc/self/exe"

func ownerOf(info fs.FileInfo) uint32 {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return 0
	}
	return st.Uid
}

func linksOf(info fs.FileInfo) uint64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return 1
	}
	return uint64(st.Nlink) //nolint:unconvert // narrower on other machines
}

// inode tells a file from others; 0 when it cannot be told.
func inode(info fs.FileInfo) (dev, ino uint64) {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return 0, 0
	}
	return uint64(st.Dev), st.Ino //nolint:unconvert // narrower on other machines
}

// allocated is what a file takes of the disk.
func allocated(info fs.FileInfo) int64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return info.Size()
	}
	return st.Blocks * 512
}
