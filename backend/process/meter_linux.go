package process

import (
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// addUnlinked counts files that x has open or mapped and that have no name any more: they use the
// disk all the same. It looks at them until a deadline.
func (m *meter) addUnlinked(x *proc, deadline time.Time) error {
	var disk unix.Stat_t
	if err := unix.Stat(m.limit.Dirs[0], &disk); err != nil {
		return nil //nolint:nilerr // the pod is being removed
	}
	pids, err := x.PIDs()
	if err != nil {
		return err
	}
	for _, pid := range pids {
		for _, list := range []string{"/fd/", "/map_files/"} {
			dir := "/proc/" + strconv.Itoa(pid) + list
			f, err := os.Open(dir)
			if err != nil {
				continue // it has ended, or its files are for root to see
			}
			for more := true; more && time.Now().Before(deadline); {
				names, _ := f.Readdirnames(256)
				more = len(names) > 0
				for _, name := range names {
					var st unix.Stat_t
					if unix.Stat(dir+name, &st) != nil || st.Nlink > 0 || st.Dev != disk.Dev || st.Mode&unix.S_IFMT != unix.S_IFREG {
						continue
					}
					if err := m.add(&st, true); err != nil {
						_ = f.Close() // it was only read
						return err
					}
				}
			}
			_ = f.Close() // it was only read
		}
	}
	return nil
}
