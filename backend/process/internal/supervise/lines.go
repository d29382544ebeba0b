package supervise

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/podyard/podyard/internal/podhost"
)

// The log of a pod is a directory of files of consecutive lines, each file named by its first
// line. A line of a file is
//
//	<seq> <unix nanoseconds> <text>
//
// Within a pod seq has no gaps and time does not go back. One supervisor writes; any number of
// readers read. Only the supervisor and the server reach these files: the pod has a pipe.
const (
	logSuffix = ".log"
	// A longer line is stored as several.
	maxLine = 16 << 10
	// maxFrame is the longest line of a file: maxLine bytes that are not UTF-8 grow threefold.
	maxFrame = 3*maxLine + 64
	// outputBuffer is the memory for reading the output of a pod.
	outputBuffer = 64 << 10
	// logFiles is how many files share Options.LogSize.
	logFiles = 4
)

// lines writes the log of a pod.
type lines struct {
	dir     string
	segment int64 // the most bytes of one file
	file    *os.File
	size    int64
	next    uint64 // seq of the next line
	last    time.Time
	lost    int // lines that could not be written
}

// openLines goes on with the log in dir. It reads no more than the end of two files.
func openLines(dir string, keep int64) (*lines, error) {
	l := &lines{dir: dir, segment: keep / logFiles, next: 1}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	firsts, err := logNames(dir)
	for _, first := range slices.Backward(firsts) {
		found, err := l.recover(first)
		if found || err != nil {
			return l, err
		}
	}
	return l, err
}

// logNames returns the first lines of the files of a log, oldest first.
func logNames(dir string) (firsts []uint64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	for _, e := range entries { // sorted by name, and so by age
		name, ok := strings.CutSuffix(e.Name(), logSuffix)
		if first, err := strconv.ParseUint(name, 10, 64); ok && err == nil {
			firsts = append(firsts, first)
		}
	}
	return firsts, err
}

func logPath(dir string, first uint64) string {
	return filepath.Join(dir, fmt.Sprintf("%020d%s", first, logSuffix))
}

// recover opens a file at the end of its last whole line, if it has one, and cuts off what a
// killed supervisor left after it.
func (l *lines) recover(first uint64) (found bool, err error) {
	f, err := os.OpenFile(logPath(l.dir, first), os.O_RDWR, 0)
	if err != nil {
		return false, err
	}
	info, err := f.Stat()
	if err != nil {
		return false, errors.Join(err, f.Close())
	}
	from := max(info.Size()-2*maxFrame, 0)
	b := make([]byte, info.Size()-from)
	n, _ := f.ReadAt(b, from)
	b = b[:bytes.LastIndexByte(b[:n], '\n')+1]
	line := bytes.TrimSuffix(b, []byte{'\n'})
	last, ok := parseFrame(line[bytes.LastIndexByte(line, '\n')+1:])
	if !ok {
		return false, errors.Join(f.Close(), os.Remove(f.Name()))
	}
	l.file, l.size, l.next, l.last = f, from+int64(len(b)), last.seq+1, last.at
	return true, f.Truncate(l.size)
}

// A frame is one line of a file.
type frame struct {
	seq  uint64
	at   time.Time
	text []byte
}

func parseFrame(line []byte) (f frame, ok bool) {
	seq, rest, _ := bytes.Cut(line, []byte{' '})
	at, text, ok := bytes.Cut(rest, []byte{' '})
	n, wrong := strconv.ParseUint(string(seq), 10, 64)
	nanos, wrongTime := strconv.ParseInt(string(at), 10, 64)
	return frame{n, time.Unix(0, nanos), text}, ok && wrong == nil && wrongTime == nil
}

// copy stores what comes from r until its end. It never blocks the pod for long: what cannot be
// written, for example to a full disk, is counted and dropped.
func (l *lines) copy(r io.Reader) {
	buf, have := make([]byte, outputBuffer), 0
	for {
		n, err := r.Read(buf[have:])
		have += n
		texts, used := split(buf[:have], err != nil)
		l.append(texts)
		have = copy(buf, buf[used:have])
		if err != nil {
			return
		}
	}
}

// append adds texts as lines of this instant.
func (l *lines) append(texts [][]byte) {
	at := time.Now()
	if at.Before(l.last) {
		at = l.last
	}
	var b []byte
	for _, text := range texts {
		if !utf8.Valid(text) {
			text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
		}
		begin := len(b)
		b = strconv.AppendUint(b, l.next, 10)
		b = strconv.AppendInt(append(b, ' '), at.UnixNano(), 10)
		b = append(append(append(b, ' '), text...), '\n')
		if l.file == nil || l.size+int64(len(b)) > l.segment {
			l.flush(b[:begin])
			b = append(b[:0], b[begin:]...)
			l.rotate()
		}
		l.next, l.last = l.next+1, at
	}
	l.flush(b)
}

// flush writes whole lines to the file.
func (l *lines) flush(b []byte) {
	if len(b) == 0 {
		return
	}
	err := os.ErrClosed
	if l.file != nil {
		_, err = l.file.WriteAt(b, l.size)
	}
	if err != nil { // the next write overwrites what this one has left
		l.lost += bytes.Count(b, []byte{'\n'})
		return
	}
	l.size += int64(len(b))
}

// rotate begins a file, and removes the oldest ones so that all fit into Options.LogSize.
func (l *lines) rotate() {
	l.close()
	firsts, _ := logNames(l.dir) // what cannot be read now is removed later
	for len(firsts) >= logFiles {
		_ = os.Remove(logPath(l.dir, firsts[0]))
		firsts = firsts[1:]
	}
	f, err := os.OpenFile(logPath(l.dir, l.next), os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err == nil {
		l.file, l.size = f, 0
	}
}

func (l *lines) close() {
	if l.file != nil {
		_ = l.file.Close() // its lines are written
	}
	l.file = nil
}

// split splits b into lines without their ends, and returns how much of b they are. It leaves an
// unfinished line, unless it is too long or all is set. See podhost.LineEnd.
func split(b []byte, all bool) (texts [][]byte, used int) {
	for len(b) > 0 {
		n, end := podhost.LineEnd(b)
		var text []byte
		size := len(b)
		switch {
		case n >= 0 && n <= maxLine:
			text, size = b[:n], end
		case len(b) > maxLine:
			size = runeEnd(b, maxLine)
			text = b[:size]
		case !all:
			return texts, used
		default:
			text = bytes.TrimSuffix(b, []byte{'\r'})
		}
		b, used, texts = b[size:], used+size, append(texts, text)
	}
	return texts, used
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
