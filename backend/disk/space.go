package disk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

// space measures how much of the file system is free. It measures again after a certain number
// of written bytes, and before every refusal. So work continues as soon as there is room.
type space struct {
	s      *Store
	budget atomic.Int64 // bytes that may be written before the next measurement

	mu   sync.Mutex
	free atomic.Int64 // at the last measurement

	gone atomic.Int64  // deleted bytes whose space the database may still have
	tidy chan struct{} // has one element when tidyLoop has to look
}

// A priority says how much a change matters when space is short.
type priority uint8

const (
	newWork   priority = iota // refused first
	underWay                  // changes of existing records
	deletions                 // never refused, because they free space
)

const (
	ballastName = "ballast"
	// measureEvery is how many bytes are written between two measurements. growth is how much
	// a write grows in the database: it goes into a log, then into a table, then through a
	// compaction.
	measureEvery = 8 << 20
	growth       = 4
)

func (p *space) init(s *Store) { p.s, p.tidy = s, make(chan struct{}, 1) }

// spend counts written bytes.
func (p *space) spend(n int64) { p.budget.Add(-growth * n) }

// check returns nil if there is room for a change of n bytes.
func (p *space) check(n int64, what priority) error {
	keep := p.s.opts.KeepFree
	if keep == 0 || what == deletions {
		return nil
	}
	if what == underWay {
		keep /= 2
	}
	if p.budget.Load() > 0 && p.free.Load()-growth*n >= keep {
		return nil
	}
	free, known := p.measure()
	if !known || free-growth*n >= keep {
		return nil
	}
	return problem.Newf(problem.Unavailable, "the store is short of disk space: %d MiB are free of the %d MiB that are kept free", free>>20, keep>>20)
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
	if p.budget.Load() <= 0 || free-growth*n < 2*keep {
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

// Warning says that the disk is nearly full: those who keep most are refused, and soon everybody.
// It is empty while there is room.
func (s *Store) Warning() string {
	s.space.budget.Store(0)
	left, short := s.space.share(0, newWork)
	if !short {
		return ""
	}
	return fmt.Sprintf("the disk of the store is nearly full: users who keep more than %d MiB of jobs are refused, and everybody when that is 0", left>>20)
}

// measure asks the file system. known is false if the file system does not know.
func (p *space) measure() (free int64, known bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	u, err := p.s.opts.fs.GetDiskUsage(p.s.dir)
	if err != nil {
		if !errors.Is(err, vfs.ErrUnsupported) {
			p.s.opts.Logger.Warn("disk space is not known", "dir", p.s.dir, "err", err)
		}
		p.free.Store(1 << 62)
		p.budget.Store(measureEvery)
		return 0, false
	}
	free = int64(min(u.AvailBytes, 1<<62))
	p.free.Store(free)
	p.budget.Store(measureEvery)
	return free, true
}

func (p *space) ballast() string { return p.s.opts.fs.PathJoin(p.s.dir, ballastName) }

// dropBallast deletes the ballast to free its space.
func (p *space) dropBallast() error {
	err := p.s.opts.fs.Remove(p.ballast())
	if err == nil {
		p.s.opts.Logger.Warn("the ballast was given up for space", "dir", p.s.dir)
	}
	return err
}

// restoreBallast writes the ballast if it is missing and there is plenty of space. A failure
// is only logged, because the store works without ballast.
func (p *space) restoreBallast() {
	size := p.s.opts.Ballast
	if size == 0 || p.present(size) {
		return
	}
	if free, known := p.measure(); !known || free < p.s.opts.KeepFree+2*size {
		return
	}
	if err := p.write(size); err != nil {
		p.s.opts.Logger.Warn("no ballast", "dir", p.s.dir, "err", err)
		_ = p.s.opts.fs.Remove(p.ballast()) // a partial ballast is of no use
	}
}

func (p *space) present(size int64) bool {
	info, err := p.s.opts.fs.Stat(p.ballast())
	return err == nil && info.Size() == size
}

func (p *space) write(size int64) (err error) {
	f, err := p.s.opts.fs.Create(p.ballast(), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("disk: make the ballast: %w", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	// Write zeros: a sparse file would reserve no space.
	block := make([]byte, 1<<20)
	for ; size > 0; size -= int64(len(block)) {
		if _, err := f.Write(block[:min(size, int64(len(block)))]); err != nil {
			return fmt.Errorf("disk: write the ballast: %w", err)
		}
	}
	return f.Sync()
}
