package process

import (
	"bytes"
	"context"
	"errors"
	"io"
	"iter"
	"os"
	"slices"

	"github.com/podyard/podyard/pods"
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
		o := p.out
		c, selected := o.seek(q)
		buf := make([]byte, readBuffer)
		for {
			changed, open := o.changes()
			lines, next, err := o.read(c, buf)
			switch {
			case errors.Is(err, os.ErrNotExist):
				// Its file was trimmed between two steps, or removed by somebody.
				if !open {
					return
				}
				c = o.nextFile(next)
				continue
			case err != nil:
				yield(pods.LogLine{}, err)
				return
			}
			c = next
			if len(lines) > 0 {
				if c.seq = yieldLines(lines, c.seq, selected, yield); c.seq == 0 {
					return
				}
				if ctx.Err() != nil {
					return
				}
				continue
			}
			if !q.Follow || !open {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}
}

// yieldLines yields the selected lines of b from seq on, and returns the seq after them; 0 when
// yield returned false.
func yieldLines(b []byte, seq uint64, selected func(frame) bool, yield func(pods.LogLine, error) bool) uint64 {
	for len(b) > 0 {
		line, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		f, ok := parseFrame(line)
		if !ok || f.seq < seq {
			continue
		}
		seq = f.seq + 1
		if selected(f) && !yield(pods.LogLine{At: f.at, Seq: f.seq, Text: string(f.text)}, nil) {
			return 0
		}
	}
	return seq
}

// seek returns where the lines of q begin, or a place before it. The reader skips lines for
// which selected is false.
func (o *output) seek(q pods.LogQuery) (c cursor, selected func(frame) bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.files) > 0 {
		c.seq = o.files[0].first
	}
	if q.Tail >= 0 {
		if tail := uint64(q.Tail); tail < o.next {
			c.seq = max(c.seq, o.next-tail)
		}
	}
	if q.After.IsZero() {
		return c, func(frame) bool { return true }
	}
	for _, f := range o.files {
		if f.at.Before(q.After) {
			c.seq = max(c.seq, f.first)
		}
	}
	return c, func(f frame) bool {
		return f.at.After(q.After) || f.at.Equal(q.After) && f.seq > q.AfterSeq
	}
}

// changes returns a channel that is closed at the next change, and whether there can be one.
func (o *output) changes() (changed <-chan struct{}, open bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.changed, !o.closed
}

// A cursor is where a reader is: the next line it wants, and its place in a file.
type cursor struct {
	seq    uint64
	file   uint64
	offset int64
}

// nextFile returns where a reader goes on whose file is missing: after that file, if the file
// should be there.
func (o *output) nextFile(c cursor) cursor {
	o.mu.Lock()
	defer o.mu.Unlock()
	i := slices.IndexFunc(o.files, func(f logFile) bool { return f.first == c.file })
	switch {
	case i < 0: // it was trimmed: read finds the oldest
	case i+1 < len(o.files):
		c.seq = o.files[i+1].first
	default:
		c.offset = o.files[i].size
	}
	return c
}

// read returns whole lines of the file that has c.seq, and where to go on; no lines at the end.
// A reader whose lines were trimmed goes on with the oldest line.
func (o *output) read(c cursor, buf []byte) ([]byte, cursor, error) {
	o.mu.Lock()
	i := len(o.files) - 1
	for i > 0 && o.files[i].first > c.seq {
		i--
	}
	var f logFile
	if i >= 0 {
		f = o.files[i]
	}
	o.mu.Unlock()
	if i < 0 {
		return nil, c, nil
	}
	if f.first != c.file {
		c.file, c.offset = f.first, 0
	}
	want := min(f.size-c.offset, int64(len(buf)))
	if want <= 0 {
		return nil, c, nil
	}
	file, err := os.Open(o.path(f.first))
	if err != nil {
		return nil, c, err
	}
	defer file.Close()
	n, err := file.ReadAt(buf[:want], c.offset)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, c, err
	}
	n = bytes.LastIndexByte(buf[:n], '\n') + 1
	c.offset += int64(n)
	return buf[:n], c, nil
}
