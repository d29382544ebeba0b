package disk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// space measures how much of the file system is free: bytes and inodes. It measures again after a
// certain number of written bytes, when the last measurement is old, and before every refusal. So
// work continues as soon as there is room.
type space struct {
	s       *Store
	reserve spares
	budget  atomic.Int64 // bytes that may be written before the next measurement

	mu    sync.Mutex
	free  atomic.Int64 // at the last measurement
	files atomic.Pointer[inodes]
	at    atomic.Int64 // when that was, in nanoseconds

	// What waits for room in the files of the database: see fence.change.
	waiting     atomic.Int64          // operations
	waitingLogs atomic.Int64          // those of them without which nothing can be changed
	cause       atomic.Pointer[error] // of the last one that waited

	gone atomic.Int64  // deleted bytes whose space the database may still have
	tidy chan struct{} // has one element when tidyLoop has to look
}

// inodes are those of the file system. total is 0 if their number is not limited.
type inodes struct{ free, total, keep int64 }

// A priority says how much a change matters when space is short.
type priority uint8

const (
	newWork   priority = iota // refused first
	underWay                  // changes of existing records
	deletions                 // never refused, because they free space
)

const (
	// measureEvery is how many bytes are written between two measurements. growth is how much
	// a write grows in the database: it goes into a log, then into a table, then through a
	// compaction.
	measureEvery = 8 << 20
	growth       = 4
	// measureAfter is how old a measurement may be, because other programs fill the disk, too.
	measureAfter = 100 * time.Millisecond
	// keepInodes is how many inodes must stay free, as Options.KeepFree for bytes: less on a file
	// system with few.
	keepInodes = 1000
)

func (p *space) init(s *Store) {
	p.s, p.tidy = s, make(chan struct{}, 1)
	p.reserve.init(s)
}

// spend counts written bytes.
func (p *space) spend(n int64) { p.budget.Add(-growth * n) }

// measured reports whether the last measurement still holds.
func (p *space) measured() bool {
	age := p.s.opts.Clock.Now().UnixNano() - p.at.Load()
	return p.budget.Load() > 0 && age >= 0 && age < int64(measureAfter)
}

// check returns nil if there is room for a change of n bytes.
func (p *space) check(n int64, what priority) error {
	if err := p.mustWait(what); err != nil {
		return err
	}
	keep := p.s.opts.KeepFree
	if keep == 0 || what == deletions {
		return nil
	}
	if what == underWay {
		keep /= 2
	}
	if p.measured() && p.free.Load()-growth*n >= keep && p.enoughInodes(what) == nil {
		return nil
	}
	free, known := p.measure()
	if known && free-growth*n < keep {
		return problem.Newf(problem.Unavailable, "the store is short of disk space: %d MiB are free of the %d MiB that are kept free", free>>20, keep>>20)
	}
	return p.enoughInodes(what)
}

// enoughInodes is check for the inodes of the last measurement.
func (p *space) enoughInodes(what priority) error {
	x := p.inodes()
	if what == underWay {
		x.keep /= 2
	}
	if x.total == 0 || x.free >= x.keep {
		return nil
	}
	return problem.Newf(problem.Unavailable, "the store is short of disk space: the file system has no inodes left for more files: %d are free of the %d that are kept free", x.free, x.keep)
}

// mustWait returns an error while changes that matter so much would wait for room.
func (p *space) mustWait(what priority) error {
	if p.waitingLogs.Load() == 0 && (what == deletions || p.waiting.Load() == 0) {
		return nil
	}
	return problem.Newf(problem.Unavailable, "the store is short of disk space, and waits until there is room: %w", *p.cause.Load())
}

// waits notes that an operation waits for room, until the returned function is called.
func (p *space) waits(log bool, cause error) (goesOn func()) {
	p.cause.Store(&cause)
	if p.waiting.Add(1) == 1 {
		p.s.opts.Logger.Error("the store waits for disk space", "dir", p.s.dir, "err", cause)
	}
	if log {
		p.waitingLogs.Add(1)
	}
	return func() {
		if log {
			p.waitingLogs.Add(-1)
		}
		if p.waiting.Add(-1) == 0 {
			p.s.opts.Logger.Info("the store has disk space again", "dir", p.s.dir)
		}
	}
}

// pause waits for d.
func (p *space) pause(d time.Duration) {
	wake := make(chan struct{})
	p.s.opts.Clock.AfterFunc(p.s.opts.Clock.Now().Add(d), func() { close(wake) })
	<-wake
}

// within calls check with the limits of a user that hold for a change of n bytes. While the disk
// is nearly full, a user may keep no more bytes of jobs than are left of the disk: so those who
// keep most are refused first, and those who keep little go on until newWork is refused for all.
func (p *space) within(l *budget.Limits, n int64, what priority, check func(*budget.Limits) error) error {
	share, short := p.share(n, what)
	if !short || l.JobBytes > 0 && l.JobBytes <= share {
		return check(l)
	}
	own := *l
	own.JobBytes = max(share, 1)
	err := check(&own)
	var full *budget.Error
	if errors.As(err, &full) && full.Budget == budget.JobBytes {
		full.Short = true
	}
	return err
}

// share returns how many bytes are left for changes that matter so much, if the disk is nearly
// full.
func (p *space) share(n int64, what priority) (left int64, short bool) {
	keep := p.s.opts.KeepFree
	if keep == 0 {
		return 0, false
	}
	free := p.free.Load()
	if !p.measured() || free-growth*n < 2*keep {
		var known bool
		if free, known = p.measure(); !known {
			return 0, false
		}
	}
	if free -= growth * n; free >= 2*keep {
		return 0, false
	}
	p.wakeTidy()
	if what == underWay {
		keep /= 2
	}
	return max(free-keep, 0), true
}

// short reports whether the disk is nearly full.
func (p *space) short() bool {
	_, short := p.share(0, newWork)
	return short
}

// Ready returns nil while the store accepts new work. Otherwise it returns the error of Err,
// or an error that says that the disk has too little free space.
func (s *Store) Ready() error {
	if err := s.Err(); err != nil {
		return err
	}
	s.space.budget.Store(0) // other programs write to the disk, too
	return s.space.check(0, newWork)
}

// Short reports whether the store refuses new work because the disk has too little free space.
func (s *Store) Short() bool { return s.Err() == nil && s.space.check(0, newWork) != nil }

// Warning says that the disk is nearly full: those who keep most are refused, and soon everybody.
// It is empty while there is room.
func (s *Store) Warning() string {
	s.space.budget.Store(0)
	left, short := s.space.share(0, newWork)
	if x := s.space.inodes(); x.total > 0 && x.free < 2*x.keep {
		return fmt.Sprintf("the file system of the store has few inodes left: %d; new work is refused when fewer than %d are free", x.free, x.keep)
	}
	if !short {
		return ""
	}
	return fmt.Sprintf("the disk of the store is nearly full: users who keep more than %d MiB of jobs are refused, and everybody when that is 0", left>>20)
}

// measure asks the file system. known is false if the file system does not know.
func (p *space) measure() (free int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	defer p.budget.Store(measureEvery)
	p.at.Store(p.s.opts.Clock.Now().UnixNano())
	left, total := p.s.opts.inodes(p.s.dir)
	p.files.Store(&inodes{left, total, min(keepInodes, total/20)})
	u, err := p.s.opts.fs.GetDiskUsage(p.s.dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) {
			p.s.opts.Logger.Warn("disk space is not known", "dir", p.s.dir, "err", err)
		}
		p.free.Store(1 << 62)
		return 0, false
	}
	free = int64(min(u.AvailBytes, 1<<62))
	p.free.Store(free)
	return free, true
}

// inodes returns those of the last measurement.
func (p *space) inodes() inodes {
	if x := p.files.Load(); x != nil {
		return *x
	}
	return inodes{}
}
