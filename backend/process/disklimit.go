package process

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"
)

// A diskLimit is the most bytes that some directories of a pod may have together.
type diskLimit struct {
	Name  string   `json:"name"` // shown to the pod's user
	Dirs  []string `json:"dirs"`
	Bytes int64    `json:"bytes"`
}

// defaultDiskCheck is the least time between two measurements of a disk.
const defaultDiskCheck = 5 * time.Second

// restAfterCheck bounds the share of time for measuring: the pause is at least this many times
// as long as the last measurement.
const restAfterCheck = 20

// exceeded returns the reason if a limit is exceeded, otherwise "".
func exceeded(limits []diskLimit) (reason string) {
	for _, l := range limits {
		used, err := measure(l.Dirs)
		switch {
		case err != nil:
			// A pod could hide data below paths that are too long for the system.
			return fmt.Sprintf("what it has written to its %s cannot be measured: %v", l.Name, withoutPaths(err.Error(), err))
		case used > l.Bytes:
			return fmt.Sprintf("its %s is full: it holds %d MB, and %d MB is the limit", l.Name, used>>20, l.Bytes>>20)
		}
	}
	return ""
}

// measure returns how many bytes of the disk the files below dirs use. A file with several
// names counts once.
func measure(dirs []string) (bytes int64, err error) {
	type file struct{ dev, ino uint64 }
	seen := map[file]bool{}
	for _, dir := range dirs {
		err := filepath.WalkDir(dir, func(_ string, d fs.DirEntry, err error) error {
			var info fs.FileInfo
			if err == nil {
				info, err = d.Info()
			}
			if errors.Is(err, fs.ErrNotExist) {
				return nil // it was removed meanwhile
			}
			if err != nil {
				return err
			}
			if linksOf(info) > 1 && !info.IsDir() {
				dev, ino := inode(info)
				if seen[file{dev, ino}] {
					return nil
				}
				seen[file{dev, ino}] = true
			}
			bytes += allocated(info)
			return nil
		})
		if err != nil {
			return bytes, err
		}
	}
	return bytes, nil
}

// watchDisk ends x when it exceeds a disk limit. It returns when x has ended.
func (p *pod) watchDisk(x *proc) {
	if len(x.limits) == 0 {
		return
	}
	least := p.r.policy.Load().isolator.diskCheck()
	for pause := time.Duration(0); x.runsFor(pause); {
		began := time.Now()
		if reason := exceeded(x.limits); reason != "" {
			p.jobs.Do(func() { p.endForDisk(x, reason) })
			return
		}
		pause = max(least, restAfterCheck*time.Since(began))
	}
}

// endForDisk is the job that ends x after a measurement.
func (p *pod) endForDisk(x *proc, reason string) {
	if p.proc != x {
		return
	}
	if !x.ended() {
		x.failure = reason
		p.terminate(x, 0)
	}
	p.recordExit(x)
}
