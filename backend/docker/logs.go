package docker

import (
	"context"
	"iter"
	"strconv"
	"strings"
	"time"

	"github.com/containerd/errdefs"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/pods"
)

// overlap is how far before a reader's position a read starts. A line's number follows from
// its time and from the lines before it. Times repeat, and they go back a little where two
// streams are merged. With the overlap, a second read computes the same numbers.
const overlap = time.Second

// extraLines is how many lines beyond the wanted tail are read, for the same reason.
const extraLines = 1000

// Logs implements pods.LogReader. It yields the lines that the engine keeps of the present
// generation. With Follow it continues over restarts and with the next generation. It also
// ends with Close.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		p := r.pods.Find(podID)
		if p == nil {
			return
		}
		last := pods.LogLine{At: q.After, Seq: q.AfterSeq}
		if !p.backlog(ctx, q.Tail, &last, yield) || !q.Follow {
			return
		}
		for ctx.Err() == nil {
			changed, open := p.changes()
			if !open || !p.stream(ctx, true, 0, &last, yield) {
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}
}

// backlog yields the existing lines: all lines after last, or the last tail lines. It
// updates last.
func (p *pod) backlog(ctx context.Context, tail int, last *pods.LogLine, yield func(pods.LogLine, error) bool) bool {
	if tail < 0 {
		return p.stream(ctx, false, 0, last, yield)
	}
	ring := newRing(tail)
	var failed error
	p.stream(ctx, false, tail, last, func(l pods.LogLine, err error) bool {
		if err != nil {
			failed = err
			return false
		}
		ring.add(l)
		return true
	})
	for _, l := range ring.lines() {
		if !yield(l, nil) {
			return false
		}
	}
	return failed == nil || yield(pods.LogLine{}, failed)
}

// stream reads the engine's log once. It returns false when the caller wants no more lines.
// With tail it may leave out lines before the last ones.
func (p *pod) stream(ctx context.Context, follow bool, tail int, last *pods.LogLine, yield func(pods.LogLine, error) bool) bool {
	opts := client.ContainerLogsOptions{ShowStdout: true, ShowStderr: true, Timestamps: true, Follow: follow}
	if !last.At.IsZero() {
		opts.Since = since(last.At.Add(-overlap))
	} else if tail > 0 && !p.r.engine.podman { // Podman 4 has times in whole seconds: no number of extra lines is enough
		opts.Tail = strconv.Itoa(tail + extraLines)
	}
	c, err := p.r.api.ContainerInspect(ctx, p.name(), client.ContainerInspectOptions{})
	var body client.ContainerLogsResult
	if err == nil {
		body, err = p.r.api.ContainerLogs(ctx, c.Container.ID, opts)
	}
	switch {
	case errdefs.IsNotFound(err), errdefs.IsConflict(err), err != nil && strings.Contains(err.Error(), "no such container"), ctx.Err() != nil, isConnectionError(err) && follow:
		return ctx.Err() == nil // the container does not exist yet, is being replaced, or has gone since Podman found it
	case err != nil:
		return yield(pods.LogLine{}, err)
	}
	closeBody := func() { _ = body.Close() } // the body was only read
	defer closeBody()
	defer p.onClosed(closeBody)()
	count := newCounter(parseTime(c.Container.Created))
	for f, err := range readLog(body) {
		if err != nil {
			return ctx.Err() == nil && (follow || yield(pods.LogLine{}, err))
		}
		line := count.number(f)
		if !line.At.After(last.At) && (!line.At.Equal(last.At) || line.Seq <= last.Seq) {
			continue
		}
		if !yield(line, nil) {
			return false
		}
		*last = line
		if ctx.Err() != nil {
			return false
		}
	}
	return true
}

// onClosed calls f when the pod is removed or the Runtime closed.
func (p *pod) onClosed(f func()) (stop func()) {
	done := make(chan struct{})
	go func() {
		for {
			changed, open := p.changes()
			if !open {
				f()
				return
			}
			select {
			case <-changed:
			case <-done:
				return
			}
		}
	}()
	return func() { close(done) }
}

// since formats a time for the engine, to the nanosecond.
func since(t time.Time) string {
	text := strconv.FormatInt(int64(t.Nanosecond())+1e9, 10)
	return strconv.FormatInt(t.Unix(), 10) + "." + text[1:]
}

// A counter numbers lines by their time, so that a line gets the same number in every read.
// Numbers grow, and times do not go back.
type counter struct{ last pods.LogLine }

// newCounter starts at the time when the container was created. Podman 4 reports times in
// whole seconds: without this start, lines of two generations in one second would have the
// same numbers.
func newCounter(made time.Time) counter {
	return counter{pods.LogLine{At: made, Seq: uint64(max(made.UnixNano(), 0))}}
}

func (c *counter) number(f logLine) pods.LogLine {
	l := pods.LogLine{At: f.at, Seq: uint64(max(f.at.UnixNano(), 1)), Text: f.text}
	if l.At.Before(c.last.At) {
		l.At = c.last.At
	}
	l.Seq = max(l.Seq, c.last.Seq+1)
	c.last = pods.LogLine{At: l.At, Seq: l.Seq}
	return l
}

// A ring keeps the last size lines.
type ring struct {
	kept []pods.LogLine
	next int
	size int
}

func newRing(size int) *ring { return &ring{size: size} }

func (r *ring) add(l pods.LogLine) {
	switch {
	case r.size == 0:
	case len(r.kept) < r.size:
		r.kept = append(r.kept, l)
	default:
		r.kept[r.next] = l
		r.next = (r.next + 1) % r.size
	}
}

func (r *ring) lines() []pods.LogLine {
	return append(append([]pods.LogLine(nil), r.kept[r.next:]...), r.kept[:r.next]...)
}
