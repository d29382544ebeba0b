//go:build unix

package process

import (
	"golang.org/x/sys/unix"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// A meter measures the directories of a limit.
type meter struct {
	supervise.Walk

	limit         *diskLimit
	bytes, inodes int64
	linked        map[fileID]bool // files with several names, and files that are only open
}

type fileID struct{ dev, ino uint64 }

func newMeter(l *diskLimit) *meter {
	m := &meter{limit: l, linked: map[fileID]bool{}}
	m.Roots = l.Dirs
	m.Visit = func(_ int, _ string, st *unix.Stat_t) error {
		return m.add(st, st.Mode&unix.S_IFMT != unix.S_IFDIR && st.Nlink > 1)
	}
	return m
}

// add counts a file. One that can be met again counts once.
func (m *meter) add(st *unix.Stat_t, again bool) error {
	if again {
		id := fileID{uint64(st.Dev), uint64(st.Ino)} //nolint:unconvert // narrower elsewhere
		if m.linked[id] {
			return nil
		}
		m.linked[id] = true
	}
	m.inodes++
	m.bytes += int64(st.Blocks) * 512 //nolint:unconvert // see above
	if m.bytes > m.limit.Bytes || m.inodes > m.limit.Inodes {
		return errOver
	}
	return nil
}
