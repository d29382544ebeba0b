package serverless

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// MaxChunk is the most bytes of items in one part of a stream (section 8.2), and more
	// than any item has, but for a value that cannot be split.
	MaxChunk = 1 << 20
	// maxItem leaves room for what an answer of MaxChunk has around its one item.
	maxItem = MaxChunk - 64
	// DefaultStreamWait is how long Stream waits for something (decisions: an empty poll is
	// held).
	DefaultStreamWait = 5 * time.Second
)

// A StreamQuery says how to read a stream. The zero value works.
type StreamQuery struct {
	Wait     time.Duration // how long to wait for something to tell; default DefaultStreamWait
	MaxBytes int           // of items in the part, which has at least one if there is one; default MaxChunk
	Overhead int           // bytes that count for each item besides its own
}

// A StreamPart is what one call of Stream hands out.
type StreamPart struct {
	// Status is what the reader is told: IN_PROGRESS with items, and a terminal status only
	// in the empty part after the last of them, because readers stop at it.
	Status Status
	// Items are JSON objects with the member output, in the order they were made.
	Items [][]byte
	// Job is the job at the same instant, without payloads.
	Job Job
}

// Stream waits until the job has items that nobody has read or has ended, until q.Wait has
// passed by the service's clock, or until ctx ends, and then calls write once with what
// there is. Only when write returns nil are the items done with: the next call goes on
// after them. Otherwise the next call gives the same again, and Stream returns write's
// error.
//
// Readers of one job take turns, so an item goes to one of them. Other errors are those of
// Get; write was not called then, unless the queue failed to note what was read.
func (s *Service) Stream(ctx context.Context, owner string, ref Ref, q StreamQuery, write func(StreamPart) error) error {
	if q.Wait <= 0 {
		q.Wait = DefaultStreamWait
	}
	if q.MaxBytes <= 0 {
		q.MaxBytes = MaxChunk
	}
	over := make(chan struct{})
	defer s.clock.AfterFunc(s.clock.Now().Add(q.Wait), func() { close(over) })()
	j, err := s.Get(context.WithoutCancel(ctx), owner, ref)
	if err != nil {
		return err
	}
	j = Job{Ref: j.Ref, Owner: j.Owner, State: j.State}
	if !s.turns.take(ctx, ref, over) {
		return s.streamNothing(ctx, j, write)
	}
	defer s.turns.pass(ref)
	part, err := s.awaitItems(ctx, j, &q, over)
	if err != nil {
		return err
	}
	if err := write(part); err != nil || len(part.Items) == 0 {
		return err
	}
	op := Op{Ref: ref, Kind: OpDrain, Token: part.Job.Token, From: part.Job.Drained, N: uint32(len(part.Items))}
	for _, b := range part.Items {
		op.Bytes += int64(len(b))
	}
	_, err = s.apply(context.WithoutCancel(ctx), op)
	return err
}

// streamNothing answers a reader whose turn did not come in time.
func (s *Service) streamNothing(ctx context.Context, j Job, write func(StreamPart) error) error {
	part, err := s.items(ctx, j, &StreamQuery{})
	if err != nil {
		return err
	}
	part.Items = nil
	return write(part)
}

// awaitItems waits for something to hand out.
func (s *Service) awaitItems(ctx context.Context, j Job, q *StreamQuery, over <-chan struct{}) (StreamPart, error) {
	done, chunk := s.hub.watch(j.Ref, EventDone), s.hub.watch(j.Ref, EventChunk)
	defer s.hub.unwatch(done)
	defer s.hub.unwatch(chunk)
	for last := false; ; {
		part, err := s.items(ctx, j, q)
		if err != nil || last || len(part.Items) > 0 || part.Status.Terminal() {
			return part, err
		}
		select {
		case <-done.ch:
		case <-chunk.ch:
		case <-over:
			last = true
		case <-ctx.Done():
			last = true
		}
	}
}

// items is the part as it would be now.
func (s *Service) items(ctx context.Context, j Job, q *StreamQuery) (StreamPart, error) {
	items, st, err := s.queue.Chunks(context.WithoutCancel(ctx), s.now(), j.Ref, q.MaxBytes)
	if err != nil {
		return StreamPart{}, fmt.Errorf("serverless: stream of job %q: %w", j.ID, err)
	}
	j.State = st
	p := StreamPart{Status: st.Status, Items: q.fitting(items), Job: j}
	if len(items) > 0 {
		p.Status = InProgress
	}
	return p, nil
}

// fitting is the first of items that fit into a part with their overhead: one at least.
func (q *StreamQuery) fitting(items [][]byte) [][]byte {
	size := 0
	for i, b := range items {
		if size += len(b) + q.Overhead; i > 0 && size > q.MaxBytes {
			return items[:i]
		}
	}
	return items
}

// turns lets the readers of one job go one after another, first come first.
type turns struct {
	mu   sync.Mutex
	jobs map[Ref]*turn
}

// A turn is taken by whoever has put something into its channel.
type turn struct {
	taken chan struct{}
	users int // those that have it or wait
}

// take waits for the turn; false when ctx ended or over was closed before it came.
func (t *turns) take(ctx context.Context, ref Ref, over <-chan struct{}) bool {
	t.mu.Lock()
	u := t.jobs[ref]
	if u == nil {
		u = &turn{taken: make(chan struct{}, 1)}
		if t.jobs == nil {
			t.jobs = map[Ref]*turn{}
		}
		t.jobs[ref] = u
	}
	u.users++
	t.mu.Unlock()
	select {
	case u.taken <- struct{}{}:
		return true
	default:
	}
	select {
	case u.taken <- struct{}{}:
		return true
	case <-over:
	case <-ctx.Done():
	}
	t.leave(ref)
	return false
}

func (t *turns) pass(ref Ref) {
	t.mu.Lock()
	<-t.jobs[ref].taken
	t.mu.Unlock()
	t.leave(ref)
}

func (t *turns) leave(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.jobs[ref]
	if u.users--; u.users == 0 {
		delete(t.jobs, ref)
	}
}
