package postgres

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/internal/hub"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/workers"
)

// Jobs is a queue.JobQueue in the database. Any number of servers may use it at once.
//
// Many calls at the same time share a transaction: those that add jobs, those that move them, and those
// that claim (see lane). State.Apply decides each move, while the rows of its jobs are locked, or from
// what this Store knows of them, which the database then compares.
type Jobs struct {
	keyFinder
	pool *pgxpool.Pool // with the settings of plans

	added   lane[*addCall]
	keyed   lane[*addCall] // those that wait for whoever has used their Idempotency-Key
	uniques chan struct{}  // a place for each call that adds jobs with unique keys
	moved   lane[*moveCall]
	claimed lane[*claimCall]

	mu     sync.Mutex
	epoch  int64 // of this Store; 0: not known yet
	tokens atomic.Uint32
	sweeps atomic.Uint32
	claims atomic.Uint32 // transactions
	news   newsFloors
	dues   dueFloor
	held   heldJobs
	unsure unsureMoves
	texts  mergedTexts

	sizes                   *sizes
	generation              int64 // of rows of counters, numbered in this Store
	retired, retiredHolders []counterRow

	hub    hub.Hub[queue.Event]
	report func([]queue.Moved) // set before the queue is used; nil: nobody wants to know
}

var (
	_ queue.JobQueue = (*Jobs)(nil)
	_ queue.Shared   = (*Jobs)(nil)
	_ queue.Counter  = (*Jobs)(nil)
	_ budget.Counter = (*Jobs)(nil)

	_ queue.OwnerLister = (*Jobs)(nil)
	_ queue.Transactor  = (*Jobs)(nil)
)

// Jobs returns the queue of jobs. Each call returns the same one. It has connections of its own, as
// many as the pool of the store.
func (s *Store) Jobs() *Jobs { return s.jobs }

func newJobs(ctx context.Context, s *Store, cfg *pgxpool.Config) (*Jobs, error) {
	q := &Jobs{keyFinder: keyFinder{s}, sizes: &s.opts.sizes}
	q.uniques = make(chan struct{}, max(1, cfg.MaxConns/4))
	q.dues.q = q
	q.held.most = q.sizes.held
	q.connected()
	var err error
	if q.pool, err = q.jobPool(ctx, cfg); err != nil {
		return nil, err
	}
	q.added = lane[*addCall]{s: s, run: q.addAll, size: (*addCall).size, idle: q.rowsOf(fewItems)}
	q.keyed = lane[*addCall]{s: s, run: q.addPatient, size: (*addCall).size, idle: q.rowsOf(1)}
	// Two moves of a job at the same time cost more than one after the other, and of two claims one
	// passes by what the other has locked, also if it is left.
	q.moved = lane[*moveCall]{s: s, run: q.moveAll, size: (*moveCall).size, idle: q.rowsOf(1)}
	q.claimed = lane[*claimCall]{s: s, run: q.claimAll, size: (*claimCall).size, idle: q.rowsOf(1)}
	return q, nil
}

// connected is called for each new connection: after a crash of the database, what was not durable is
// undone.
func (q *Jobs) connected() {
	q.news.reset()
	q.dues.armed(0)
}

// stalled returns for how long the oldest transaction of the lanes has been under way.
func (q *Jobs) stalled() time.Duration {
	return max(q.added.stalled(), q.moved.stalled(), q.claimed.stalled())
}

// end ends the lanes.
func (q *Jobs) end() {
	q.added.end()
	q.keyed.end()
	q.moved.end()
	q.claimed.end()
}

// Shared implements queue.Shared: other servers may use the same jobs.
func (q *Jobs) Shared() bool { return true }

// Servers returns the servers that use the same jobs: see Store.Servers.
func (q *Jobs) Servers() servers.Store { return q.s.Servers() }

// Presence returns the workers of these servers: see Store.Presence.
func (q *Jobs) Presence() workers.Presence { return q.s.Presence() }

// planSettings keep the database from plans that read whole tables: it makes plans when tables are
// empty, or before it knows how large they have become. A statement without BEGIN has the isolation
// of the others.
const planSettings = `SET default_transaction_isolation = 'read committed'; SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; SET enable_hashjoin = off; ` +
	`SET enable_mergejoin = off; SET enable_bitmapscan = off; SET enable_material = off; SET enable_memoize = off; SET enable_sort = off; SET jit = off`

// localPlanSettings are planSettings for the transaction under way.
const localPlanSettings = `SELECT set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true), ` +
	`set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true), set_config('enable_bitmapscan', 'off', true), ` +
	`set_config('enable_material', 'off', true), set_config('enable_memoize', 'off', true), set_config('enable_sort', 'off', true), set_config('jit', 'off', true), ` +
	`set_config('` + idleName + `', '` + idleLimit + `', true)`

// jobPool returns a pool whose connections have the settings of plans, unless they are pooled.
func (q *Jobs) jobPool(ctx context.Context, cfg *pgxpool.Config) (*pgxpool.Pool, error) {
	cfg = cfg.Copy()
	cfg.ConnConfig.ValidateConnect = prepared(q.s.settings(planSettings + "; "))
	cfg.AfterConnect = func(_ context.Context, c *pgx.Conn) error {
		encodeColumns(c.TypeMap())
		if !q.s.pooled {
			q.connected()
		}
		return nil
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

// repeat calls fn with a connection that has the settings of plans, as Store.repeat does. Pooled,
// fn runs in a transaction, because only there the settings stay.
func (q *Jobs) repeat(ctx context.Context, fn func(c *pgxpool.Conn) error) error {
	if !q.s.pooled {
		return q.s.repeatIn(ctx, q.pool, fn)
	}
	return q.s.repeatIn(ctx, q.pool, func(c *pgxpool.Conn) error {
		if _, err := c.Exec(ctx, begin+"; "+localPlanSettings); err != nil {
			return &unchanged{err}
		}
		if err := fn(c); err != nil {
			rollback(ctx, c)
			return err
		}
		_, err := c.Exec(ctx, "COMMIT")
		return err
	})
}

// rollback ends the transaction of a connection. If it cannot, the pool closes the connection.
func rollback(ctx context.Context, c *pgxpool.Conn) {
	if !c.Conn().IsClosed() {
		_, _ = c.Exec(context.WithoutCancel(ctx), "ROLLBACK")
	}
}

// node returns the epoch of this Store: no two openings have the same.
func (q *Jobs) node(ctx context.Context) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.epoch != 0 {
		return q.epoch, nil
	}
	// A sequence alone could be set back by a crash of the database.
	err := q.repeat(ctx, func(c *pgxpool.Conn) error {
		return c.QueryRow(ctx, `INSERT INTO podyard.job_nodes (epoch) SELECT nextval('podyard.job_epochs') RETURNING epoch`).Scan(&q.epoch)
	})
	return q.epoch, err
}

// token returns a token that no other claim has.
func (q *Jobs) token(epoch int64) queue.Token {
	return queue.Token(uint64(epoch)<<32 | uint64(q.tokens.Add(1)))
}
