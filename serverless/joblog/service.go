package joblog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	writeDelay = time.Second      // between a line and its write
	sweepEvery = 10 * time.Minute // between two looks for logs of jobs that are gone
	sweepGrace = time.Minute      // a log that was written since may be of a job that is just being deleted
	sweepStep  = 1000             // how many jobs are looked up at once
	// maxPending is how many bytes of lines wait to be written. Lines over it are dropped: a store that
	// is away must not take the memory of the process.
	maxPending = 32 << 20
	// maxOwnPending is what of it the lines of one user may take.
	maxOwnPending = maxPending / 8
	maxEvicted    = 256 // logs that go at once where a user has no room: others wait to be written meanwhile
)

// A Clock has the time: Now, and AfterFunc(t, f), which calls f once Now has reached t and returns a
// stop that reports whether it prevented the call. f must not block. It is one type in all packages.
type Clock = clock.Clock

// Options configures a Service. The zero value works.
type Options struct {
	// Clock is the only source of time. Default: the system's.
	Clock Clock
	// There reports which of the jobs are kept. Logs of the others go. Default: no log goes by itself.
	There func(ctx context.Context, endpoint string, ids []queue.JobID) (map[queue.JobID]bool, error)
	// Logger gets failures of the store. Default: nothing is logged.
	Logger *slog.Logger
}

// A Service keeps the logs of jobs. It is safe for concurrent use. Run, or a program that calls Step,
// writes what was added.
type Service struct {
	store Store
	o     Options
	wake  chan struct{}

	mu      sync.Mutex
	pending map[queue.Ref]*pending
	writing map[queue.Ref]*pending // what is being written just now
	bytes   int                    // of pending
	own     map[string]int         // the part of each user
	gone    map[queue.Ref]bool
	written map[queue.Ref]struct{} // logs that this process has written and that are not gone
	due     time.Time              // of the next write; zero: nothing waits
	sweep   time.Time              // of the next sweep
	failing bool                   // the last write failed, and the log says so
}

// pending are lines that are not written yet.
type pending struct {
	owner string
	Log   // of them only
}

// New returns a Service over a store. opts may be nil.
func New(store Store, opts *Options) *Service {
	s := &Service{
		store: store, wake: make(chan struct{}, 1),
		pending: map[queue.Ref]*pending{}, own: map[string]int{}, gone: map[queue.Ref]bool{}, written: map[queue.Ref]struct{}{},
	}
	if opts != nil {
		s.o = *opts
	}
	if s.o.Clock == nil {
		s.o.Clock = clock.System{}
	}
	if s.o.Logger == nil {
		s.o.Logger = slog.New(slog.DiscardHandler)
	}
	return s
}

// Add adds a line to the log of a job of owner. It is written within a second. A line that is too long
// is cut, and what is no text in it is replaced.
func (s *Service) Add(ref queue.Ref, owner string, l Line) {
	l.Text, l.Level = cut(l.Text, MaxLine), cut(l.Level, MaxLevel)
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending[ref]
	if p == nil {
		p = &pending{owner: owner}
		s.pending[ref] = p
	}
	if s.bytes+l.size() > maxPending || s.own[owner]+l.size() > maxOwnPending {
		p.Dropped++
		return
	}
	before := p.Size
	p.add([]Line{l})
	s.count(owner, p.Size-before)
	if s.due.IsZero() {
		s.due = s.o.Clock.Now().Add(writeDelay)
		s.signal()
	}
}

// count adds to the bytes of the pending lines of a user. The caller holds mu.
func (s *Service) count(owner string, bytes int) {
	s.bytes += bytes
	if s.own[owner] += bytes; s.own[owner] == 0 {
		delete(s.own, owner)
	}
}

func (s *Service) signal() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// cut returns valid text of at most n bytes.
func cut(text string, n int) string {
	text = strings.ToValidUTF8(text, "\uFFFD")
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}

// Get returns the log of a job with what is not written yet. A job that has printed nothing has an
// empty log.
func (s *Service) Get(ctx context.Context, ref queue.Ref) (Log, error) {
	// What is not stored yet is taken first: a write in between shows lines twice, and not never.
	s.mu.Lock()
	var more Log
	for _, p := range [...]*pending{s.writing[ref], s.pending[ref]} {
		if p != nil {
			more.Lines, more.Dropped = append(more.Lines, p.Lines...), more.Dropped+p.Dropped
		}
	}
	s.mu.Unlock()
	l, err := s.store.Get(ctx, ID(ref))
	if err != nil && !errors.Is(err, ErrNotFound) {
		return Log{}, fmt.Errorf("joblog: log of %q: %w", ref.ID, err)
	}
	l.ID, l.Endpoint, l.Job = ID(ref), ref.Endpoint, ref.ID
	l.add(without(more.Lines, l.Lines))
	l.Dropped += more.Dropped
	return l, nil
}

// without returns lines without those with which old ends.
func without(lines, old []Line) []Line {
	for n := min(len(lines), len(old)); n > 0; n-- {
		if slices.Equal(old[len(old)-n:], lines[:n]) {
			return lines[n:]
		}
	}
	return lines
}

// Gone says that a job was deleted: its log goes with the next write.
func (s *Service) Gone(ref queue.Ref) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.pending[ref]
	_, written := s.written[ref]
	if p == nil && !written && s.writing[ref] == nil {
		return // of what other processes have written the sweep takes care
	}
	s.drop(ref, p)
	s.gone[ref] = true
	if s.due.IsZero() {
		s.due = s.o.Clock.Now().Add(writeDelay)
		s.signal()
	}
}

// drop removes pending lines. The caller holds mu.
func (s *Service) drop(ref queue.Ref, p *pending) {
	if p != nil {
		s.count(p.owner, -p.Size)
		delete(s.pending, ref)
	}
}

// Erase removes the logs of the jobs of owner on an endpoint.
func (s *Service) Erase(ctx context.Context, owner, endpoint string) error {
	list, err := s.store.List(ctx, owner)
	if err != nil {
		return fmt.Errorf("joblog: logs of a user: %w", err)
	}
	for i := range list {
		if list[i].Endpoint != endpoint {
			continue
		}
		if err := s.remove(ctx, list[i].Ref()); err != nil {
			return err
		}
	}
	return nil
}

func (s *Service) remove(ctx context.Context, ref queue.Ref) error {
	if err := s.store.Delete(ctx, ID(ref)); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("joblog: delete the log of %q: %w", ref.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.written, ref)
	return nil
}

// Run writes what was added, and removes the logs of jobs that are gone, until ctx ends. Then it writes
// what is left, and returns nil.
func (s *Service) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		clock.Nap(ctx, s.o.Clock, s.Step(ctx, s.o.Clock.Now()), s.wake)
	}
	s.write(context.WithoutCancel(ctx), s.o.Clock.Now())
	return nil
}

// Step does what is due at now, and returns the next instant at which something is due, or the zero
// time. A failure is logged, and tried again after a second. Only one Step may run at a time.
func (s *Service) Step(ctx context.Context, now time.Time) (next time.Time) {
	s.mu.Lock()
	due := !s.due.IsZero() && !now.Before(s.due)
	s.mu.Unlock()
	if due {
		s.write(ctx, now)
	}
	if s.o.There != nil && !now.Before(s.sweep) {
		s.sweep = now.Add(sweepEvery)
		if err := s.sweepAll(ctx, now); err != nil && ctx.Err() == nil {
			s.o.Logger.WarnContext(ctx, "logs of jobs that are gone cannot be removed", "err", err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.due.IsZero() || s.o.There != nil && s.sweep.Before(s.due) {
		return s.sweep
	}
	return s.due
}

// write writes all that is pending.
func (s *Service) write(ctx context.Context, now time.Time) {
	s.mu.Lock()
	lines, gone := s.pending, s.gone
	s.pending, s.writing, s.gone, s.due, s.bytes, s.own = map[queue.Ref]*pending{}, lines, map[queue.Ref]bool{}, time.Time{}, 0, map[string]int{}
	s.mu.Unlock()
	var failed error
	for ref := range gone {
		if err := s.remove(ctx, ref); err != nil {
			failed = err
			s.Gone(ref)
		}
	}
	for ref, p := range lines {
		if err := s.writeOne(ctx, ref, p, now); err != nil {
			failed = err
			s.again(ref, p)
		}
	}
	s.mu.Lock()
	s.writing = nil
	s.mu.Unlock()
	if failed != nil && !s.failing && ctx.Err() == nil {
		s.o.Logger.WarnContext(ctx, "the lines of jobs cannot be written", "err", failed)
	}
	s.failing = failed != nil
}

// again puts lines back that could not be written, before those that came meanwhile.
func (s *Service) again(ref queue.Ref, p *pending) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.gone[ref] {
		return
	}
	again := &pending{owner: p.owner, Log: p.Clone()} // Get may read p
	if newer := s.pending[ref]; newer != nil {
		s.count(newer.owner, -newer.Size)
		again.add(newer.Lines)
		again.Dropped += newer.Dropped
	}
	if s.bytes+again.Size > maxPending || s.own[p.owner]+again.Size > maxOwnPending {
		again.Dropped += len(again.Lines)
		again.Lines, again.Size = nil, 0
	}
	s.pending[ref] = again
	s.count(p.owner, again.Size)
	if s.due.IsZero() {
		s.due = s.o.Clock.Now().Add(writeDelay)
	}
}

// writeOne adds lines to the log of a job. Where its owner has no room, the oldest logs of the owner go.
func (s *Service) writeOne(ctx context.Context, ref queue.Ref, p *pending, now time.Time) error {
	err := s.put(ctx, ref, p, now)
	var full *budget.Error
	if errors.As(err, &full) {
		if err = s.evict(ctx, p.owner, p.Size+logCost); err == nil {
			err = s.put(ctx, ref, p, now)
		}
		if errors.As(err, &full) {
			return nil // nothing is left to make room with
		}
	}
	if err != nil {
		return fmt.Errorf("joblog: write the log of %q: %w", ref.ID, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written[ref] = struct{}{}
	return nil
}

func (s *Service) put(ctx context.Context, ref queue.Ref, p *pending, now time.Time) error {
	fill := func(l *Log) error {
		l.Updated = now.UTC()
		l.Dropped += p.Dropped
		l.add(p.Lines)
		return nil
	}
	_, err := s.store.Update(ctx, ID(ref), fill)
	if !errors.Is(err, ErrNotFound) {
		return err
	}
	l := Log{ID: ID(ref), Owner: p.owner, Endpoint: ref.Endpoint, Job: ref.ID, Created: now.UTC()}
	_ = fill(&l)
	if err = s.store.Create(ctx, l); errors.Is(err, ErrExists) {
		_, err = s.store.Update(ctx, ID(ref), fill)
	}
	return err
}

// evict removes the logs of owner that were not written for the longest time: as much as need, and an eighth
// of all, so that not every write has to.
func (s *Service) evict(ctx context.Context, owner string, need int) error {
	list, err := s.store.List(ctx, owner)
	if err != nil {
		return err
	}
	slices.SortFunc(list, func(a, b Log) int { return a.Updated.Compare(b.Updated) })
	for i := range list {
		need += (list[i].Size + logCost) / 8
	}
	for i, free := 0, 0; i < min(len(list), maxEvicted) && free < need; i++ {
		free += list[i].Size + logCost
		if err := s.remove(ctx, list[i].Ref()); err != nil {
			return err
		}
	}
	return nil
}

// sweepAll removes the logs of jobs that are gone.
func (s *Service) sweepAll(ctx context.Context, now time.Time) error {
	all, err := s.store.All(ctx)
	if err != nil {
		return err
	}
	s.keepWritten(all)
	byEndpoint := map[string][]queue.JobID{}
	for i := range all {
		if now.Sub(all[i].Updated) > sweepGrace {
			byEndpoint[all[i].Endpoint] = append(byEndpoint[all[i].Endpoint], all[i].Job)
		}
	}
	for endpoint, ids := range byEndpoint {
		for some := range slices.Chunk(ids, sweepStep) {
			if err := s.sweepSome(ctx, endpoint, some); err != nil {
				return err
			}
		}
	}
	return nil
}

// keepWritten forgets the logs that another server has removed.
func (s *Service) keepWritten(all []Log) {
	there := make(map[queue.Ref]struct{}, len(all))
	for i := range all {
		there[all[i].Ref()] = struct{}{}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref := range s.written {
		if _, ok := there[ref]; !ok {
			delete(s.written, ref)
		}
	}
}

func (s *Service) sweepSome(ctx context.Context, endpoint string, ids []queue.JobID) error {
	there, err := s.o.There(ctx, endpoint, ids)
	if err != nil && problem.KindOf(err) != problem.NotFound {
		return err
	}
	for _, id := range ids {
		if there[id] {
			continue
		}
		if err := s.remove(ctx, queue.Ref{Endpoint: endpoint, ID: id}); err != nil {
			return err
		}
	}
	return nil
}
