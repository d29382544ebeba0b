package disk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/bloom"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/schedules"
)

// An engine is one opened database with all of its data that is kept in memory. The first
// failed write ends the engine. A new engine then starts from what is on disk.
type engine struct {
	copying sync.Mutex // held by a backup, which must not lose the database

	s     *Store
	db    *pebble.DB
	opts  *pebble.Options
	fs    *fence
	meta  meta
	seals sealer

	cause  atomic.Pointer[error]
	failed chan struct{} // closed after cause is set
	ending sync.Once

	queue  chan *commit       // to commitLoop
	spare  chan *pebble.Batch // of groups that are written
	sync   chan *group        // from commitLoop to syncLoop
	idle   chan struct{}      // signalled when syncing becomes 0
	many   chan struct{}      // signalled when queue has gatherLength commits
	done   chan struct{}
	sendMu sync.RWMutex // read-locked while sending to queue
	closed bool         // nothing may be sent to queue any more

	syncing atomic.Int64  // groups that wait for their sync
	ordered atomic.Int64  // groups with ordered commits that wait for their sync
	unshown atomic.Uint64 // number of the last group that added jobs that need not be durable
	synced  atomic.Uint64 // number of the last group that is durable, and with it all before it

	unflushed atomic.Int64 // since when something is written that the file system may not have; 0: nothing is
	flushing  atomic.Bool  // flushAt waits
	flushed   atomic.Int64 // when a group was synced last
	claims    atomic.Int64 // of mayFlush

	staging staging

	pods         podTable
	reservations reservationTable
	endpoints    table[endpoints.Endpoint]
	registries   table[registries.Registry]
	volumes      table[volumes.Volume]
	templates    table[templates.Template]
	sshKeys      table[[]string]
	accounts     table[accounts.Key]
	secrets      table[secrets.Secret]
	schedules    table[schedules.Schedule]
	batches      table[batches.Batch]
	jobLogs      table[joblog.Log]
	uses         table[pods.Usage]
	tallies      []*budget.Tally // of the tables
	keyed        keyedTable
	jobs         jobQueue

	lost         map[byte]bool   // kinds of records with records that cannot be read
	lostPayloads map[uint64]bool // jobs that have lost payloads
}

// start opens the database and loads the data that is kept in memory. If it finds damage that
// can be isolated, it isolates the damage and starts again.
func (s *Store) start(ctx context.Context) (*engine, error) {
	isolated, searched := false, false // already tried
	for {
		changed := false
		if len(s.suspected()) > 0 {
			var err error
			if changed, err = s.isolate(ctx); err != nil {
				return nil, unavailable("isolate what is damaged", err)
			}
		}
		e, err := s.openDB(nil)
		if err == nil {
			if err = e.startUp(ctx); err == nil {
				return e, e.dropProtection()
			}
		} else if !searched { // tables may be missing
			searched = true
			if s.verifyTables(ctx, false) == nil {
				continue
			}
		}
		if len(s.suspected()) == 0 || !changed && isolated {
			return nil, err
		}
		isolated = true
	}
}

// startUp loads the data that is kept in memory. After an error the database is closed.
func (e *engine) startUp(ctx context.Context) error {
	if err := e.begin(ctx); err != nil {
		return unavailable("open the store", errors.Join(e.given(err), e.closeDB()))
	}
	if err := e.jobs.recover(ctx); err != nil {
		return errors.Join(err, e.stop())
	}
	e.fs.patient.Store(true)
	return e.err()
}

// openDB opens the database without loading data. change modifies the options and may be nil.
func (s *Store) openDB(change func(*pebble.Options)) (_ *engine, err error) {
	e := s.newEngine()
	if change != nil {
		change(e.opts)
	}
	defer func() {
		// A damaged database can also make its reader panic.
		if r := recover(); r != nil {
			err = fmt.Errorf("disk: open %q: %v", s.dir, r)
		}
		if err != nil {
			e.fs.close()
			err = unavailable("open the store", err)
		}
	}()
	for _, prepare := range []func() error{s.finishRebuild, s.checkMarkers, s.verifyLogs, e.hideOptions} {
		if err := prepare(); err != nil {
			return nil, err
		}
	}
	if e.db, err = pebble.Open(s.dir, e.opts); err != nil {
		return nil, e.given(err)
	}
	if err := e.sweepFiles(); err != nil {
		return nil, errors.Join(err, e.closeDB())
	}
	return e, nil
}

// newEngine returns an engine without a database.
func (s *Store) newEngine() *engine {
	e := &engine{
		s: s, failed: make(chan struct{}), seals: sealer{s.opts.Key, s.opts.OldKeys},
		queue: make(chan *commit, queueLength), sync: make(chan *group, syncLength), done: make(chan struct{}),
		spare: make(chan *pebble.Batch, spareBatches), idle: make(chan struct{}, 1), many: make(chan struct{}, 1),
	}
	e.fs = newFence(s.opts.fs, s.dir, func(what, name string, err error) {
		e.fail(problem.Newf(problem.Unavailable, "the store failed: %s %s: %w", what, name, err))
	})
	e.staging.less.L = &e.staging.mu
	e.fs.short, e.fs.room = s.space.short, &s.space
	e.opts = s.pebbleOptions(e)
	return e
}

// closeDB closes a database that is not in use.
func (e *engine) closeDB() error {
	err := e.db.Close()
	e.fs.close()
	return err
}

// begin loads the data that is kept in memory, and starts the committer.
func (e *engine) begin(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("disk: open %q: %v", e.s.dir, r)
		}
	}()
	if err := e.load(ctx); err != nil {
		return err
	}
	if err := e.err(); err != nil {
		return err
	}
	go e.commitLoop()
	go e.syncLoop()
	return nil
}

// unavailable adds a kind to an error of the database, unless it has one.
func unavailable(what string, err error) error {
	var p *problem.Error
	if errors.As(err, &p) {
		return err
	}
	if pebble.IsCorruptionError(err) {
		return problem.Newf(problem.Unavailable, "%w: %s: %v", ErrDamaged, what, err)
	}
	return problem.Newf(problem.Unavailable, "the store cannot %s: %w", what, err)
}

const (
	memTable = 64 << 20
	format   = pebble.FormatValueSeparation
)

func (s *Store) pebbleOptions(e *engine) *pebble.Options {
	o := &pebble.Options{
		FS: e.fs, Logger: pebbleLogger{e}, Merger: counterMerger(),
		MemTableSize: memTable, MemTableStopWritesThreshold: 4,
		L0CompactionThreshold: 4, L0StopWritesThreshold: 64, LBaseMaxBytes: 256 << 20,
		FormatMajorVersion: format, MaxOpenFiles: 1000, DisableAutomaticCompactions: s.dry,
		EventListener: &pebble.EventListener{DataCorruption: e.damagedTable},
	}
	cache := s.opts.Cache
	if _, inMemory := vfs.Root(s.opts.fs).(*vfs.MemFS); inMemory {
		o.MemTableSize, cache = 1<<20, 1<<20
	}
	if n := s.opts.memTable; n != 0 {
		o.MemTableSize = n
	}
	// The database takes its tables in memory out of the cache: the active one, and one that
	// is being flushed or reused.
	o.CacheSize = cache + 2*int64(o.MemTableSize)
	// A claim reads one input. With a backlog the input is in the lowest level, and the next
	// claims read the inputs that follow it.
	for i := range o.Levels {
		o.Levels[i].FilterPolicy = bloom.FilterPolicy(10)
		o.Levels[i].BlockSize = 32 << 10
	}
	o.EnsureDefaults()
	return o
}

// load loads everything but payloads.
func (e *engine) load(ctx context.Context) error {
	if err := errors.Join(e.loadGaps(), e.loadMeta()); err != nil {
		return err
	}
	if err := errors.Join(e.sweepIntents(), e.removeFiles(e.fs.hidden)); err != nil {
		return err
	}
	claims := &ledger{sums: map[string]*claimed{}, whole: func() error {
		return e.missing(keyPod, e.missing(keyReservation, nil))
	}}
	e.countRecords()
	if err := e.pods.load(e, claims); err != nil {
		return err
	}
	if err := e.reservations.load(e, claims); err != nil {
		return err
	}
	if err := e.endpoints.load(e, keyEndpoint, decodeJSON[endpoints.Endpoint]); err != nil {
		return err
	}
	if err := e.registries.load(e, keyRegistry, decodeRegistry); err != nil {
		return err
	}
	if err := e.volumes.load(e, keyVolume, decodeJSON[volumes.Volume]); err != nil {
		return err
	}
	if err := e.templates.load(e, keyTemplate, decodeJSON[templates.Template]); err != nil {
		return err
	}
	if err := e.uses.load(e, keyUse, decodeJSON[pods.Usage]); err != nil {
		return err
	}
	if err := e.sshKeys.load(e, keySSHKeys, decodeJSON[[]string]); err != nil {
		return err
	}
	if err := e.accounts.load(e, keyAccount, decodeJSON[accounts.Key]); err != nil {
		return err
	}
	if err := e.secrets.load(e, keySecret, decodeSecret); err != nil {
		return err
	}
	if err := e.schedules.load(e, keySchedule, decodeSchedule); err != nil {
		return err
	}
	if err := e.batches.load(e, keyBatch, decodeJSON[batches.Batch]); err != nil {
		return err
	}
	if err := e.jobLogs.load(e, keyJobLog, listedJobLog); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return e.jobs.load(ctx, e)
}

// each calls fn with every record with the prefix. It stops at a damaged record.
func each(r pebble.Reader, prefix []byte, fn func(key, value []byte) error) error {
	return eachRecord(r, prefix, func(key, value []byte, err error) error {
		if err != nil {
			return err
		}
		return fn(key, value)
	})
}

// eachRecord also calls fn for a record that does not match its checksum, with the error.
func eachRecord(r pebble.Reader, prefix []byte, fn func(key, value []byte, err error) error) error {
	from, to := prefixRange(prefix)
	return eachIn(r, from, to, fn)
}

// eachIn is eachRecord for a range of keys of one kind; to is not included.
func eachIn(r pebble.Reader, from, to []byte, fn func(key, value []byte, err error) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = unavailable("read", fmt.Errorf("%v", p)) // the database was closed meanwhile
		}
	}()
	it, err := r.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: to})
	if err != nil {
		return unavailable("read", err)
	}
	for it.First(); it.Valid(); it.Next() {
		v, err := it.ValueAndErr()
		if err != nil {
			return unavailable("read", errors.Join(err, it.Close()))
		}
		if from[0] != keyCount {
			v, err = verify(it.Key(), v)
		}
		if err := fn(it.Key(), v, err); err != nil {
			return unavailable("read", errors.Join(err, it.Close()))
		}
	}
	if err := it.Close(); err != nil {
		return unavailable("read", err)
	}
	return nil
}

// get reads one record. The caller owns value. ok is false if there is no record.
func (e *engine) get(key []byte) (value []byte, ok bool, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = e.given(fmt.Errorf("read: %v", r)) // the database was closed meanwhile
		}
	}()
	v, closer, err := e.db.Get(key)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, e.given(unavailable("read "+kindNames[key[0]], err))
	}
	plain, err := verify(key, v)
	value = append([]byte{}, plain...)
	if cerr := closer.Close(); err == nil && cerr != nil {
		err = unavailable("read "+kindNames[key[0]], cerr)
	}
	if err != nil {
		return nil, false, err
	}
	return value, true, nil
}

// given returns the error that ended the engine, if there is one, and otherwise err.
func (e *engine) given(err error) error {
	if cause := e.err(); cause != nil {
		return cause
	}
	return err
}

func (e *engine) err() error {
	if c := e.cause.Load(); c != nil {
		return *c
	}
	return nil
}

// fail ends the use of the database. The first error is kept.
func (e *engine) fail(err error) {
	if !e.cause.CompareAndSwap(nil, &err) {
		return
	}
	close(e.failed)
	if !errors.Is(err, ErrClosed) {
		e.s.opts.Logger.Error("the store failed", "dir", e.s.dir, "err", err)
	}
	select {
	case e.s.failed <- struct{}{}:
	default:
	}
}

// pebbleLogger is the logger of the database. The database calls Fatalf when it cannot
// continue, and expects it to end the process. Here it only ends the engine.
type pebbleLogger struct{ e *engine }

func (pebbleLogger) Infof(string, ...any) {}

func (q pebbleLogger) Errorf(text string, args ...any) {
	if q.e.err() == nil {
		q.e.s.opts.Logger.Error("database", "dir", q.e.s.dir, "err", strings.TrimSpace(fmt.Sprintf(text, args...)))
	}
}

func (q pebbleLogger) Fatalf(text string, args ...any) {
	q.e.fail(problem.Newf(problem.Unavailable, "the store failed: %s", fmt.Sprintf(text, args...)))
}
