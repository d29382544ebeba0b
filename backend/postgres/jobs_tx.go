package postgres

import (
	"context"
	"math/rand/v2"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// EnqueueTx is Enqueue in a transaction of the caller on the same database, so that jobs are there
// exactly if the other changes of the transaction are. Errors are those of Enqueue; after one, the
// transaction is as it was before the call. Workers get the jobs within about a second of the
// commit, because a service over a shared queue looks once a second. A claim that runs at the
// same time never waits for the transaction.
func (q *Jobs) EnqueueTx(ctx context.Context, tx pgx.Tx, jobs ...queue.Job) error {
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return err
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	if err := q.knowLines(ctx, jobs); err != nil {
		return err
	}
	// A row of counters of its own: the transaction may take long, and no other one waits for it.
	sql, args, err := q.addStatement(jobs, -1-rand.Int64N(1<<62))
	if err != nil {
		return err
	}
	err = pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		if err := addKeys(ctx, tx, queue.Creations(jobs)); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, sql, args...)
		if err != nil {
			return err
		}
		seqs, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		for i := range seqs {
			jobs[i].Seq = uint64(seqs[i])
		}
		return err
	})
	if code(err) == codeUnique {
		return queue.ErrExists
	}
	return err
}
