package postgres

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

const (
	sqlAdd = `WITH ` + addRows + `) ` + addInto + onHoldingConflict + addEnd

	// Nothing is added, and no row returned, if a user is near a limit.
	sqlAddUnlessNear = `WITH near AS MATERIALIZED (
		SELECT u.owner FROM unnest($23::bytea[], $24::int8[], $25::int8[], $26::int8[], $27::int8[], $28::int8[])
			u(owner, jobs, queued, bytes, deliveries, dead), LATERAL (` + holdingsOf + `u.owner) s ` + isNear + `
	), ` + addRows + notNear + `) ` + addInto + notNear + onHoldingConflict + addEnd

	notNear = ` WHERE NOT EXISTS (SELECT FROM near) `

	addRows = `u AS MATERIALIZED (
		SELECT nextval('podyard.job_seq') AS seq, u.* FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[], $5::int2[], $6::int2[],
			$7::bool[], $8::bool[], $9::int8[], $10::int8[], $11::int8[], $12::bytea[], $13::bytea[],
			$14::bytea[], $15::bytea[], $16::bytea[], $17::bytea[], $18::bytea[]) WITH ORDINALITY
			u(ep, id, owner, key, prio, status, low, ready, queued, expires, armed, lost, state,
			input, webhook, extra, trace_parent, trace_state, ord)`

	addInto = `, j AS (
		INSERT INTO podyard.jobs (num, seq, armed, gone, status, ep, id, owner, key, state)
		SELECT seq, seq, armed, expires, status, ep, id, owner, key, state FROM u
	), b AS (
		INSERT INTO podyard.job_bodies (num, input, webhook, extra, trace_parent, trace_state)
		SELECT seq, input, webhook, extra, trace_parent, trace_state FROM u
	), r AS (
		INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost)
		SELECT ep, owner, prio, key, seq, queued, expires, low, lost FROM u WHERE ready
	), d AS (
		INSERT INTO podyard.job_due (at, ep, seqs) SELECT armed, ep, array_agg(seq) FROM u GROUP BY armed, ep, (ord - 1) / 224
	), n AS (
		INSERT INTO podyard.job_counters AS c (ep, slot, queued, queued_low, delayed, delayed_low, running, completed, failed, retried, last_seq)
		SELECT ep, $19, count(*), count(*) FILTER (WHERE low), count(*) FILTER (WHERE NOT ready),
			count(*) FILTER (WHERE low AND NOT ready), 0, 0, 0, 0, max(seq) FROM u GROUP BY ep ORDER BY ep
		` + onCountConflict + `
	), h AS (
		INSERT INTO podyard.job_holdings AS h (owner, slot, jobs, queued, bytes, deliveries, dead)
		SELECT u.owner, $19, u.jobs, u.jobs, u.bytes, 0, 0 FROM unnest($20::bytea[], $21::int8[], $22::int8[]) u(owner, jobs, bytes) `

	addEnd = `
	) SELECT seq FROM u ORDER BY ord`
)

// sqlKeyWait is how long calls that share a transaction wait for somebody who has used an Idempotency-Key in a
// transaction that has not ended: a caller of EnqueueTx may take any time.
const sqlKeyWait = `SELECT set_config('lock_timeout', '500', true)`

// An addCall is a call of Enqueue.
type addCall struct {
	jobs   []queue.Job
	seqs   []int64
	full   error // the call is refused
	answer answer
}

func (c *addCall) size() (items, bytes int) {
	for i := range c.jobs {
		bytes += len(c.jobs[i].Input) + len(c.jobs[i].Extra)
	}
	return len(c.jobs), bytes
}

// hasKey reports whether a call may wait for somebody who has used its Idempotency-Key.
func (c *addCall) hasKey() bool { return len(queue.Creations(c.jobs)) > 0 }

// Enqueue implements queue.JobQueue. It makes jobs durable also where it need not.
func (q *Jobs) Enqueue(ctx context.Context, jobs []queue.Job) error {
	if len(jobs) == 0 {
		return nil
	}
	c := &addCall{jobs: slices.Clone(jobs), answer: newAnswer()}
	for i := range c.jobs {
		if err := c.jobs[i].Check(); err != nil {
			return err
		}
	}
	if slices.ContainsFunc(jobs, isUnique) {
		return q.enqueueUnique(ctx, jobs)
	}
	if err := q.added.push(ctx, c); err != nil {
		return err
	}
	if err := c.answer.await(ctx); err != nil {
		return err
	}
	for i := range jobs {
		jobs[i].State = c.jobs[i].State
		jobs[i].Seq = uint64(c.seqs[i])
	}
	return nil
}

// addAll adds the jobs of some calls in one transaction. If that fails because of one of them,
// each has its own.
func (q *Jobs) addAll(ctx context.Context, calls []*addCall, rows *counterRows) {
	q.addCalls(ctx, &addBatch{calls: calls}, rows)
}

// addPatient adds the jobs of calls that wait for an Idempotency-Key, one after the other.
func (q *Jobs) addPatient(ctx context.Context, calls []*addCall, rows *counterRows) {
	for i := range calls {
		q.addCalls(ctx, &addBatch{calls: calls[i : i+1], patient: true}, rows)
	}
}

// addImpatient adds the jobs of calls one of which waits for a key. The others do not wait with it.
func (q *Jobs) addImpatient(ctx context.Context, calls []*addCall, rows *counterRows) {
	var rest []*addCall
	for _, c := range calls {
		c.full = nil
		if !c.hasKey() {
			rest = append(rest, c)
		} else if err := q.keyed.push(ctx, c); err != nil {
			c.answer <- err
		}
	}
	if len(rest) > 0 {
		q.addAll(ctx, rest, rows)
	}
}

func (q *Jobs) addCalls(ctx context.Context, b *addBatch, rows *counterRows) {
	calls := b.calls
	b.collect()
	err := q.addOnce(ctx, b, rows, q.addPlain)
	if errors.Is(err, errNear) {
		err = q.addOnce(ctx, b, rows, q.addAdmitted)
	}
	if code(err) == codeLock && !b.patient && slices.ContainsFunc(calls, (*addCall).hasKey) {
		q.addImpatient(ctx, calls, rows)
		return
	}
	if len(calls) > 1 && (mayBeOfOne(err) || errors.Is(err, idempotency.ErrTaken) || errors.Is(err, queue.ErrExists)) {
		for i := range calls {
			calls[i].full = nil // it was refused in a transaction that has failed
			q.addAll(ctx, calls[i:i+1], rows)
		}
		return
	}
	if err == nil {
		q.publish(ctx, queue.ReadyEvents(b.jobs))
	}
	for _, c := range calls {
		c.answer <- cmp.Or(err, c.full)
	}
}

// An addBatch is calls that share a transaction.
type addBatch struct {
	calls   []*addCall
	jobs    []queue.Job // of the calls that are not refused
	patient bool        // it waits for keys
}

// collect is called after calls were refused.
func (b *addBatch) collect() {
	if len(b.calls) == 1 && b.calls[0].full == nil {
		b.jobs = b.calls[0].jobs
		return
	}
	var lists [][]queue.Job
	for _, c := range b.calls {
		if c.full == nil {
			lists = append(lists, c.jobs)
		}
	}
	b.jobs = slices.Concat(lists...)
}

// addOnce adds the jobs of some calls with a function that makes the transaction.
func (q *Jobs) addOnce(ctx context.Context, b *addBatch, rows *counterRows, add func(ctx context.Context, t *jobTx, b *addBatch, slot int64) ([]int64, error)) error {
	epoch, err := q.node(ctx)
	if err != nil {
		return err
	}
	slot := rows.use(epoch, endpointsOf(b.jobs), ownersOf(b.jobs))
	var seqs []int64
	err = q.transact(ctx, func(t *jobTx) (err error) {
		seqs, err = add(ctx, t, b, slot)
		return err
	})
	if code(err) == codeUnique {
		return queue.ErrExists
	}
	if err != nil {
		return err
	}
	if len(seqs) < len(b.jobs) {
		return errNear
	}
	for _, c := range b.calls {
		if c.full == nil {
			c.seqs, seqs = seqs[:len(c.jobs)], seqs[len(c.jobs):]
		}
	}
	q.s.sweepKeys(ctx, queue.Creations(b.jobs))
	return nil
}

// addPlain adds jobs, unless a user is near a limit: then it returns fewer numbers than jobs, or errNear.
func (q *Jobs) addPlain(ctx context.Context, t *jobTx, b *addBatch, slot int64) ([]int64, error) {
	r := roomsOf(q.s.limits.Load(), amountsOf(b.jobs), lookMargin())
	if keys := queue.Creations(b.jobs); len(keys) > 0 {
		// The statement that adds would come too late: the keys would be there without the jobs.
		users, err := t.near(ctx, &r)
		if err == nil && len(users) > 0 {
			err = errNear
		}
		if err != nil {
			return nil, err
		}
		r = rooms{}
	}
	return q.addTo(ctx, t, b, slot, &r)
}

// addAdmitted refuses calls for which users have no room, and adds the jobs of the others.
func (q *Jobs) addAdmitted(ctx context.Context, t *jobTx, b *addBatch, slot int64) ([]int64, error) {
	for _, c := range b.calls {
		c.full = nil
	}
	err := q.admit(ctx, t, b.calls)
	if err != nil {
		return nil, err
	}
	b.collect()
	if len(b.jobs) == 0 {
		return nil, t.commit(ctx, &pgx.Batch{}, true)
	}
	return q.addTo(ctx, t, b, slot, &rooms{})
}

// addTo adds jobs and the records of their Idempotency-Keys, and commits.
func (q *Jobs) addTo(ctx context.Context, t *jobTx, b *addBatch, slot int64, r *rooms) (seqs []int64, err error) {
	jobs := b.jobs
	if keys := queue.Creations(jobs); len(keys) > 0 {
		first := &pgx.Batch{}
		if !b.patient {
			first.Queue(sqlKeyWait)
		}
		if err := t.send(ctx, first); err != nil {
			return nil, err
		}
		if err := addKeys(ctx, t.conn, keys); err != nil {
			return nil, err
		}
	}
	if len(jobs) >= q.sizes.copyFrom {
		return q.copyTo(ctx, t, jobs, slot, r)
	}
	sql, args, err := q.addStatement(jobs, slot, r)
	if err != nil {
		return nil, err
	}
	last := &pgx.Batch{}
	merged{{sql, args}}.queue(last, &q.texts).Query(func(rows pgx.Rows) (err error) {
		seqs, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		return err
	})
	return seqs, t.commit(ctx, last, true)
}

// addStatement returns the statement that adds jobs and counts them in a slot, if nobody holds more than
// r says.
func (q *Jobs) addStatement(jobs []queue.Job, slot int64, r *rooms) (sql string, args []any, err error) {
	var l line
	var id, lost, state, input, webhook, extra, parent, trace [][]byte
	var status []int16
	var low, ready []bool
	var queued, expires []int64
	n := len(jobs)
	l.grow(n)
	growAll(n, &id, &lost, &state, &input, &webhook, &extra, &parent, &trace)
	growAll(n, &status)
	growAll(n, &low, &ready)
	growAll(n, &queued, &expires)
	armed := firstArmed(jobs)
	q.dues.armed(queue.Instant(slices.Min(armed)))
	for i := range jobs {
		j := &jobs[i]
		l.add(j)
		id, lost, state = append(id, []byte(j.ID)), append(lost, []byte(j.Lost)), append(state, encodeState(&j.State))
		status, low = append(status, int16(j.Status)), append(low, j.Flags&queue.LowPriority != 0)
		ready = append(ready, readyOf(&j.State) != readyRow{})
		queued, expires = append(queued, int64(j.Queued)), append(expires, int64(j.Expires))
		input, webhook = append(input, j.Input), append(webhook, orNull(j.Webhook))
		sealed, err := q.sealExtra(j)
		if err != nil {
			return "", nil, err
		}
		extra = append(extra, sealed)
		parent, trace = append(parent, orNull(j.Trace.Parent)), append(trace, orNull(j.Trace.State))
	}
	owner, held, _, bytes := heldBy(jobs).columns()
	args = []any{
		l.ep, id, l.owner, l.key, l.prio, status, low, ready, queued, expires, armed, lost, state,
		input, webhook, extra, parent, trace, slot, owner, held, bytes,
	}
	if len(r.owner) == 0 {
		return sqlAdd, args, nil
	}
	return sqlAddUnlessNear, append(args, r.args()...), nil
}

// endpointsOf returns the endpoint of each job.
func endpointsOf(jobs []queue.Job) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range jobs {
			if !yield(jobs[i].Endpoint) {
				return
			}
		}
	}
}

// ownersOf returns the owner of each job.
func ownersOf(jobs []queue.Job) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range jobs {
			if !yield(jobs[i].Owner) {
				return
			}
		}
	}
}

// firstArmed says when new jobs are looked at.
func firstArmed(jobs []queue.Job) []int64 {
	armed := make([]int64, len(jobs))
	list := make(armings, len(jobs))
	for i := range jobs {
		list[i] = arming{at: jobs[i].Due(), endpoint: jobs[i].Endpoint, seq: uint64(i)}
	}
	list.group(jobs[0].Submitted)
	for _, a := range list {
		armed[a.seq] = int64(a.at)
	}
	return armed
}
