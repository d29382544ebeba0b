package postgres

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

// A jobTx is a transaction whose first and last statements go with others in one round trip. One
// that is a single batch needs neither: the database makes a batch in a transaction.
type jobTx struct {
	conn   *pgxpool.Conn
	pooled bool // the transaction begins with the settings of plans
	open   bool
	ends   bool // the last statements were sent
}

// transact runs fn, which ends with commit, in a transaction. fn may run more than once.
func (q *Jobs) transact(ctx context.Context, fn func(t *jobTx) error) error {
	err := q.s.repeatIn(ctx, q.pool, func(c *pgxpool.Conn) error {
		t := &jobTx{conn: c, pooled: q.s.pooled}
		err := fn(t)
		if err == nil {
			return nil
		}
		if t.open {
			rollback(ctx, c)
		}
		if t.ends {
			return err
		}
		return &unchanged{err}
	})
	if err == nil {
		q.s.troubles.works()
	}
	return err
}

// begin begins the transaction if nothing did: what follows is not sent with send.
func (t *jobTx) begin(ctx context.Context) error {
	if t.open {
		return nil
	}
	return t.send(ctx, &pgx.Batch{})
}

// send makes the statements of a batch in one round trip, after those that begin the transaction if
// nothing did.
func (t *jobTx) send(ctx context.Context, b *pgx.Batch) error {
	if !t.open {
		t.open = true
		first := &pgx.Batch{}
		first.Queue(begin)
		if t.pooled {
			first.Queue(localPlanSettings)
		}
		b.QueuedQueries = append(first.QueuedQueries, b.QueuedQueries...)
	}
	return t.sendBatch(ctx, b)
}

func (t *jobTx) sendBatch(ctx context.Context, b *pgx.Batch) error {
	makeSpace(t.conn.Conn(), b)
	return t.conn.SendBatch(ctx, b).Close()
}

// commit makes the statements of a batch and commits. What is not durable may be lost if the
// database crashes.
func (t *jobTx) commit(ctx context.Context, b *pgx.Batch, durable bool) error {
	if !durable {
		b.Queue(sqlAsync)
	}
	t.ends = true
	if !t.open && !t.pooled {
		return t.sendBatch(ctx, b)
	}
	b.Queue("COMMIT")
	err := t.send(ctx, b)
	t.open = t.open && err != nil
	return err
}

// queueLock adds a query for rows with lockedColumns to a batch.
func queueLock(b *pgx.Batch, list *[]*jobRow, sql string, args ...any) {
	b.Queue(sql, args...).Query(func(rows pgx.Rows) (err error) {
		*list, err = lockedRows(rows)
		return err
	})
}

// A moveCall is a call of Apply.
type moveCall struct {
	now    queue.Instant
	ops    []queue.Op
	res    []queue.Result
	answer answer
}

func (c *moveCall) size() (items, bytes int) {
	for i := range c.ops {
		bytes += len(c.ops[i].Payload) + len(c.ops[i].Error)
	}
	return len(c.ops), bytes
}

// Apply implements queue.JobQueue.
func (q *Jobs) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	if len(ops) == 0 {
		return nil
	}
	c := &moveCall{now: now, ops: slices.Clone(ops), res: make([]queue.Result, len(ops)), answer: newAnswer()}
	if err := q.moved.push(ctx, c); err != nil {
		return err
	}
	if err := c.answer.await(ctx); err != nil {
		return err
	}
	copy(res, c.res)
	return nil
}

// moveAll makes the moves of some calls in one transaction.
func (q *Jobs) moveAll(ctx context.Context, calls []*moveCall, rows *counterRows) {
	evs, err := q.moveOnce(ctx, calls, rows)
	if mayBeOfOne(err) && len(calls) > 1 {
		for i := range calls {
			q.moveAll(ctx, calls[i:i+1], rows)
		}
		return
	}
	q.publish(ctx, evs)
	for _, c := range calls {
		c.answer <- err
	}
}

// moveOnce makes the moves without reading the jobs first, if all are known. If that fails, it reads
// them.
func (q *Jobs) moveOnce(ctx context.Context, calls []*moveCall, rows *counterRows) (evs []queue.Event, err error) {
	refs := refsOf(calls, func(*queue.Op) bool { return true })
	m, err := q.moveJobs(ctx, calls, refs, rows, q.held.take)
	if errors.Is(err, errChanged) || mayBeOfOne(err) && m != nil && len(m.unlocked) > 0 {
		q.held.forget(refs)
		m, err = q.moveJobs(ctx, calls, refs, rows, noneKnown)
	}
	if err != nil {
		q.held.forget(refs)
		if errors.Is(err, ErrUnknown) && m != nil {
			q.unsure.add(q.s.opts.Clock.Now(), m.moves)
		}
		return nil, err
	}
	q.unsure.forget(m.repeated)
	q.held.moved(m.moves)
	return m.evs, nil
}

func noneKnown([]queue.Ref) (rows []*jobRow, all bool) { return nil, false }

func (q *Jobs) moveJobs(ctx context.Context, calls []*moveCall, refs []queue.Ref, rows *counterRows, take func([]queue.Ref) ([]*jobRow, bool)) (m *mover, err error) {
	epoch, err := q.node(ctx)
	if err != nil {
		return nil, err
	}
	err = q.transact(ctx, func(t *jobTx) error {
		m = newMover(t, epoch, rows)
		known, all := take(refs)
		m.hold(known)
		var lock []queue.Ref
		if !all {
			// Also those that are known: all are locked in one order. Else two servers that each lock the jobs
			// of the other and then change their own wait for each other.
			lock = refs
		}
		if m.room, err = q.roomFor(ctx, m, lock, calls); err != nil {
			return err
		}
		m.moves = slices.Grow(m.moves, len(refs))
		for _, c := range calls {
			if err := m.call(ctx, c); err != nil {
				return err
			}
		}
		if err := m.checkKnown(); err != nil {
			return err
		}
		return m.commit(ctx, &pgx.Batch{}, nil, nil)
	})
	return m, err
}

// refsOf returns the jobs of some ops in the order in which they are locked.
func refsOf(calls []*moveCall, of func(*queue.Op) bool) (refs []queue.Ref) {
	for _, c := range calls {
		for i := range c.ops {
			if of(&c.ops[i]) {
				refs = append(refs, c.ops[i].Ref)
			}
		}
	}
	slices.SortFunc(refs, compareRefs)
	return slices.Compact(refs)
}

func compareRefs(a, b queue.Ref) int {
	return cmp.Or(cmp.Compare(a.Endpoint, b.Endpoint), cmp.Compare(a.ID, b.ID))
}

// A mover moves jobs that are locked or known, and collects what the transaction writes.
type mover struct {
	t        *jobTx
	epoch    int64
	counted  *counterRows
	dues     *dueFloor
	texts    *mergedTexts
	unsure   *unsureMoves
	repeated []*unsureMove
	rows     map[queue.Ref]*jobRow
	unlocked []*jobRow
	rounds   []*writes // several moves of one job are in successive rounds
	depth    map[*jobRow]int
	copied   int // the last round with dead letters or webhooks
	moves    []roundMove
	arm      map[*jobRow]queue.Instant // the job is looked at anew; by the instant of its last move
	counts   counts
	holds    holdings
	room     *room
	durable  bool
	evs      []queue.Event
	seqs     []int64
}

type roundMove struct {
	move
	round int
}

func newMover(t *jobTx, epoch int64, counted *counterRows) *mover {
	return &mover{
		t: t, epoch: epoch, counted: counted, dues: &counted.q.dues, texts: &counted.q.texts, unsure: &counted.q.unsure, rows: map[queue.Ref]*jobRow{}, depth: map[*jobRow]int{},
		arm: map[*jobRow]queue.Instant{}, counts: counts{}, holds: holdings{},
	}
}

// lock locks jobs and reads them, all that are moved or none.
func (m *mover) lock(ctx context.Context, b *pgx.Batch, refs []queue.Ref) error {
	if len(refs) == 0 && b.Len() == 0 {
		return nil
	}
	ep, id := refColumns(refs)
	var list []*jobRow
	if len(refs) > 0 {
		m.unlocked = nil
		clear(m.rows)
		queueLock(b, &list, sqlLock, ep, id)
	}
	if err := m.t.send(ctx, b); err != nil {
		return err
	}
	for _, r := range list {
		m.rows[r.job.Ref] = r
	}
	return nil
}

func refColumns(refs []queue.Ref) (ep, id [][]byte) {
	ep, id = make([][]byte, len(refs)), make([][]byte, len(refs))
	for i, r := range refs {
		ep[i], id[i] = []byte(r.Endpoint), []byte(r.ID)
	}
	return ep, id
}

func (m *mover) call(ctx context.Context, c *moveCall) (err error) {
	for i := range c.ops {
		r := m.rows[c.ops[i].Ref]
		if r == nil {
			c.res[i] = queue.Result{Err: queue.ErrNotFound}
			continue
		}
		if c.res[i], err = m.move(ctx, c.now, r, &c.ops[i]); err != nil {
			return err
		}
	}
	return nil
}

// move applies an op to a job.
func (m *mover) move(ctx context.Context, now queue.Instant, r *jobRow, op *queue.Op) (res queue.Result, err error) {
	if u := m.unsure.find(r, op, m.repeated); u != nil {
		m.repeated = append(m.repeated, u)
		m.evs = u.res.Effect.Events(m.evs, r.job.Ref, u.worker)
		return u.res, nil
	}
	before := r.job.State
	res.State = before
	res.Effect, res.Err = res.State.Apply(now, op)
	m.room.fits(r, &before, &res, op)
	if res.Err == nil && res.Effect&queue.TakeKey != 0 {
		if err := m.takeKey(ctx, now, r, &before, &res); err != nil {
			return res, err
		}
	}
	sealed := m.sealInput(r, &before, &res, op)
	if res.Effect&queue.NewSeq != 0 {
		if res.State.Seq, err = m.nextSeq(ctx); err != nil {
			return res, err
		}
	}
	late := op.Kind == queue.OpTick && r.armed <= now
	if res.Effect == 0 && !late {
		return res, nil
	}
	if late || m.armsAnew(r, &before, &res) {
		m.arm[r] = now
	}
	m.evs = res.Effect.Events(m.evs, r.job.Ref, before.Worker)
	m.counts.of(r.job.Endpoint).move(&before, &res.State, res.Effect)
	m.holds.move(r.job.Owner, &before, &res.State, res.Effect)
	m.durable = m.durable || res.Effect&queue.Delete != 0 || op.Kind.Durable() && res.Effect != 0
	round := m.depth[r]
	if res.Effect&(queue.PutDead|queue.PutOutbox) != 0 { // they have an order
		round = max(round, m.copied)
		m.copied = round
	}
	m.moves = append(m.moves, roundMove{move{now, r, before, res.State, res.Effect, op, sealed}, round})
	m.depth[r] = round + 1
	r.job.State = res.State
	if res.Effect&queue.Delete != 0 {
		delete(m.rows, r.job.Ref)
		delete(m.arm, r)
	}
	return res, nil
}

// armsAnew reports whether a job must be looked at earlier than planned, or under another Seq, or
// need not be looked at when its lease would have ended.
func (m *mover) armsAnew(r *jobRow, before *queue.State, res *queue.Result) bool {
	return res.Effect&queue.NewSeq != 0 || res.State.Due() < r.armed || res.State.Status.Terminal() && !before.Status.Terminal()
}

// nextSeq returns the next place in the queue.
func (m *mover) nextSeq(ctx context.Context) (uint64, error) {
	if len(m.seqs) == 0 {
		b := &pgx.Batch{}
		b.Queue(sqlNextSeqs, min(max(len(m.rows), 1), m.counted.q.sizes.items)).Query(func(rows pgx.Rows) (err error) {
			m.seqs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
		if err := m.t.send(ctx, b); err != nil {
			return 0, err
		}
	}
	n := m.seqs[0]
	m.seqs = m.seqs[1:]
	return uint64(n), nil
}

// commit writes what was moved and commits. last is a query that goes with it; it may be empty.
func (m *mover) commit(ctx context.Context, b *pgx.Batch, last merged, read func(rows pgx.Rows) error) error {
	list := m.write(b)
	if len(m.unlocked) > 0 {
		list = append(list, statement{sqlAsKnown, []any{len(m.rounds[0].update.ep)}})
	}
	if q := append(list, last...).queue(b, m.texts); len(last) > 0 {
		q.Query(read)
	}
	if n := len(m.rounds); n > 0 {
		m.rounds[n-1].last(b)
	}
	return m.t.commit(ctx, b, m.durable)
}

// write adds the statements to a batch that write what was moved, and returns those that can be made
// as one after these.
func (m *mover) write(b *pgx.Batch) (list merged) {
	armed := m.armed()
	slot := m.counted.use(m.epoch, maps.Keys(m.counts), maps.Keys(m.holds))
	for i := range m.moves {
		for len(m.rounds) <= m.moves[i].round {
			w := &writes{epoch: m.epoch, slot: slot}
			if len(m.rounds) == 0 {
				w.grow(len(m.moves))
			}
			m.rounds = append(m.rounds, w)
		}
		m.rounds[m.moves[i].round].add(&m.moves[i].move)
	}
	m.sortMoves()
	for i := range m.moves {
		if v := &m.moves[i]; v.effect&queue.Delete == 0 {
			m.rounds[v.round].put(v.row, &v.after)
		}
	}
	for i, w := range m.rounds {
		w.first(b)
		list = w.main()
		if i < len(m.rounds)-1 {
			list.queue(b, m.texts)
			w.last(b)
		}
	}
	armed.add(&list)
	m.counts.add(&list, slot)
	m.holds.add(&list, slot)
	return list
}

// armed says when the jobs that moved are looked at next.
func (m *mover) armed() (list armings) {
	var first queue.Instant
	for i := range m.moves { // in the order of the moves
		r := m.moves[i].row
		now, ok := m.arm[r]
		if !ok {
			continue
		}
		delete(m.arm, r)
		first = now
		list = append(list, arming{at: max(r.job.Due(), now+1), endpoint: r.job.Endpoint, seq: r.job.Seq, row: r})
	}
	list.group(first)
	for i := range list {
		list[i].row.armed = list[i].at
		m.dues.armed(list[i].at)
	}
	return list
}
