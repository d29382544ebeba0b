package postgres

import (
	"context"
	"math"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// A claim takes jobs from the front of an index. While anybody has an old transaction open, the
// database keeps the entries of jobs that were claimed, and a scan from the front reads all of them
// again. So a claim begins at a floor: no row below it can be claimed, now or later, except late
// rows, which have an index of their own.
//
// A row that is not late gets its seq after its transaction has locked job_ready for changes. So
// once all transactions have ended that had this lock just after last_value of the sequence was
// read, every row with a seq up to that value is visible or will never be.

const (
	// The transactions that may add rows which nobody sees yet. Those with the advisory lock add
	// late rows only.
	sqlAdding = `SELECT l.virtualtransaction, l.locktype = 'advisory' FROM pg_locks l
	WHERE l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database()) AND (
		l.locktype = 'relation' AND l.relation = 'podyard.job_ready'::regclass AND l.mode = 'RowExclusiveLock'
		OR l.locktype = 'advisory' AND l.classid = 1886348409 AND l.objid = 1634886658)`

	// sqlLate takes the advisory lock, whose key is 0x706f6479_61726402.
	sqlLate = `pg_advisory_xact_lock_shared(8101804727151518722)`

	sqlAssigned = `SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM podyard.job_seq`

	// What gives numbers to rows that are not late begins with this.
	sqlAdds = `LOCK TABLE podyard.job_ready IN ROW EXCLUSIVE MODE`

	sqlFirst = `SELECT r.seq FROM podyard.job_endpoints e, LATERAL (SELECT r.seq FROM podyard.job_ready r
		WHERE r.ep = e.ep AND r.owner = e.owner AND r.prio = e.prio AND r.key = e.key AND r.seq >= $2 AND NOT r.late ORDER BY r.seq LIMIT 1) r
	WHERE e.ep = $1 AND NOT e.mixed`
)

const (
	// floorPause is the shortest time between two looks, and floorClaims how many jobs of an
	// endpoint are claimed before it is worth one.
	floorPause  = 50 * time.Millisecond
	floorClaims = 32
	// floorAnew is how often a look begins at 0, in case that something is below a floor.
	floorAnew = time.Minute
)

// A floor is the seq from which on claims of an endpoint with one line read.
type floor struct {
	seq     int64
	claimed int       // jobs since the last look
	anew    time.Time // the last look that began at 0
}

// floors are the floors of endpoints, which a goroutine raises while there are claims.
type floors struct {
	q     *Jobs
	worth int           // claims
	pause time.Duration // between two looks

	mu      sync.Mutex
	list    map[string]*floor
	resets  int
	busy    bool
	next    time.Time // of the next look
	open    map[string]bool
	bound   int64 // known when the transactions of open have ended; 0: there was no look
	settled int64 // no row that is not late appears with a seq up to this one
}

// reset forgets all floors. A pooler hides a crash of the database, so there are none behind one.
func (f *floors) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets++
	f.list, f.open, f.bound, f.settled = map[string]*floor{}, nil, 0, 0
}

// of returns the floor of an endpoint. A transaction asks after it has its connection.
func (f *floors) of(endpoint string) int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	if e := f.list[endpoint]; e != nil && !f.q.s.pooled {
		return e.seq
	}
	return 0
}

// claimed counts claims, and looks for higher floors when it is time.
func (f *floors) claimed(ctx context.Context, jobs map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.q.s.opts.Clock.Now()
	worth := false
	for endpoint, n := range jobs {
		e := f.list[endpoint]
		if e == nil {
			e = &floor{anew: now}
			f.list[endpoint] = e
		}
		e.claimed += n
		worth = worth || e.claimed >= f.worth
	}
	if !worth || f.q.s.pooled || f.busy || now.Before(f.next) {
		return
	}
	f.busy, f.next = true, now.Add(f.pause)
	ctx = context.WithoutCancel(ctx)
	f.q.s.running.Go(func() { f.run(ctx) })
}

func (f *floors) run(ctx context.Context) {
	err := f.look(ctx)
	f.mu.Lock()
	f.busy = false
	f.mu.Unlock()
	if err != nil {
		f.q.s.opts.Logger.Warn("claims may be slower than they could be", "err", err)
	}
}

// A floorLook is what a look has seen, in this order.
type floorLook struct {
	resets int
	from   map[string]int64

	last  int64
	open  map[string]bool
	first map[string]int64
}

// look reads where rows begin, and raises the floors.
func (f *floors) look(ctx context.Context) error {
	l := f.begin()
	err := f.q.transact(ctx, func(t *jobTx) error {
		b := &pgx.Batch{}
		b.Queue(sqlAssigned).QueryRow(func(row pgx.Row) error { return row.Scan(&l.last) })
		b.Queue(sqlAdding).Query(l.readOpen)
		for ep, from := range l.from {
			b.Queue(sqlFirst, []byte(ep), from).Query(func(rows pgx.Rows) error {
				list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
				if len(list) > 0 {
					l.first[ep] = list[0]
				}
				return err
			})
		}
		return t.commit(ctx, b, true)
	})
	if err == nil {
		f.raise(l)
	}
	return err
}

// begin chooses the endpoints of a look.
func (f *floors) begin() *floorLook {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := f.q.s.opts.Clock.Now()
	l := &floorLook{resets: f.resets, from: map[string]int64{}, first: map[string]int64{}}
	for ep, e := range f.list {
		if e.claimed < f.worth {
			continue
		}
		l.from[ep] = e.seq
		if now.Sub(e.anew) >= floorAnew {
			l.from[ep], e.anew = 0, now
		}
	}
	return l
}

func (l *floorLook) readOpen(rows pgx.Rows) error {
	l.open = map[string]bool{}
	late := map[string]bool{}
	var tx string
	var isLate bool
	_, err := pgx.ForEachRow(rows, []any{&tx, &isLate}, func() error {
		if isLate {
			late[tx] = true
		} else {
			l.open[tx] = true
		}
		return nil
	})
	for tx := range late {
		delete(l.open, tx)
	}
	return err
}

// raise sets the floors to what a look has seen.
func (f *floors) raise(l *floorLook) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.resets != l.resets {
		return
	}
	for tx := range f.open {
		if !l.open[tx] {
			delete(f.open, tx)
		}
	}
	if len(f.open) == 0 {
		f.settled, f.bound, f.open = f.bound, l.last, l.open
	}
	for ep := range l.from {
		e := f.list[ep]
		if e == nil {
			continue
		}
		e.claimed = 0
		e.seq = f.settled + 1
		if first, ok := l.first[ep]; ok {
			e.seq = min(e.seq, first)
		}
	}
}

const (
	// dueLag is how far behind the present the floor of job_due is. Jobs are armed for later than the
	// present, so a row appears below it only if the clocks of servers differ by more, or if a
	// transaction takes longer.
	dueLag = 10_000
	// dueAnew is how often, and dueShare for which part of the time, a sweep begins at 0 and finds
	// those rows, too.
	dueAnew  = 10 * time.Second
	dueShare = 50
)

// dueFloor is the instant from which on sweeps read job_due: the index keeps entries as that of
// ready rows does.
type dueFloor struct {
	q *Jobs

	mu    sync.Mutex
	at    queue.Instant
	low   queue.Instant // the earliest that was armed here since the sweep began
	busy  bool          // a sweep will set the floor
	from0 time.Time     // when a sweep begins at 0 next
}

// begin returns where a sweep at now begins to read. done is called with the instant that it has found
// to be next.
func (d *dueFloor) begin(now queue.Instant) (from queue.Instant, done func(next queue.Instant, err error)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.busy {
		return d.at, func(queue.Instant, error) {}
	}
	began := d.q.s.opts.Clock.Now()
	d.busy, d.low = true, math.MaxInt64
	from = d.at
	anew := d.q.s.pooled || !began.Before(d.from0)
	if anew {
		from = 0
	}
	return from, func(next queue.Instant, err error) {
		d.mu.Lock()
		defer d.mu.Unlock()
		d.busy = false
		if err != nil {
			return
		}
		d.at = min(now-dueLag, d.low)
		if next != 0 {
			d.at = min(d.at, next)
		}
		if ended := d.q.s.opts.Clock.Now(); anew {
			d.from0 = ended.Add(max(dueAnew, dueShare*ended.Sub(began)))
		}
	}
}

// armed lowers the floor before a job is armed.
func (d *dueFloor) armed(at queue.Instant) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at, d.low = min(d.at, at), min(d.low, at)
}
