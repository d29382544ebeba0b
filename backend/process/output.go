package process

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"
	"time"
	"unicode/utf8"
)

// An output has the lines of one pod, in files of consecutive lines. A line of a file is
//
//	<seq> <unix nanoseconds> <start> <offset> <text>
//
// where start and offset are the place in the raw file behind the text. So one append moves the
// log and the cursor of its reader together: after a crash, no line is lost and none comes
// twice. Within a pod seq has no gaps and time does not go back.
//
// One tail writes; any number of readers read.
type output struct {
	dir      string
	fileSize int64 // of one file, in bytes, about
	maxSize  int64 // of all files

	mu      sync.Mutex
	files   []logFile // oldest first
	next    uint64    // seq of the next line
	last    time.Time // of the last line
	pos     position  // after the last line
	closed  bool
	changed chan struct{} // closed and replaced at each change
}

// A logFile is named by its first line.
type logFile struct {
	first uint64
	at    time.Time // time of its first line
	size  int64     // of its whole lines
}

// A position is a place in the raw output of the pod.
type position struct {
	start  uint64 // number of the start, and of its raw file
	offset int64
}

func newOutput(dir string, keep int64) *output {
	return &output{dir: dir, fileSize: keep / 8, maxSize: keep, next: 1, changed: make(chan struct{})}
}

func (o *output) path(first uint64) string {
	return filepath.Join(o.dir, fmt.Sprintf("%020d", first))
}

// recover reads the files of an earlier server, and cuts off an unfinished line.
func (o *output) recover() error {
	entries, err := os.ReadDir(o.dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	for i, e := range entries { // sorted by name, and so by age
		first, err := strconv.ParseUint(e.Name(), 10, 64)
		if err != nil {
			continue
		}
		// The newest file may have no whole line: then the one before has the last line.
		f, err := o.recoverFile(first, i >= len(entries)-2)
		if err != nil {
			return err
		}
		if f.size > 0 {
			o.files = append(o.files, f)
		}
	}
	return nil
}

// recoverFile reads one file. If all is set, it reads every line and cuts off an unfinished
// one; otherwise it reads the first line only.
func (o *output) recoverFile(first uint64, all bool) (logFile, error) {
	file, err := os.OpenFile(o.path(first), os.O_RDWR, 0)
	if err != nil {
		return logFile{}, err
	}
	defer file.Close()
	f := logFile{first: first}
	r := bufio.NewReaderSize(file, readBuffer)
	for {
		line, err := r.ReadSlice('\n')
		if err != nil {
			break
		}
		fr, ok := parseFrame(line)
		if !ok {
			break
		}
		if f.size == 0 {
			f.at = fr.at
		}
		if !all {
			info, err := file.Stat()
			if err != nil {
				return f, err
			}
			f.size = info.Size()
			return f, nil
		}
		f.size += int64(len(line))
		o.next, o.last, o.pos = fr.seq+1, fr.at, fr.pos
	}
	return f, file.Truncate(f.size)
}

// A frame is one line of a file.
type frame struct {
	seq  uint64
	at   time.Time
	pos  position
	text []byte
}

// readBuffer has room for any frame: maxLine bytes that are not UTF-8 grow threefold.
const readBuffer = 4 * maxLine

func (f frame) appendTo(b []byte) []byte {
	b = strconv.AppendUint(b, f.seq, 10)
	b = strconv.AppendInt(append(b, ' '), f.at.UnixNano(), 10)
	b = strconv.AppendUint(append(b, ' '), f.pos.start, 10)
	b = strconv.AppendInt(append(b, ' '), f.pos.offset, 10)
	b = append(append(b, ' '), f.text...)
	return append(b, '\n')
}

func parseFrame(line []byte) (f frame, ok bool) {
	var n [4]uint64
	for i := range n {
		word, rest, found := bytes.Cut(line, []byte{' '})
		v, err := strconv.ParseUint(string(word), 10, 64)
		if !found || err != nil {
			return frame{}, false
		}
		n[i], line = v, rest
	}
	return frame{
		seq: n[0], at: time.Unix(0, int64(n[1])),
		pos:  position{start: n[2], offset: int64(n[3])},
		text: bytes.TrimSuffix(line, []byte{'\n'}),
	}, true
}

// position returns where to go on reading the raw file of a start.
func (o *output) position(start uint64) position {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.pos.start == start {
		return o.pos
	}
	return position{start: start}
}

// append adds texts as lines of this instant. ends are their end offsets in the raw file.
func (o *output) append(start uint64, texts [][]byte, ends []int64) error {
	o.mu.Lock()
	seq, at, files := o.next, time.Now(), len(o.files)
	if at.Before(o.last) {
		at = o.last
	}
	fresh := files == 0 || o.files[files-1].size >= o.fileSize
	f := logFile{first: seq, at: at}
	if !fresh {
		f = o.files[files-1]
	}
	o.mu.Unlock()

	var b []byte
	for i, text := range texts {
		if !utf8.Valid(text) {
			text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		}
		b = frame{seq + uint64(i), at, position{start, ends[i]}, text}.appendTo(b)
	}
	if err := o.write(f, b); err != nil {
		return err
	}
	f.size += int64(len(b))

	o.mu.Lock()
	if fresh {
		o.files = append(o.files, f)
	} else {
		o.files[files-1] = f
	}
	o.next, o.last = seq+uint64(len(texts)), at
	o.pos = position{start, ends[len(ends)-1]}
	o.notifyLocked()
	o.mu.Unlock()
	return nil
}

// write appends b to the whole lines of f, and overwrites what a failed attempt left there.
func (o *output) write(f logFile, b []byte) error {
	if err := os.MkdirAll(o.dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(o.path(f.first), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = file.Truncate(f.size)
	if err == nil {
		_, err = file.WriteAt(b, f.size)
	}
	return errors.Join(err, file.Close())
}

// trim removes the oldest files until the rest fits into maxSize. The newest file counts with
// its full size from its beginning.
func (o *output) trim() error {
	o.mu.Lock()
	var total int64
	for _, f := range o.files[:max(len(o.files)-1, 0)] {
		total += f.size
	}
	var old []logFile
	for total > o.maxSize-o.fileSize && len(o.files) > 1 {
		old = append(old, o.files[0])
		total -= o.files[0].size
		o.files = slices.Clone(o.files[1:])
	}
	o.mu.Unlock()
	var errs []error
	for _, f := range old {
		errs = append(errs, os.Remove(o.path(f.first)))
	}
	return errors.Join(errs...)
}

// notifyLocked wakes the readers. The caller holds mu.
func (o *output) notifyLocked() {
	close(o.changed)
	o.changed = make(chan struct{})
}

// close ends the readers, because no line will come.
func (o *output) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
	o.notifyLocked()
}
