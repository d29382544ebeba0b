package disk

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/problem"
)

// space watches how much of the file system is free. It asks again whenever as much was
// written as may matter, and at every refusal: work goes on as soon as there is room.
type space struct {
	s      *Store
	budget atomic.Int64 // bytes that may be written before asking again

	mu   sync.Mutex
	free atomic.Int64 // when it was last asked
}

// A priority says how much a change matters when space is short.
type priority uint8

const (
	newWork   priority = iota // refused first
	underWay                  // moves of what is there
	deletions                 // always taken: they make room
)

const (
	ballastName = "ballast"
	// measureEvery bounds how long space goes unasked. What is written grows in the database:
	// a log, then a table, then a compaction.
	measureEvery = 8 << 20
	growth       = 4
)

func (p *space) init(s *Store) { p.s = s }

// spend notes what was written.
func (p *space) spend(n int64) { p.budget.Add(-growth * n) }

// check is nil if there is room for a change of n bytes.
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

// Ready is nil while the store takes new work, and otherwise why it does not: what Err
// answers, or that the disk is short of space.
func (s *Store) Ready() error {
	if err := s.Err(); err != nil {
		return err
	}
	s.space.budget.Store(0) // others write to the disk, too
	return s.space.check(0, newWork)
}

// measure asks the file system. Not every one knows.
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

// dropBallast gives the ballast up.
func (p *space) dropBallast() error {
	err := p.s.opts.fs.Remove(p.ballast())
	if err == nil {
		p.s.opts.Logger.Warn("the ballast was given up for space", "dir", p.s.dir)
	}
	return err
}

// restoreBallast writes the ballast if it is not there and room is plenty. It is only for bad
// times: without it the store works all the same.
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
		_ = p.s.opts.fs.Remove(p.ballast()) // half of one is of no use
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
	// Zeros that are written: a hole would hold no room.
	block := make([]byte, 1<<20)
	for ; size > 0; size -= int64(len(block)) {
		if _, err := f.Write(block[:min(size, int64(len(block)))]); err != nil {
			return fmt.Errorf("disk: write the ballast: %w", err)
		}
	}
	return f.Sync()
}
