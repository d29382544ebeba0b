package process

import (
	"bytes"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"time"
	"unicode/utf8"
)

// Intervals at which the tail reads the raw file: the shorter one while there is output. No way
// to wait for more works on every system.
const (
	tailBusyInterval = 5 * time.Millisecond
	tailIdleInterval = 160 * time.Millisecond
)

// A longer line is stored as several.
const maxLine = 16 << 10

// tailBuffer is the memory for reading the output of a pod.
const tailBuffer = 64 << 10

// punchHoleSize is how much of a raw file is freed at a time.
const punchHoleSize = 1 << 20

// A tail moves what the processes of one start write from their raw file to the output of the
// pod. It keeps nothing in memory between two reads: an unfinished line is read again.
type tail struct {
	out     *output
	raw     *os.File // nil: there is nothing to read
	pos     position // up to where it is moved
	log     *slog.Logger
	punched int64 // up to where it is freed
}

// openRaw opens a raw file for reading, and for freeing what was read.
func openRaw(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
}

// run returns when ended is closed and everything is moved; it has removed the raw file then.
func (t *tail) run(ended <-chan struct{}) {
	if t.raw == nil {
		<-ended
		return
	}
	buf := make([]byte, tailBuffer)
	pause, failed := tailBusyInterval, false
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for final := false; !final; {
		select {
		case <-ended:
			final = true
		case <-timer.C:
		}
		moved, err := t.drain(buf, final)
		if err != nil && !failed {
			t.log.Error("process: output of a pod cannot be kept", "err", err)
		}
		failed = err != nil
		pause = min(2*pause, tailIdleInterval)
		if moved {
			pause = tailBusyInterval
		}
		timer.Reset(pause)
	}
	if err := errors.Join(t.raw.Close(), os.Remove(t.raw.Name())); err != nil {
		t.log.Error("process: raw output cannot be removed", "err", err)
	}
}

// drain moves what is there. If final is set, an unfinished line counts as a line, and later
// output is ignored, because a process that was not found may write forever.
func (t *tail) drain(buf []byte, final bool) (moved bool, err error) {
	end := int64(math.MaxInt64)
	if final {
		info, err := t.raw.Stat()
		if err != nil {
			return false, err
		}
		end = info.Size()
	}
	for {
		room := max(min(end-t.pos.offset, int64(len(buf))), 0)
		n, err := t.raw.ReadAt(buf[:room], t.pos.offset)
		if err != nil && !errors.Is(err, io.EOF) {
			return moved, err
		}
		texts, ends := split(buf[:n], t.pos.offset, final && (err != nil || t.pos.offset+int64(n) >= end))
		if len(texts) == 0 {
			return moved, nil
		}
		if err := t.out.append(t.pos.start, texts, ends); err != nil {
			return moved, err
		}
		t.pos.offset, moved = ends[len(ends)-1], true
		t.punchRead()
		if err := t.out.trim(); err != nil {
			return moved, err
		}
	}
}

// punchRead frees the disk space of what is moved, where the file system can do that while
// others write. Truncating the file would lose what is written meanwhile.
func (t *tail) punchRead() {
	if upTo := t.pos.offset &^ (punchHoleSize - 1); upTo > t.punched && punchFile(t.raw, t.punched, upTo-t.punched) == nil {
		t.punched = upTo
	}
}

// split splits b, which is at offset of its file, into lines without their ends, and returns
// the end of each in the file. It leaves an unfinished line, unless it is too long or all is
// set.
func split(b []byte, offset int64, all bool) (texts [][]byte, ends []int64) {
	for len(b) > 0 {
		n := bytes.IndexByte(b, '\n')
		text, size := b, len(b)
		switch {
		case n >= 0 && n <= maxLine:
			text, size = bytes.TrimSuffix(b[:n], []byte{'\r'}), n+1
		case len(b) > maxLine:
			size = runeEnd(b, maxLine)
			text = b[:size]
		case !all:
			return texts, ends
		}
		b, offset = b[size:], offset+int64(size)
		texts, ends = append(texts, text), append(ends, offset)
	}
	return texts, ends
}

// runeEnd returns the last end of a rune up to n, or n where b is not UTF-8.
func runeEnd(b []byte, n int) int {
	for i := n; i > n-utf8.UTFMax; i-- {
		if utf8.RuneStart(b[i]) {
			return i
		}
	}
	return n
}
