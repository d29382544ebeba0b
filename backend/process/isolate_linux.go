package process

import (
	"io/fs"
	"syscall"
)

const canIsolate = true

// selfPath is the path of this program, valid also when its file was replaced or its directory
// is closed.
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

// inode identifies a file; 0 when that is not known.
func inode(info fs.FileInfo) (dev, ino uint64) {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return 0, 0
	}
	return uint64(st.Dev), st.Ino //nolint:unconvert // narrower on other machines
}

// allocated returns how many bytes of the disk a file uses.
func allocated(info fs.FileInfo) int64 {
	st, _ := info.Sys().(*syscall.Stat_t)
	if st == nil {
		return info.Size()
	}
	return st.Blocks * 512
}
