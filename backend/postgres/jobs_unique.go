package postgres

import (
	"cmp"
	"context"
	"crypto/sha256"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	sqlKeyHolder = `SELECT j.id, j.state FROM podyard.job_keys k,
	LATERAL (SELECT j.id, j.state FROM podyard.jobs j WHERE j.ep = k.ep AND j.id = k.id OFFSET 0) j
	WHERE k.ep = $1 AND k.owner = $2 AND k.name = $3 AND k.id <> $4`

	sqlTakeKey = `INSERT INTO podyard.job_keys (ep, owner, name, id) VALUES ($1, $2, $3, $4)
	ON CONFLICT (ep, owner, name) DO UPDATE SET id = excluded.id`

	// A row that another transaction is changing gets another job there.
	sqlDropKeys = `DELETE FROM podyard.job_keys WHERE ctid = ANY(ARRAY(
	SELECT x.at FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::bytea[]) u(ep, owner, name, id),
	LATERAL (SELECT x.ctid AS at FROM podyard.job_keys x WHERE x.ep = u.ep AND x.owner = u.owner AND x.name = u.name AND x.id = u.id
		FOR UPDATE SKIP LOCKED) x))`

	sqlPutInputs = `UPDATE podyard.job_bodies b SET input = u.input, webhook = u.webhook, extra = u.extra,
		trace_parent = u.trace_parent, trace_state = u.trace_state
	FROM unnest($1::int8[], $2::bytea[], $3::bytea[], $4::bytea[], $5::bytea[], $6::bytea[])
		u(num, input, webhook, extra, trace_parent, trace_state) WHERE b.num = u.num`
)

// keyWait is how long a transaction waits for another one that has taken the key of one of its jobs and
// is still open.
const keyWait = "5s"

// A keyTx is a transaction in which jobs take keys.
type keyTx interface {
	execer
	// one reads the first row of a query. found is false if there is none.
	one(ctx context.Context, sql string, args []any, to ...any) (found bool, err error)
}

// A pgxTx is a transaction of pgx as a keyTx.
type pgxTx struct {
	execer
	querier
}

func keyTxOf[T interface {
	execer
	querier
}](tx T) keyTx {
	return pgxTx{tx, tx}
}

func (t pgxTx) one(ctx context.Context, sql string, args []any, to ...any) (found bool, err error) {
	err = t.QueryRow(ctx, sql, args...).Scan(to...)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

func (t sqlTx) one(ctx context.Context, query string, args []any, to ...any) (found bool, err error) {
	err = t.tx.QueryRowContext(ctx, query, args...).Scan(to...)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// A jobKey is the key of a unique job.
type jobKey struct {
	ep, owner, name []byte
	lock            int64 // the advisory lock
	job             *queue.Job
}

func keyOf(j *queue.Job) jobKey {
	sum := sha256.Sum256(fmt.Appendf(nil, "unique %q %q %q", j.Endpoint, j.Owner, j.Unique.Key))
	return jobKey{[]byte(j.Endpoint), []byte(j.Owner), []byte(j.Unique.Key), int64(binary.BigEndian.Uint64(sum[:])), j}
}

func (k *jobKey) args() []any { return []any{k.ep, k.owner, k.name, []byte(k.job.ID)} }

// holder returns the job that took the key last; found is false if there is none.
func (k *jobKey) holder(ctx context.Context, t keyTx) (ref queue.Ref, s queue.State, found bool, err error) {
	var id, state []byte
	if found, err = t.one(ctx, sqlKeyHolder, k.args(), &id, &state); !found || err != nil {
		return ref, s, false, err
	}
	s, err = decodeState(state, 0)
	return queue.Ref{Endpoint: k.job.Endpoint, ID: queue.JobID(id)}, s, true, err
}

func (k *jobKey) take(ctx context.Context, t keyTx) error {
	_, err := t.Exec(ctx, sqlTakeKey, k.args()...)
	return err
}

func isUnique(j queue.Job) bool { return j.Unique.Key != "" }

// takeKeys gives new jobs their keys, in the transaction that adds the jobs. All callers take keys in one order,
// so that two of them do not wait for each other.
func takeKeys(ctx context.Context, t keyTx, jobs []queue.Job) error {
	var keys []jobKey
	for i := range jobs {
		if isUnique(jobs[i]) {
			keys = append(keys, keyOf(&jobs[i]))
		}
	}
	if len(keys) == 0 {
		return nil
	}
	slices.SortStableFunc(keys, func(a, b jobKey) int { return cmp.Compare(a.lock, b.lock) })
	var before string
	if _, err := t.one(ctx, `SELECT current_setting('lock_timeout')`, nil, &before); err != nil {
		return err
	}
	if _, err := t.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, keyWait); err != nil {
		return err
	}
	for i := range keys {
		if i > 0 && keys[i].lock == keys[i-1].lock {
			return &queue.TakenError{Ref: keys[i-1].job.Ref}
		}
		if err := takeNewKey(ctx, t, &keys[i], jobs); err != nil {
			return err
		}
	}
	_, err := t.Exec(ctx, `SELECT set_config('lock_timeout', $1, true)`, before)
	return err
}

// takeNewKey gives one of new jobs its key.
func takeNewKey(ctx context.Context, t keyTx, k *jobKey, jobs []queue.Job) error {
	if _, err := t.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, k.lock); code(err) == codeLock {
		return queue.ErrKeyTaken // by a transaction that has not ended
	} else if err != nil {
		return err
	}
	ref, s, found, err := k.holder(ctx, t)
	if err != nil {
		return err
	}
	if !found || !s.HoldsKey(k.job.Submitted) {
		return k.take(ctx, t)
	}
	for i := range jobs { // it is ErrExists if an id is in use, too
		var one int
		if there, err := t.one(ctx, `SELECT 1 FROM podyard.jobs WHERE ep = $1 AND id = $2`, []any{[]byte(jobs[i].Endpoint), []byte(jobs[i].ID)}, &one); err != nil || there {
			return cmp.Or(err, error(queue.ErrExists))
		}
	}
	return &queue.TakenError{Ref: ref}
}

// enqueueUnique is Enqueue for jobs some of which have a key. It has a transaction of its own: one that
// waits for a key must not keep other jobs waiting, and a quarter of the connections at most wait for keys.
func (q *Jobs) enqueueUnique(ctx context.Context, jobs []queue.Job) error {
	select {
	case q.uniques <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-q.uniques }()
	return q.s.txIn(ctx, q.pool, func(tx pgx.Tx) error {
		if q.s.pooled {
			if _, err := tx.Exec(ctx, localPlanSettings); err != nil {
				return err
			}
		}
		return q.EnqueueTx(ctx, tx, jobs...)
	})
}

// takeKey carries out queue.TakeKey, or makes res the refusal of the move. It does not wait for a
// transaction that has taken the key and is still open.
func (m *mover) takeKey(ctx context.Context, now queue.Instant, r *jobRow, before *queue.State, res *queue.Result) error {
	if err := m.t.begin(ctx); err != nil {
		return err
	}
	t, k, free := keyTxOf(m.t.conn), keyOf(&r.job), false
	if _, err := t.one(ctx, `SELECT pg_try_advisory_xact_lock($1)`, []any{k.lock}, &free); err != nil {
		return err
	}
	if !free {
		*res = queue.Result{State: *before, Err: queue.ErrKeyTaken}
		return nil
	}
	ref, s, found, err := k.holder(ctx, t)
	if err != nil {
		return err
	}
	if moved := m.rows[ref]; found && moved != nil {
		s = moved.job.State
	}
	if found && s.HoldsKey(now) {
		*res = queue.Result{State: *before, Err: &queue.TakenError{Ref: ref}}
		return nil
	}
	return k.take(ctx, t)
}

// sealInput encrypts what only the worker sees of the payloads that replace those of a job, or makes res
// the refusal of the move.
func (m *mover) sealInput(r *jobRow, before *queue.State, res *queue.Result, op *queue.Op) (sealed []byte) {
	if res.Err != nil || res.Effect&queue.PutInput == 0 {
		return nil
	}
	sealed, err := m.counted.q.sealExtra(&queue.Job{Ref: r.job.Ref, Extra: op.Job.Extra})
	if err != nil {
		*res = queue.Result{State: *before, Err: err}
	}
	return sealed
}

// inputs are the columns of payloads that replace others.
type inputs struct {
	num                                   []int64
	input, webhook, extra, parent, traces [][]byte
}

func (c *inputs) add(m *move) {
	j := m.op.Job
	c.num, c.input, c.webhook = append(c.num, m.row.num), append(c.input, j.Input), append(c.webhook, orNull(j.Webhook))
	c.extra, c.parent, c.traces = append(c.extra, m.extra), append(c.parent, orNull(j.Trace.Parent)), append(c.traces, orNull(j.Trace.State))
}

func (c *inputs) queue(b *pgx.Batch) {
	queueIf(b, c.num, sqlPutInputs, c.num, c.input, c.webhook, c.extra, c.parent, c.traces)
}

// goneKeys are the columns of the keys of jobs that are deleted.
type goneKeys struct{ ep, owner, name, id [][]byte }

func (c *goneKeys) add(m *move) {
	if name := m.before.Unique.Key; name != "" {
		j := &m.row.job
		c.ep, c.owner = append(c.ep, []byte(j.Endpoint)), append(c.owner, []byte(j.Owner))
		c.name, c.id = append(c.name, []byte(name)), append(c.id, []byte(j.ID))
	}
}

func (c *goneKeys) queue(b *pgx.Batch) {
	queueIf(b, c.ep, sqlDropKeys, c.ep, c.owner, c.name, c.id)
}
