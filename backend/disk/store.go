package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/hub"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
)

// Errors of Open and of a closed Store.
var (
	// ErrLocked: another process, or another Store of this process, has the directory open.
	ErrLocked = problem.New(problem.Unavailable, "the directory is in use")
	// ErrFormat: the directory was written by a newer version, or is not a store.
	ErrFormat = problem.New(problem.Unavailable, "the directory has an unknown format")
	// ErrKey: the directory was created with another key.
	ErrKey = problem.New(problem.Unavailable, "the key is not the one that the store was made with")
	// ErrClosed: the Store is closed.
	ErrClosed = problem.New(problem.Unavailable, "the store is closed")
)

// A Store stores everything in one directory. It is safe for concurrent use.
//
// When the disk fails, all calls return errors of kind problem.Unavailable until the store is
// recovered. Run does that.
type Store struct {
	dir  string
	opts Options
	lock io.Closer

	current atomic.Pointer[engine] // the database in use
	failed  chan struct{}          // has one element when Run has to check the store
	mu      sync.Mutex             // one opening or closing at a time
	closed  bool
	copying sync.Mutex // held by a backup, and for the end
	space   space
	running atomic.Int64               // calls of Run
	limits  atomic.Pointer[budget.Set] // nil: none

	suspectsMu sync.Mutex
	suspects   map[string]bool // paths of tables that are damaged
	report     *Report         // of a running check or repair of the directory
	dry        bool            // the report is of a check: change nothing
	logs       logDamage

	moved     func([]queue.Moved) // what Report was called with; may be nil
	recovered []queue.Moved       // moves of the opening, until Report
	damages   atomic.Int64        // records and tables that were found damaged

	podHub    hub.Hub[string]
	jobHub    hub.Hub[queue.Event]
	pods      Pods
	endpoints Endpoints
	jobs      Jobs
}

// lockName is the file that is locked while a Store has the directory open. It is the lock
// file of the database, so that the tools of the database are locked out, too.
const lockName = "LOCK"

// Open opens the store in dir, and creates dir if it does not exist. opts may be nil. ctx
// applies to the opening only. The caller must close the store.
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
	if err := tighten(s.opts.fs, dir); err != nil {
		return nil, errors.Join(fmt.Errorf("disk: change modes in %q: %w", dir, err), s.lock.Close())
	}
	if _, ok := s.opts.fs.(ownerOnly); ok {
		if why := whyVolatile(dir); why != "" {
			s.opts.Logger.Warn("the directory of the store does not keep what is synced", "dir", dir, "reason", why)
		}
	}
	e, err := s.start(ctx)
	if err != nil {
		return nil, errors.Join(err, s.lock.Close())
	}
	s.current.Store(e)
	if !s.space.reserve.restore() {
		signal(s.space.reserve.given) // Run makes it when there is room
	}
	s.space.reserve.spare()
	return s, nil
}

func newStore(dir string, opts *Options) (*Store, error) {
	o, err := opts.settle()
	if err != nil {
		return nil, err
	}
	s := &Store{dir: clean(o.fs, dir), opts: o, failed: make(chan struct{}, 1)}
	s.pods.s, s.endpoints.s, s.jobs.s = s, s, s
	s.space.init(s)
	return s, nil
}

// clean returns the name of a directory without "./", "//" and a slash at the end. Names of files
// are compared as text, so a directory must have one name however the program has written it.
func clean(fs vfs.FS, dir string) string { return fs.PathJoin(dir) }

func (s *Store) acquire() (err error) {
	if s.lock, err = s.opts.fs.Lock(s.opts.fs.PathJoin(s.dir, lockName)); err != nil {
		return problem.Newf(problem.Unavailable, "%w: %s: %v", ErrLocked, s.dir, err)
	}
	return nil
}

// Close finishes the changes under way and closes the database. Acknowledged changes stay
// durable. After Close, the store and everything obtained from it return ErrClosed. A second
// Close returns nil.
func (s *Store) Close() error {
	s.current.Load().fs.patient.Store(false) // a backup may wait for room on the disk
	s.copying.Lock()
	defer s.copying.Unlock()
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

// Pods returns the store of pods.
func (s *Store) Pods() *Pods { return &s.pods }

// Endpoints returns the store of endpoints.
func (s *Store) Endpoints() *Endpoints { return &s.endpoints }

// Jobs returns the queue of jobs, which includes the outbox of their webhooks.
func (s *Store) Jobs() *Jobs { return &s.jobs }

var (
	_ pods.PodStore   = (*Pods)(nil)
	_ endpoints.Store = (*Endpoints)(nil)
	_ queue.JobQueue  = (*Jobs)(nil)
)

// Err returns nil while the store works. Otherwise it returns the error that every call
// returns: of kind problem.Unavailable, with what failed and where.
func (s *Store) Err() error { return s.current.Load().err() }

// engine returns the database in use, or the error why there is none.
func (s *Store) engine() (*engine, error) {
	e := s.current.Load()
	if err := e.err(); err != nil {
		return nil, err
	}
	return e, nil
}
