package serverless

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	// MaxChunk is the most bytes of items in one part of a stream. Items are shorter, except
	// those that cannot be split.
	MaxChunk = 1 << 20
	// maxItem leaves room for the JSON around a single item in an answer of MaxChunk bytes.
	maxItem = MaxChunk - 64
	// DefaultStreamWait is how long Stream waits for items.
	DefaultStreamWait = 5 * time.Second
)

// A StreamQuery says how to read a stream. The zero value works.
type StreamQuery struct {
	Wait     time.Duration // how long to wait for items; default DefaultStreamWait
	MaxBytes int           // most bytes of items in a part, which may have one longer item; default MaxChunk
	Overhead int           // bytes to add to the length of each item
	// Linger is how long a call takes at least while the job runs and has few unread items. So a
	// reader that asks again at once gets the items of a fast stream in fewer parts. A slow stream
	// is not delayed, because the time since the last part counts. Default: 0.
	Linger time.Duration
}

// A StreamPart is the result of one call of Stream.
type StreamPart struct {
	// Status is the status for the reader. It is IN_PROGRESS while there are items. It is
	// terminal only in an empty part after the last item, because readers stop there.
	Status Status
	// Items are JSON objects with the member output, in the order of their creation.
	Items [][]byte
	// Job is the job at the same instant, without payloads.
	Job Job
}

// Stream waits until the job has unread items or has ended, until q.Wait has passed by the
// service's clock, or until ctx ends. Then it calls write once with what there is. If write
// returns nil, the items are removed and the next call returns the items after them. If write
// returns an error, Stream returns it, and the next call returns the same items again.
//
// Readers of one job take turns, so each item goes to one reader. Other errors are those of
// Get. With such an error write was not called, unless the queue failed to remove the items.
func (s *Service) Stream(ctx context.Context, owner string, ref Ref, q StreamQuery, write func(StreamPart) error) error {
	over, stop := s.startRead(&q)
	defer stop()
	j, err := s.findState(context.WithoutCancel(ctx), owner, ref)
	if err != nil {
		return err
	}
	if !s.readers.acquire(ctx, ref, over) {
		return s.writeEmptyPart(ctx, j, write)
	}
	defer s.readers.release(ref)
	part, err := s.awaitItems(ctx, j, &q, over)
	if err != nil {
		return err
	}
	if s.server != nil && len(part.Items) > 0 {
		return s.streamAmongServers(ctx, j, &q, over, write)
	}
	return s.writePart(ctx, part, write)
}

// startRead sets the defaults of q. over is closed when its wait is over; stop must be called.
func (s *Service) startRead(q *StreamQuery) (over chan struct{}, stop func() bool) {
	if q.Wait <= 0 {
		q.Wait = DefaultStreamWait
	}
	if q.MaxBytes <= 0 {
		q.MaxBytes = MaxChunk
	}
	over = make(chan struct{})
	return over, s.clock.AfterFunc(s.clock.Now().Add(q.Wait), func() { close(over) })
}

// Peek returns the items of a job's stream from number from on, and leaves them to the readers. The
// first item of a job is number 0, and first is that of the first item in the part: it is greater
// than from if somebody has read the items before it. Peek waits as Stream does, until there are
// such items. It looks at the first q.MaxBytes of what nobody has read, so items after that are seen
// when those before them have been read. Errors are those of Get.
func (s *Service) Peek(ctx context.Context, owner string, ref Ref, from uint32, q StreamQuery) (part StreamPart, first uint32, err error) {
	over, stop := s.startRead(&q)
	defer stop()
	j, err := s.findState(context.WithoutCancel(ctx), owner, ref)
	if err != nil {
		return part, 0, err
	}
	done, chunk := s.hub.watch(ref, queue.EventDone), s.hub.watch(ref, queue.EventChunk)
	defer s.hub.unwatch(done)
	defer s.hub.unwatch(chunk)
	run := j.Run
	err = again(ctx, done.ch, chunk.ch, over, func() (bool, error) {
		part, err = s.items(ctx, j, &q)
		if err != nil {
			return false, err
		}
		if first = part.Job.Drained; part.Job.Run != run {
			from, run = 0, part.Job.Run // it was retried: its stream begins anew
		}
		if first < from {
			part.Items = part.Items[min(int(from-first), len(part.Items)):]
			first = from
		}
		return len(part.Items) > 0 || part.Job.Status.Terminal(), nil
	})
	part.Status = part.Job.Status
	return part, first, err
}

// writePart calls write and then removes the items of part.
func (s *Service) writePart(ctx context.Context, part StreamPart, write func(StreamPart) error) error {
	if err := write(part); err != nil || len(part.Items) == 0 {
		return err
	}
	ref := part.Job.Ref
	op := queue.Op{Ref: ref, Kind: queue.OpDrain, Token: part.Job.Token, From: part.Job.Drained, N: uint32(len(part.Items))}
	for _, b := range part.Items {
		op.Bytes += int64(len(b))
	}
	_, err := s.apply(context.WithoutCancel(ctx), op)
	return err
}

// writeEmptyPart answers a reader whose turn did not come in time.
func (s *Service) writeEmptyPart(ctx context.Context, j Job, write func(StreamPart) error) error {
	part, err := s.items(ctx, j, &StreamQuery{})
	if err != nil {
		return err
	}
	part.Items = nil
	return write(part)
}

// awaitItems waits for items or for the end of the job.
func (s *Service) awaitItems(ctx context.Context, j Job, q *StreamQuery, over <-chan struct{}) (part StreamPart, err error) {
	done, chunk := s.hub.watch(j.Ref, queue.EventDone), s.hub.watch(j.Ref, queue.EventChunk)
	defer s.hub.unwatch(done)
	defer s.hub.unwatch(chunk)
	if q.Linger > 0 && j.Status == InProgress && j.Stream < int64(q.MaxBytes/2) {
		s.linger(ctx, q.Linger, done.ch, over)
	}
	err = again(ctx, done.ch, chunk.ch, over, func() (bool, error) {
		part, err = s.items(ctx, j, q)
		return len(part.Items) > 0 || part.Status.Terminal(), err
	})
	return part, err
}

// again calls look, and again when the job may have changed, until it reports true or fails. After
// over or the end of ctx it is called once more.
func again(ctx context.Context, done, chunk, over <-chan struct{}, look func() (bool, error)) error {
	for last := false; ; {
		if ok, err := look(); err != nil || last || ok {
			return err
		}
		select {
		case <-done:
		case <-chunk:
		case <-over:
			last = true
		case <-ctx.Done():
			last = true
		}
	}
}

// linger waits for d, but not beyond the end of the job or of the call.
func (s *Service) linger(ctx context.Context, d time.Duration, done, over <-chan struct{}) {
	passed := make(chan struct{})
	defer s.clock.AfterFunc(s.clock.Now().Add(d), func() { close(passed) })()
	select {
	case <-passed:
	case <-done:
	case <-over:
	case <-ctx.Done():
	}
}

// items returns the part as it is now.
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

// fitting returns the first items that fit into a part, overhead included, but at least one.
func (q *StreamQuery) fitting(items [][]byte) [][]byte {
	size := 0
	for i, b := range items {
		if size += len(b) + q.Overhead; i > 0 && size > q.MaxBytes {
			return items[:i]
		}
	}
	return items
}

// readerLocks has a lock per job for the readers of its stream.
type readerLocks struct {
	mu    sync.Mutex
	locks map[Ref]*readerLock
}

// A readerLock is locked while its channel is full.
type readerLock struct {
	held chan struct{}
	refs int // readers that hold the lock or wait for it
}

// acquire locks the job. It reports false if ctx ended or over was closed first.
func (t *readerLocks) acquire(ctx context.Context, ref Ref, over <-chan struct{}) bool {
	t.mu.Lock()
	u := t.locks[ref]
	if u == nil {
		u = &readerLock{held: make(chan struct{}, 1)}
		if t.locks == nil {
			t.locks = map[Ref]*readerLock{}
		}
		t.locks[ref] = u
	}
	u.refs++
	t.mu.Unlock()
	select {
	case u.held <- struct{}{}:
		return true
	default:
	}
	select {
	case u.held <- struct{}{}:
		return true
	case <-over:
	case <-ctx.Done():
	}
	t.unref(ref)
	return false
}

func (t *readerLocks) release(ref Ref) {
	t.mu.Lock()
	<-t.locks[ref].held
	t.mu.Unlock()
	t.unref(ref)
}

func (t *readerLocks) unref(ref Ref) {
	t.mu.Lock()
	defer t.mu.Unlock()
	u := t.locks[ref]
	if u.refs--; u.refs == 0 {
		delete(t.locks, ref)
	}
}
