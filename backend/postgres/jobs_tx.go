package postgres

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// EnqueueTx is Enqueue in a transaction of the caller on the same database, so that jobs are there
// exactly if the other changes of the transaction are. Errors are those of Enqueue; after one, the
// transaction is as it was before the call. The commit wakes workers on all servers that get
// notifications, and the others look within a second. A claim that runs at the same time never
// waits for the transaction. PostgreSQL commits such transactions one after the other, as all that
// notify. Callers of one user whose transactions overlap may exceed a budget together.
//
// It is what serverless.Service.SubmitTx stands on, which makes a job of a request, checks it, and gives
// it the settings of its endpoint. EnqueueTx takes jobs as they are.
//
// A call whose job has a key (queue.Unique) that another open transaction has taken waits for its end, 5 s
// at most, and then returns queue.ErrKeyTaken.
func (q *Jobs) EnqueueTx(ctx context.Context, tx pgx.Tx, jobs ...queue.Job) error {
	return q.enqueueIn(jobs, func(sql string, args []any) error {
		return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			if err := addKeys(ctx, tx, queue.Creations(jobs)); err != nil {
				return err
			}
			if err := takeKeys(ctx, keyTxOf(tx), jobs); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, sql, args...)
			if err != nil {
				return err
			}
			seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
			if err != nil {
				return err
			}
			if len(seqs) < len(jobs) {
				return q.refusal(jobs, func(user string) (budget.Usage, error) { return q.usage(ctx, tx, user) })
			}
			number(jobs, seqs)
			return q.wakeAtCommit(ctx, tx, jobs)
		})
	})
}

// EnqueueSQL is EnqueueTx for a transaction of package database/sql, with any driver for
// PostgreSQL. It uses the savepoint podyard_enqueue. The caller must not use the transaction at
// the same time, and must have read and closed the rows of its queries.
func (q *Jobs) EnqueueSQL(ctx context.Context, tx *sql.Tx, jobs ...queue.Job) error {
	return q.enqueueIn(jobs, func(sql string, args []any) error {
		t := sqlTx{tx}
		if _, err := t.Exec(ctx, `SAVEPOINT podyard_enqueue`); err != nil {
			return err
		}
		err := q.enqueueSQL(ctx, t, sql, args, jobs)
		if err != nil {
			// Where this fails too, the connection is gone and the transaction with it.
			_, e := t.Exec(context.WithoutCancel(ctx), `ROLLBACK TO SAVEPOINT podyard_enqueue`)
			err = errors.Join(err, e)
		}
		_, e := t.Exec(context.WithoutCancel(ctx), `RELEASE SAVEPOINT podyard_enqueue`)
		return errors.Join(err, e)
	})
}

// InTx implements queue.Transactor for a pgx.Tx and a *sql.Tx.
func (q *Jobs) InTx(tx any) (queue.Tx, error) {
	switch tx := tx.(type) {
	case pgx.Tx:
		return pgxIn{q, tx}, nil
	case *sql.Tx:
		if tx != nil {
			return sqlIn{q, tx}, nil
		}
	}
	return nil, fmt.Errorf("postgres: a transaction is a pgx.Tx or a *sql.Tx that is not nil, and not a %T", tx)
}

// A pgxIn is a queue in a transaction of pgx.
type pgxIn struct {
	q  *Jobs
	tx pgx.Tx
}

// Enqueue implements queue.Tx.
func (t pgxIn) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return t.q.EnqueueTx(ctx, t.tx, jobs...)
}

// FindKey implements queue.Tx.
func (t pgxIn) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return scanKey(key, pgx.ErrNoRows, t.tx.QueryRow(ctx, sqlFindKey, key[:]).Scan)
}

// A sqlIn is a queue in a transaction of package database/sql.
type sqlIn struct {
	q  *Jobs
	tx *sql.Tx
}

// Enqueue implements queue.Tx.
func (t sqlIn) Enqueue(ctx context.Context, jobs []queue.Job) error {
	return t.q.EnqueueSQL(ctx, t.tx, jobs...)
}

// FindKey implements queue.Tx.
func (t sqlIn) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return scanKey(key, sql.ErrNoRows, t.tx.QueryRowContext(ctx, sqlFindKey, key[:]).Scan)
}

func (q *Jobs) enqueueSQL(ctx context.Context, t sqlTx, sql string, args []any, jobs []queue.Job) error {
	if err := addKeys(ctx, t, queue.Creations(jobs)); err != nil {
		return err
	}
	if err := takeKeys(ctx, t, jobs); err != nil {
		return err
	}
	for i := range args {
		args[i] = literal(args[i])
	}
	rows, err := t.tx.QueryContext(ctx, sql, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }() // Err has what went wrong
	seqs := make([]int64, 0, len(jobs))
	for rows.Next() {
		var seq int64
		if err := rows.Scan(&seq); err != nil {
			return err
		}
		seqs = append(seqs, seq)
	}
	if err := rows.Err(); err != nil {
		return err
	}
	if len(seqs) < len(jobs) {
		return q.refusal(jobs, func(user string) (budget.Usage, error) { return t.usage(ctx, user) })
	}
	number(jobs, seqs)
	return q.wakeAtCommit(ctx, t, jobs)
}

// enqueueIn checks jobs and calls add with the statement that adds them.
func (q *Jobs) enqueueIn(jobs []queue.Job, add func(sql string, args []any) error) error {
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return err
		}
		if err := checkMade(&jobs[i]); err != nil {
			return err
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	// A row of counters of its own: the transaction may take long, and no other one waits for it.
	r := roomsOf(q.s.limits.Load(), amountsOf(jobs), amounts{})
	sql, args, err := q.addStatement(jobs, -1-rand.Int64N(1<<62), &r)
	if err != nil {
		return err
	}
	if err = add(sql, args); code(err) == codeUnique {
		return queue.ErrExists
	}
	return err
}

// checkMade returns an error for a job that was not made by a Service and lacks what a Service gives it:
// it would be lost, or end at once, or wait for ever.
func checkMade(j *queue.Job) error {
	var what string
	switch {
	case j.Endpoint == "":
		what = "an endpoint"
	case j.Status != queue.InQueue:
		what = "the status IN_QUEUE"
	case j.Submitted <= 0 || j.Queued < j.Submitted || j.Expires <= j.Queued:
		what = "an instant Submitted, not before it Queued, and after it Expires"
	case len(bytes.TrimSpace(j.Input)) == 0 || bytes.TrimSpace(j.Input)[0] != '{' || !json.Valid(j.Input):
		what = "a JSON object as its input"
	case j.ExecTimeout <= 0 || j.Retain <= 0:
		what = "an ExecTimeout and a Retain"
	default:
		return nil
	}
	return problem.Newf(problem.Invalid, "the job %q needs %s: serverless.Service.SubmitTx makes jobs that have everything", j.ID, what)
}

func number(jobs []queue.Job, seqs []int64) {
	for i := range seqs {
		jobs[i].Seq = uint64(seqs[i])
	}
}

// inCommit stands for the sender of a notification that the database sends at a commit: it is for
// all Stores, also for the one that has made it.
const inCommit = "tx"

// wakeAtCommit has the database notify the servers when the transaction is committed.
func (q *Jobs) wakeAtCommit(ctx context.Context, tx execer, jobs []queue.Job) error {
	evs := queue.ReadyEvents(jobs)
	if len(evs) == 0 {
		return nil
	}
	for _, payload := range encodeEvents(evs, q.sizes) {
		if _, err := tx.Exec(ctx, `SELECT pg_notify($1, $2)`, jobChannel, inCommit+" "+payload); err != nil {
			return err
		}
	}
	return nil
}

// A sqlTx is a transaction of database/sql as an execer.
type sqlTx struct{ tx *sql.Tx }

// Exec implements execer.
func (t sqlTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	res, err := t.tx.ExecContext(ctx, sql, args...)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	n, err := res.RowsAffected()
	return pgconn.NewCommandTag(fmt.Sprint("INSERT 0 ", n)), err
}

func (t sqlTx) usage(ctx context.Context, user string) (u budget.Usage, err error) {
	var owner []byte
	err = t.tx.QueryRowContext(ctx, sqlHoldings, literal([][]byte{[]byte(user)})).
		Scan(&owner, &u[budget.Jobs], &u[budget.QueuedJobs], &u[budget.JobBytes], &u[budget.Deliveries], &u[budget.DeadLetters])
	return u, err
}

// literal is an argument that every driver can send: an array is its text.
func literal(arg any) any {
	switch list := arg.(type) {
	case [][]byte:
		return arrayText(list, func(b []byte) string {
			if b == nil {
				return "NULL"
			}
			return `"\\x` + hex.EncodeToString(b) + `"`
		})
	case []int16:
		return arrayText(list, func(n int16) string { return strconv.Itoa(int(n)) })
	case []int64:
		return arrayText(list, func(n int64) string { return strconv.FormatInt(n, 10) })
	case []bool:
		return arrayText(list, strconv.FormatBool)
	}
	return arg
}

func arrayText[T any](list []T, text func(T) string) string {
	var b strings.Builder
	for i, v := range list {
		b.WriteByte("{,"[min(i, 1)])
		b.WriteString(text(v))
	}
	if len(list) == 0 {
		return "{}"
	}
	return b.String() + "}"
}
