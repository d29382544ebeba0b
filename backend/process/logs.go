package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"time"

	"github.com/podyard/podyard/pods"
)

// A follower looks for new lines at these intervals, the shorter one while there are some: the
// writer is another process, and no way to wait for it works on every system.
const (
	followBusyInterval = 5 * time.Millisecond
	followIdleInterval = 160 * time.Millisecond
)

// Logs implements pods.LogReader. The lines of all generations of the pod are kept, up to
// Options.LogSize. A reader that falls behind by more than that misses lines. Following also
// ends with Close.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		p := r.pods.Find(podID)
		if p == nil {
			return
		}
		c, err := seek(r.root.log(podID), q)
		pause := followBusyInterval
		for err == nil {
			over := p.gone() // before the last look
			var got int
			if got, err = c.read(yield); got < 0 {
				return
			}
			if got > 0 {
				pause = followBusyInterval
				if ctx.Err() != nil {
					return
				}
				continue
			}
			if over || !q.Follow || !wait(ctx, p, pause) {
				break
			}
			pause = min(2*pause, followIdleInterval)
		}
		if err != nil {
			yield(pods.LogLine{}, err)
		}
	}
}

// wait pauses a follower. It reports false when the follower is to end.
func wait(ctx context.Context, p *pod, pause time.Duration) bool {
	t := time.NewTimer(pause)
	defer t.Stop()
	select {
	case <-t.C:
	case <-p.over:
	case <-p.r.closed:
	case <-ctx.Done():
		return false
	}
	return true
}

// A cursor is where a reader is.
type cursor struct {
	dir      string
	seq      uint64 // the next line it wants
	after    time.Time
	afterSeq uint64

	file   uint64 // the file in which it is
	offset int64
	buf    []byte
}

// seek returns where the lines of q begin, or a place before it.
func seek(dir string, q pods.LogQuery) (*cursor, error) {
	c := &cursor{dir: dir, after: q.After, afterSeq: q.AfterSeq, buf: make([]byte, 2*maxFrame)}
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
		n, err = end.read(func(l pods.LogLine, _ error) bool { next = l.Seq + 1; return true })
	}
	if tail := uint64(q.Tail); tail < next {
		c.seq = next - tail
	}
	return c, err
}

// read yields lines that are there, and returns how many lines it has read: 0 at the end, -1
// when yield returned false. A reader whose lines were removed goes on with the oldest line.
func (c *cursor) read(yield func(pods.LogLine, error) bool) (lines int, err error) {
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
func (c *cursor) chunk() ([]byte, error) {
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

func (c *cursor) yieldLines(b []byte, yield func(pods.LogLine, error) bool) (n int) {
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
