package supervise

import (
	"bytes"
	"errors"
	"io"
	"os"
	"time"

	"github.com/podyard/podyard/pods"
)

// A Reader reads the log of a pod.
type Reader struct {
	dir      string
	seq      uint64 // the next line it wants
	after    time.Time
	afterSeq uint64

	file   uint64 // the file in which it is
	offset int64
	buf    []byte
}

// Seek returns where the lines of q begin, or a place before it.
func Seek(dir string, q pods.LogQuery) (*Reader, error) {
	c := &Reader{dir: dir, after: q.After, afterSeq: q.AfterSeq, buf: make([]byte, 2*maxFrame)}
	if q.Tail < 0 {
		return c, nil
	}
	firsts, err := logNames(dir)
	if err != nil || len(firsts) == 0 {
		return c, err
	}
	// The newest file says which line is the last one.
	end := *c
	end.seq = firsts[len(firsts)-1]
	next := end.seq
	for n := 1; n > 0 && err == nil; {
		n, err = end.Read(func(l pods.LogLine, _ error) bool { next = l.Seq + 1; return true })
	}
	if tail := uint64(q.Tail); tail < next {
		c.seq = next - tail
	}
	return c, err
}

// read yields lines that are there, and returns how many lines it has read: 0 at the end, -1
// when yield returned false. A reader whose lines were removed goes on with the oldest line.
func (c *Reader) Read(yield func(pods.LogLine, error) bool) (lines int, err error) {
	firsts, err := logNames(c.dir)
	if err != nil {
		return 0, err
	}
	for i, first := range firsts {
		if i+1 < len(firsts) && firsts[i+1] <= c.seq {
			continue
		}
		if first != c.file {
			c.file, c.offset = first, 0
		}
		b, err := c.chunk()
		if err != nil || len(b) > 0 {
			return c.yieldLines(b, yield), err
		}
	}
	return 0, nil
}

// chunk returns whole lines from the place of the reader; none at the end of its file, which may
// be gone.
func (c *Reader) chunk() ([]byte, error) {
	f, err := os.Open(logPath(c.dir, c.file))
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	n, err := f.ReadAt(c.buf, c.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	n = bytes.LastIndexByte(c.buf[:n], '\n') + 1
	c.offset += int64(n)
	return c.buf[:n], nil
}

func (c *Reader) yieldLines(b []byte, yield func(pods.LogLine, error) bool) (n int) {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		n++
		f, ok := parseFrame(line)
		if !ok || f.seq < c.seq {
			continue
		}
		c.seq = f.seq + 1
		seen := !f.at.After(c.after) && !(f.at.Equal(c.after) && f.seq > c.afterSeq)
		if (c.after.IsZero() || !seen) && !yield(pods.LogLine{At: f.at, Seq: f.seq, Text: string(f.text)}, nil) {
			return -1
		}
	}
	return n
}
