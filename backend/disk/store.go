package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// What opening answers.
var (
	// ErrLocked says that another process, or another Store of this one, has the
	// directory.
	ErrLocked = problem.New(problem.Unavailable, "the directory is in use by another process")
	// ErrFormat says that the directory was written by a program that knows more, or is
	// not a store at all.
	ErrFormat = problem.New(problem.Unavailable, "the directory has an unknown format")
	// ErrKey says that the directory was made with another key.
	ErrKey = problem.New(problem.Unavailable, "the key is not the one that the store was made with")
	// ErrClosed is the answer of a closed Store.
	ErrClosed = problem.New(problem.Unavailable, "the store is closed")
)

// A Store is one directory. It is safe for concurrent use.
//
// When the disk fails it answers with errors of kind problem.Unavailable until it is
// recovered: Run sees to that.
type Store struct {
	dir  string
	opts Options
	lock io.Closer

	current atomic.Pointer[engine] // the database in use
	failed  chan struct{}          // has one element when Run should look
	mu      sync.Mutex             // one opening, closing or backup at a time
	closed  bool
	space   space

	restoring  sync.Mutex // one table at a time is restored
	suspectsMu sync.Mutex
	suspects   map[string]bool // paths of tables that could not be restored
	report     *Report         // of a check or a repair of the directory
	dry        bool            // it is a check
	renumber   bool            // numbers that are on disk may be in use: a part of a log is lost

	podHub    hub[string]
	jobHub    hub[queue.Event]
	pods      Pods
	endpoints Endpoints
	jobs      Jobs
}

// lockName is the file that is locked as long as a Store has the directory. It is the
// database's own, so that its tools keep away, too.
const lockName = "LOCK"

// Open opens the store in dir, which is made if it is not there; opts may be nil. ctx is
// for the opening only. The caller closes the store.
func Open(ctx context.Context, dir string, opts *Options) (*Store, error) {
	s, err := newStore(dir, opts)
	if err != nil {
		return nil, err
	}
	if err := s.opts.fs.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("disk: make %q: %w", dir, err)
	}
	if err := s.acquire(); err != nil {
		return nil, err
	}
	e, err := s.start(ctx)
	if err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.current.Store(e)
	s.space.restoreBallast()
	return s, nil
}

func newStore(dir string, opts *Options) (*Store, error) {
	o, err := opts.settle()
	if err != nil {
		return nil, err
	}
	s := &Store{dir: dir, opts: o, failed: make(chan struct{}, 1)}
	s.pods.s, s.endpoints.s, s.jobs.s = s, s, s
	s.space.init(s)
	return s, nil
}

// acquire locks the directory.
func (s *Store) acquire() (err error) {
	if s.lock, err = s.opts.fs.Lock(s.opts.fs.PathJoin(s.dir, lockName)); err != nil {
		return problem.Newf(problem.Unavailable, "%w: %s: %v", ErrLocked, s.dir, err)
	}
	return nil
}

// Close waits for what is under way and closes the database. The answers that calls have
// been given stay true. What the store has handed out answers ErrClosed from then on.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	e := s.current.Load()
	err := e.stop()
	e.fail(ErrClosed)
	return errors.Join(err, s.lock.Close())
}

// Pods is the store of pods.
func (s *Store) Pods() *Pods { return &s.pods }

// Endpoints is the store of endpoints.
func (s *Store) Endpoints() *Endpoints { return &s.endpoints }

// Jobs is the queue of jobs and the outbox of their webhooks.
func (s *Store) Jobs() *Jobs { return &s.jobs }

var (
	_ pods.PodStore   = (*Pods)(nil)
	_ endpoints.Store = (*Endpoints)(nil)
	_ queue.JobQueue  = (*Jobs)(nil)
)

// Err is nil while the store works, and otherwise what every call answers: an error of
// kind problem.Unavailable that says what failed and where.
func (s *Store) Err() error { return s.current.Load().err() }

// engine is the database in use, or why there is none.
func (s *Store) engine() (*engine, error) {
	e := s.current.Load()
	if err := e.err(); err != nil {
		return nil, err
	}
	return e, nil
}
