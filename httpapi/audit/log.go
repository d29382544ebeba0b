package audit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"time"
)

// Options of a Log. Nil is all defaults.
type Options struct {
	// Files is how many files there are of refusals, and how many of changes. The oldest one
	// is removed. Default 10.
	Files int
	// FileBytes is from which size on a file is followed by another. Default 10 MiB.
	FileBytes int64
	// Logger gets one line when records cannot be written. Default: nothing is logged.
	Logger *slog.Logger
}

// The defaults of Options.
const (
	DefaultFiles     = 10
	DefaultFileBytes = 10 << 20
)

// A Log keeps records in the files of a directory. It is safe for concurrent use.
//
// A line is handed to the operating system before Record returns, and is not synced: it
// outlives the program, and may be lost with the machine.
type Log struct {
	dir   string
	o     Options
	limit limiter

	mu     sync.Mutex // files
	series [2]*files  // refusals, changes
	last   time.Time
	closed bool
}

var _ Trail = (*Log)(nil)

// Open opens the log in a directory, which is made with mode 0700 if it is not there. The
// caller closes it. A directory belongs to one log at a time.
func Open(dir string, o *Options) (*Log, error) {
	l := &Log{dir: dir}
	if o != nil {
		l.o = *o
	}
	if l.o.Files <= 0 {
		l.o.Files = DefaultFiles
	}
	if l.o.FileBytes <= 0 {
		l.o.FileBytes = DefaultFileBytes
	}
	if l.o.Logger == nil {
		l.o.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("audit: %w", err)
	}
	for i, name := range [...]string{"refusals", "changes"} {
		f, err := openFiles(dir, name, l.o.Files, l.o.FileBytes)
		if err != nil {
			return nil, errors.Join(fmt.Errorf("audit: %w", err), l.Close())
		}
		l.series[i] = f
	}
	return l, nil
}

// Record implements Trail.
func (l *Log) Record(r Record) {
	var before []Record
	keep := true
	if r.Kind == Refusal {
		keep, before = l.limit.admit(r.Time, r.Source)
	}
	if keep {
		before = append(before, r)
	}
	for i := range before {
		l.write(&before[i])
	}
}

// write adds a line. The first failure is logged; the first success after it is followed by
// a line that counts the failures.
func (l *Log) write(r *Record) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	f := l.series[series(r.Kind)]
	r.Time = after(&l.last, r.Time)
	err := f.append(line(r))
	if err == nil && f.missing > 0 {
		lost := Record{Time: after(&l.last, r.Time), Kind: Dropped, Dropped: f.missing}
		if f.append(line(&lost)) == nil {
			f.missing = 0
		}
	}
	if err == nil {
		return
	}
	if f.missing++; f.missing == 1 {
		l.o.Logger.Error("audit: records cannot be written, and requests go on without", "err", err)
	}
}

// Read implements Trail. What is not a record, as after a crash, is left out.
func (l *Log) Read(ctx context.Context, q Query) ([]Record, error) {
	for _, r := range l.limit.report() {
		l.write(&r)
	}
	var list []Record
	for _, f := range l.series {
		found, err := f.newest(ctx, q)
		if err != nil {
			return nil, fmt.Errorf("audit: read: %w", err)
		}
		list = append(list, found...)
	}
	return newest(list, q.Limit), nil
}

// Close writes what is due and syncs. Records that come later are not kept.
func (l *Log) Close() error {
	for _, r := range l.limit.end(time.Time{}) {
		l.write(&r)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	var errs []error
	for _, f := range l.series {
		if f != nil {
			errs = append(errs, f.close())
		}
	}
	return errors.Join(errs...)
}
