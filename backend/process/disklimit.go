package process

import (
	"errors"
	"fmt"
	"time"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// A diskLimit is what some directories of a pod may have together.
type diskLimit struct {
	Name   string   `json:"name"` // shown to the pod's user
	Dirs   []string `json:"dirs"`
	Bytes  int64    `json:"bytes"`
	Inodes int64    `json:"inodes"` // files and directories

	moved int // how many measurements, one after the other, have failed because directories were moved
}

const (
	// inodesPerGigabyte is what ext4 has by default, so that a pod can use its share of a disk,
	// and fewInodes is enough for a small disk with many small files.
	inodesPerGigabyte = 1 << 16
	fewInodes         = 1 << 17
)

func newDiskLimit(name string, dirs []string, size int, unit int64) diskLimit {
	inodes := max(int64(size)*inodesPerGigabyte, fewInodes)
	return diskLimit{Name: name, Dirs: dirs, Bytes: int64(size) * unit, Inodes: inodes * unit / gigabyte}
}

const (
	// diskCheck is the least time between two measurements of a disk.
	diskCheck = 5 * time.Second
	// diskStep is for how long a disk is measured without a pause. Each pause is restAfterStep
	// times as long, and that after a measurement restAfterCheck times as long as all its steps, so
	// that trees of millions of files take little of the machine.
	diskStep       = 50 * time.Millisecond
	restAfterStep  = 4
	restAfterCheck = 20
	// movedTries is how often directories may be moved during a measurement, one after the
	// other. A program does that now and then; one that hides what it has does it all the time.
	movedTries = 10
)

var errOver = errors.New("over its limit")

// watchDisk ends x when it exceeds a limit. It returns when x has ended.
func (p *pod) watchDisk(x *proc) {
	for pause := time.Duration(0); len(x.limits) > 0 && x.runsFor(pause); {
		pause = p.r.diskCheck
		for i := range x.limits {
			reason, busy, err := x.measure(&x.limits[i])
			pause = max(pause, restAfterCheck*busy)
			if x.limits[i].hidden(err) {
				reason = fmt.Sprintf("what it has written to its %s cannot be measured: %v", x.limits[i].Name, withoutPaths(err.Error(), err))
			}
			if reason != "" {
				p.do(func() { p.endForDisk(x, reason) })
				return
			}
		}
	}
}

// hidden reports whether a measurement that ended with err lets a pod hide what it has where the
// server cannot look. Each limit counts for itself: that a mount was measured says nothing about the
// disk.
func (l *diskLimit) hidden(err error) bool {
	if !errors.Is(err, supervise.ErrMoved) {
		l.moved = 0
		return err != nil
	}
	l.moved++
	return l.moved >= movedTries
}

// measure returns the reason if a limit is exceeded, otherwise "", and how long its steps took.
func (x *proc) measure(l *diskLimit) (reason string, busy time.Duration, err error) {
	m := newMeter(l)
	for done := false; !done && err == nil; {
		began := time.Now()
		done, err = m.Step(began.Add(diskStep))
		if done && err == nil {
			err = m.addUnlinked(x, began.Add(2*diskStep))
		}
		took := time.Since(began)
		busy += took
		if !done && err == nil && !x.runsFor(restAfterStep*took) {
			m.Close()
			return "", busy, nil
		}
	}
	switch {
	case !errors.Is(err, errOver):
		return "", busy, err
	case m.inodes > l.Inodes:
		return fmt.Sprintf("its %s is full: it holds more than %d files and directories", l.Name, l.Inodes), busy, nil
	}
	return fmt.Sprintf("its %s is full: it holds more than %d MB", l.Name, l.Bytes>>20), busy, nil
}

// endForDisk is the job that ends x after a measurement.
func (p *pod) endForDisk(x *proc, reason string) {
	if p.proc != x {
		return
	}
	if !x.Over() {
		x.failure = reason
		p.terminate(x, 0)
	}
	p.recordExit(x)
}
