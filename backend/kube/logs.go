package kube

import (
	"bufio"
	"context"
	"errors"
	"io"
	"iter"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/podyard/podyard/pods"
)

const (
	// logOverlap is how far before a reader's position a read starts. A line's number follows from its time
	// and from the lines before it, so a second read computes the same numbers. Clusters know whole seconds.
	logOverlap = time.Second
	// extraLines is how many lines beyond the wanted tail are read, for the same reason.
	extraLines = 1000
	// spoolSize is how many bytes of text are kept of the runs before the present one.
	spoolSize  = 64 << 10
	spoolLines = 1000
	// spoolTimeout is how long a run waits for the log of the one before it.
	spoolTimeout = 5 * time.Second
	// maxLine is where longer lines are cut.
	maxLine = 64 << 10
)

// Logs implements pods.LogReader. It yields what the kubelet keeps of the present run, and before that what
// this Runtime has kept of earlier runs of the same generation: their last 64 KiB, in memory. It also ends
// with Close.
func (r *Runtime) Logs(ctx context.Context, podID string, q pods.LogQuery) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		p := r.pods.Find(podID)
		if p == nil {
			return
		}
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		go func() {
			select {
			case <-p.removed:
				cancel()
			case <-ctx.Done():
			}
		}()
		l := logReader{p: p, last: pods.LogLine{At: q.After, Seq: q.AfterSeq}, yield: yield}
		if !l.backlog(ctx, q.Tail) || !q.Follow {
			return
		}
		l.follow(ctx)
	}
}

// A logReader is one call of Logs.
type logReader struct {
	p     *pod
	last  pods.LogLine // that was yielded
	yield func(pods.LogLine, error) bool
}

// backlog yields the lines there are after last, or the last tail of them. It returns false when no more
// are wanted, as read does.
func (l *logReader) backlog(ctx context.Context, tail int) bool {
	if tail < 0 {
		more, err := l.read(ctx, &corev1.PodLogOptions{}, l.pass)
		return more && (err == nil || l.yield(pods.LogLine{}, err))
	}
	var opts corev1.PodLogOptions
	if l.last.At.IsZero() {
		n := int64(tail + extraLines)
		opts.TailLines = &n
	}
	var kept []pods.LogLine
	_, err := l.read(ctx, &opts, func(line pods.LogLine) bool {
		if kept = append(kept, line); len(kept) > 2*tail {
			kept = slices.Delete(kept, 0, len(kept)-tail)
		}
		return true
	})
	for _, line := range kept[max(0, len(kept)-tail):] {
		if !l.pass(line) {
			return false
		}
	}
	return err == nil || l.yield(pods.LogLine{}, err)
}

// follow yields lines as they come, over runs, until ctx ends.
func (l *logReader) follow(ctx context.Context) {
	for ctx.Err() == nil {
		turn := l.p.turned()
		more, err := l.read(ctx, &corev1.PodLogOptions{Follow: true}, l.pass)
		if !more {
			return
		}
		wait, leave := ctx, func() {}
		if err != nil { // the stream has broken, or its node does not answer
			wait, leave = context.WithTimeout(ctx, retry)
		}
		select {
		case <-turn:
		case <-wait.Done():
		}
		leave()
	}
}

func (l *logReader) pass(line pods.LogLine) bool {
	l.last = line
	return l.yield(line, nil)
}

// read calls f with the lines after last until it returns false, or the log ends.
func (l *logReader) read(ctx context.Context, opts *corev1.PodLogOptions, f func(pods.LogLine) bool) (more bool, err error) {
	obj, spool := l.p.logged()
	after := l.last
	isNew := func(line pods.LogLine) bool {
		return line.At.After(after.At) || line.At.Equal(after.At) && line.Seq > after.Seq
	}
	count := lineCounter{}
	for _, line := range spool {
		if isNew(line) && !f(line) {
			return false, nil
		}
		count.last = line
	}
	if obj == nil {
		return true, nil
	}
	// A node whose clock is behind that of the one before gives its first lines the time of the last line there.
	if after.At.After(count.last.At.Add(2 * logOverlap)) {
		since := metav1.NewTime(after.At.Add(-logOverlap))
		opts.SinceTime = &since
	}
	for line, err := range l.p.r.readLog(ctx, obj, opts, &count) {
		if err != nil {
			return ctx.Err() == nil, err
		}
		if isNew(line) && !f(line) {
			return false, nil
		}
		if ctx.Err() != nil {
			return false, nil
		}
	}
	return true, nil
}

// readLog yields the log of a Pod. A Pod without one yet, or that is gone, has no lines.
func (r *Runtime) readLog(ctx context.Context, obj *corev1.Pod, opts *corev1.PodLogOptions, count *lineCounter) iter.Seq2[pods.LogLine, error] {
	return func(yield func(pods.LogLine, error) bool) {
		opts.Container, opts.Timestamps = container, true
		body, err := r.api.CoreV1().Pods(obj.Namespace).GetLogs(obj.Name, opts).Stream(ctx)
		switch {
		case apierrors.IsNotFound(err), apierrors.IsBadRequest(err), err != nil && ctx.Err() != nil:
			return
		case err != nil:
			yield(pods.LogLine{}, err)
			return
		}
		defer func() { _ = body.Close() }() // it was only read
		lines := bufio.NewReaderSize(body, maxLine)
		var at time.Time
		for begins := true; ; {
			b, err := lines.ReadSlice('\n')
			text := strings.TrimRight(string(b), "\r\n")
			if begins {
				at, text = splitTime(text)
			}
			if !at.IsZero() && len(b) > 0 && !yield(count.number(at, text), nil) {
				return
			}
			begins = err == nil
			if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
				if !errors.Is(err, io.EOF) && ctx.Err() == nil {
					yield(pods.LogLine{}, err)
				}
				return
			}
		}
	}
}

// splitTime returns the time before a line. What has none is a message of the kubelet.
func splitTime(line string) (time.Time, string) {
	first, text, _ := strings.Cut(line, " ")
	at, err := time.Parse(time.RFC3339Nano, first)
	if err != nil {
		return time.Time{}, line
	}
	return at, text
}

// A lineCounter numbers lines by their time. Numbers grow, and times do not go back.
type lineCounter struct{ last pods.LogLine }

func (c *lineCounter) number(at time.Time, text string) pods.LogLine {
	l := pods.LogLine{At: at, Seq: uint64(max(at.UnixNano(), 1)), Text: text}
	if l.At.Before(c.last.At) {
		l.At = c.last.At
	}
	l.Seq = max(l.Seq, c.last.Seq+1)
	c.last = pods.LogLine{At: l.At, Seq: l.Seq}
	return l
}

// turned returns a channel that is closed when the cluster shows something else of the Pod.
func (p *pod) turned() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.turn == nil {
		p.turn = make(chan struct{})
	}
	return p.turn
}

// turnLocked wakes those who follow the log. The caller holds mu.
func (p *pod) turnLocked() {
	if p.turn != nil {
		close(p.turn)
		p.turn = nil
	}
}

// logged returns the Pod whose log is to be read, nil without one, and the lines before it.
func (p *pod) logged() (*corev1.Pod, []pods.LogLine) {
	p.mu.Lock()
	defer p.mu.Unlock()
	obj := p.seen
	if obj == nil || obj.UID == p.spooled || !hasRun(obj) {
		obj = nil
	}
	return obj, p.spool
}

func hasRun(obj *corev1.Pod) bool {
	c := status(obj)
	return c != nil && (c.State.Running != nil || c.State.Terminated != nil)
}

// saveLog keeps the end of the log of a Pod that will be deleted for the next run. A failure is logged.
func (p *pod) saveLog(ctx context.Context, obj *corev1.Pod, gen uint64) {
	p.mu.Lock()
	spool, done := p.spool, p.spooled == obj.UID
	p.mu.Unlock()
	if done {
		return
	}
	var lines []pods.LogLine
	if keyOfPod(obj).gen == gen && hasRun(obj) {
		lines = p.lastLines(ctx, obj, spool)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spool, p.spooled = lines, obj.UID
}

// lastLines returns the end of spool and of the log of obj.
func (p *pod) lastLines(ctx context.Context, obj *corev1.Pod, spool []pods.LogLine) []pods.LogLine {
	ctx, cancel := context.WithTimeout(ctx, spoolTimeout)
	defer cancel()
	lines := slices.Clone(spool)
	var count lineCounter
	if len(spool) > 0 {
		count.last = spool[len(spool)-1]
	}
	n := int64(spoolLines)
	size := 0
	for _, line := range lines {
		size += len(line.Text)
	}
	for line, err := range p.r.readLog(ctx, obj, &corev1.PodLogOptions{TailLines: &n}, &count) {
		if err != nil {
			p.r.opts.Logger.Warn("kube: the log of a run is lost", "pod", p.id, "err", err)
			break
		}
		lines, size = append(lines, line), size+len(line.Text)
		for size > spoolSize || len(lines) > spoolLines {
			size -= len(lines[0].Text)
			lines = lines[1:]
		}
	}
	return lines
}
