package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// files are those of one kind of records: name-000000000001.jsonl and so on. The last one is
// written to. Appends come one at a time; reads come when they like.
type files struct {
	dir, name string
	most      int
	size      int64

	mu      sync.Mutex // numbers
	numbers []int      // of the files that there are
	last    *os.File
	length  int64
	torn    bool // the last line has no end
	missing int  // records that could not be written since the last that could
}

func openFiles(dir, name string, most int, size int64) (*files, error) {
	f := &files{dir: dir, name: name, most: most, size: size}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		var n int
		if _, err := fmt.Sscanf(e.Name(), name+"-%d.jsonl", &n); err == nil && e.Name() == f.base(n) {
			f.numbers = append(f.numbers, n)
		}
	}
	slices.Sort(f.numbers)
	if len(f.numbers) == 0 {
		return f, f.next()
	}
	return f, f.open(f.numbers[len(f.numbers)-1])
}

func (f *files) base(n int) string { return fmt.Sprintf("%s-%012d.jsonl", f.name, n) }

func (f *files) path(n int) string { return filepath.Join(f.dir, f.base(n)) }

// open makes a file the last one.
func (f *files) open(n int) error {
	file, err := os.OpenFile(f.path(n), os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return errors.Join(err, file.Close())
	}
	f.last, f.length, f.torn = file, info.Size(), false
	end := make([]byte, 1)
	if f.length > 0 {
		_, err = file.ReadAt(end, f.length-1)
		f.torn = end[0] != '\n'
	}
	return err
}

// next begins another file and removes the oldest ones.
func (f *files) next() error {
	n := 1
	if len(f.numbers) > 0 {
		n = f.numbers[len(f.numbers)-1] + 1
	}
	full := f.last
	if err := f.open(n); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.numbers = append(f.numbers, n)
	if full != nil {
		_ = errors.Join(full.Sync(), full.Close()) // its lines are with the system, and nothing more can be done for them
	}
	for len(f.numbers) > f.most {
		if err := os.Remove(f.path(f.numbers[0])); err != nil && !errors.Is(err, fs.ErrNotExist) {
			break // the next file tries again
		}
		f.numbers = f.numbers[1:]
	}
	return nil
}

// append adds a line.
func (f *files) append(line []byte) error {
	if f.length > 0 && f.length+int64(len(line)) > f.size {
		if err := f.next(); err != nil {
			return err
		}
	}
	if f.torn {
		line = append([]byte{'\n'}, line...)
	}
	n, err := f.last.Write(line)
	f.length += int64(n)
	f.torn = err != nil && (n > 0 || f.torn)
	return err
}

func (f *files) close() error {
	if f.last == nil {
		return nil
	}
	return errors.Join(f.last.Sync(), f.last.Close())
}

// newest are the newest records that q selects, newest first.
func (f *files) newest(ctx context.Context, q Query) (list []Record, err error) {
	f.mu.Lock()
	numbers := slices.Clone(f.numbers)
	f.mu.Unlock()
	done := false
	for _, n := range slices.Backward(numbers) {
		err := backward(ctx, f.path(n), func(line []byte) bool {
			var r Record
			if json.Unmarshal(line, &r) != nil {
				return true
			}
			if q.matches(&r) {
				list = append(list, r)
			}
			done = len(list) >= q.Limit || q.isPast(&r)
			return !done
		})
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // it was removed meanwhile
			return nil, err
		}
		if done {
			break
		}
	}
	return list, nil
}

// block is how much is read at a time.
const block = 64 << 10

// backward calls fn with the lines of a file, the last one first, until it returns false.
func backward(ctx context.Context, path string, fn func(line []byte) bool) (err error) {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	info, err := file.Stat()
	if err != nil {
		return err
	}
	var rest []byte // the beginning of what was read, whose line may begin before
	for at := info.Size(); at > 0; {
		if err := ctx.Err(); err != nil {
			return err
		}
		n := min(at, block)
		at -= n
		b := make([]byte, n, int(n)+len(rest))
		if _, err := file.ReadAt(b, at); err != nil {
			return err
		}
		rest = append(b, rest...)
		for {
			i := bytes.LastIndexByte(rest, '\n')
			if i < 0 && at > 0 {
				break
			}
			if line := rest[i+1:]; len(line) > 0 && !fn(line) {
				return nil
			}
			if i < 0 {
				return nil
			}
			rest = rest[:i]
		}
	}
	return nil
}
