//go:build unix

package process

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// give makes a user the owner of the pod's directories. What is in them follows in the background,
// where they were another user's before.
func (p *pod) give(dirs []string, id *supervise.Identity) error {
	if os.Geteuid() != 0 {
		return nil // the pod has the server's user
	}
	if id == nil {
		id = &supervise.Identity{}
	}
	var todo []string
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil {
			return err
		}
		was := ownerOf(info)
		if err := os.Chown(dir, int(id.UID), int(id.GID)); err != nil {
			return err
		}
		if was != id.UID || p.rec.Starts > 0 && (p.rec.User == nil || *p.rec.User != id.UID) {
			todo = append(todo, dir)
		}
	}
	if len(todo) == 0 {
		p.rec.User = &id.UID
		return nil
	}
	p.rec.User = nil
	p.r.start(func() { p.giveAll(todo, *id) })
	return nil
}

func ownerOf(info fs.FileInfo) uint32 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return st.Uid
	}
	return 0
}

// giveAll makes a user the owner of everything below dirs. When it does not come to the end, the
// next start does it again.
func (p *pod) giveAll(dirs []string, id supervise.Identity) {
	w := supervise.Walk{Roots: dirs, Visit: func(dir int, name string, st *unix.Stat_t) error {
		// A second name of the file may be in a directory of another.
		if st.Uid == id.UID || st.Mode&unix.S_IFMT == unix.S_IFREG && st.Nlink > 1 {
			return nil
		}
		err := unix.Fchownat(dir, name, int(id.UID), int(id.GID), unix.AT_SYMLINK_NOFOLLOW)
		if errors.Is(err, syscall.ENOENT) {
			err = nil // it was removed meanwhile
		}
		return err
	}}
	for {
		done, err := w.Step(time.Now().Add(diskStep))
		switch {
		case err != nil:
			p.r.opts.Logger.Error("process: files of a pod cannot be given to its user", "pod", p.id, "err", err)
			return
		case done:
			p.do(func() {
				p.rec.User = &id.UID
				p.save()
			})
			return
		}
		select {
		case <-p.over:
			w.Close()
			return
		case <-p.r.closing:
			w.Close()
			return
		case <-time.After(diskStep):
		}
	}
}
