package postgres

import (
	"context"
	"encoding/json"
	"hash/fnv"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A counted table counts what its records, or the jobs, take of the budgets of a user.
type counted interface {
	usage(ctx context.Context, c querier, owner string) (budget.Usage, error)
	holders() string // a query for the users who have something
}

var _ budget.Counter = (*Store)(nil)

// countedTables are the tables of records, and the queue.
func (s *Store) countedTables() []counted {
	return []counted{
		&s.pods.r, &s.Endpoints().r, &s.Registries().r, &s.Volumes().r, &s.Templates().r, &s.Accounts().r, &s.Secrets().r, &s.Schedules().r, &s.Batches().r, &s.JobLogs().r,
		s.SSHKeys(), s.jobs,
	}
}

// Limit implements budget.Counter for all stores. What all servers have stored counts.
func (s *Store) Limit(set *budget.Set) { s.limits.Store(set) }

// Usage implements budget.Counter for all stores.
func (s *Store) Usage(ctx context.Context, user string) (all budget.Usage, err error) {
	err = s.read(ctx, func(c *pgxpool.Conn) error {
		all = budget.Usage{}
		for _, t := range s.countedTables() {
			u, err := t.usage(ctx, c, user)
			if err != nil {
				return err
			}
			all.Add(&u)
		}
		return nil
	})
	return all, err
}

// Users implements budget.Counter for all stores.
func (s *Store) Users(ctx context.Context) ([]string, error) {
	return s.usersOf(ctx, s.countedTables()...)
}

// usersOf returns who has something in tables, sorted.
func (s *Store) usersOf(ctx context.Context, tables ...counted) (all []string, err error) {
	err = s.read(ctx, func(c *pgxpool.Conn) error {
		all = nil
		for _, t := range tables {
			rows, err := c.Query(ctx, t.holders())
			if err != nil {
				return err
			}
			owners, err := pgx.CollectRows(rows, pgx.RowTo[[]byte])
			if err != nil {
				return err
			}
			for _, owner := range owners {
				all = append(all, string(owner))
			}
		}
		return nil
	})
	slices.Sort(all)
	return slices.Compact(all), err
}

func ownersIn(table string) string {
	return `SELECT DISTINCT owner FROM podyard.` + table + ` WHERE owner <> ''`
}

func (r *recordTable[T]) holders() string { return ownersIn(r.table) }

// usage returns what the records of a user take. Only those that take bytes are read.
func (r *recordTable[T]) usage(ctx context.Context, c querier, owner string) (u budget.Usage, err error) {
	if !r.sized {
		var n int64
		err := c.QueryRow(ctx, `SELECT count(*) FROM podyard.`+r.table+` WHERE owner = $1`, []byte(owner)).Scan(&n)
		var one T
		u[r.Holding(&one).Of[0].Budget] = n
		return u, err
	}
	rows, err := c.Query(ctx, `SELECT data FROM podyard.`+r.table+` WHERE owner = $1`, []byte(owner))
	if err != nil {
		return u, err
	}
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		var v T
		if err := json.Unmarshal(data, &v); err != nil {
			return err
		}
		for _, a := range r.Holding(&v).Of {
			u[a.Budget] += a.N
		}
		return nil
	})
	return u, err
}

// holds returns what a record takes; nil takes nothing.
func (r *recordTable[T]) holds(v *T) (h budget.Holding) {
	if v != nil {
		h = r.Holding(v)
	}
	return h
}

// within returns a *budget.Error if the owner of a record has no room for it. old is what the
// record took before. Writes of an owner that need room wait for one another, at all servers.
func (r *recordTable[T]) within(ctx context.Context, tx pgx.Tx, old, now budget.Holding) error {
	l := r.s.limits.Load().Of(now.User)
	var by budget.Usage
	for i := range now.Of {
		by[old.Of[i].Budget] -= old.Of[i].N
		by[now.Of[i].Budget] += now.Of[i].N
	}
	if l == nil || !slices.ContainsFunc(by[:], func(n int64) bool { return n > 0 }) {
		return nil
	}
	if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, lockOf(r.table, now.User)); err != nil {
		return err
	}
	used, err := r.usage(ctx, tx, now.User)
	if err != nil {
		return err
	}
	for b, n := range by {
		if err := l.Check(budget.Budget(b), used[b], n); err != nil {
			return err
		}
	}
	return nil
}

// lockOf is the key of the lock of a user and a table. Others may have the same one: they wait.
func lockOf(table, user string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte("budget " + table + " " + user)) // it returns no error
	return int64(h.Sum64())
}

func (s *SSHKeys) holders() string { return ownersIn("ssh_keys") }

func (s *SSHKeys) usage(ctx context.Context, c querier, owner string) (u budget.Usage, err error) {
	rows, err := c.Query(ctx, `SELECT data FROM podyard.ssh_keys WHERE owner = $1`, []byte(owner))
	if err != nil {
		return u, err
	}
	var data []byte
	_, err = pgx.ForEachRow(rows, []any{&data}, func() error {
		var keys []string
		err := json.Unmarshal(data, &keys)
		u[budget.SSHKeys] = sshkeys.Holding(owner, keys).Of[0].N
		return err
	})
	return u, err
}

// within returns a *budget.Error if a user may not have these keys instead of the present ones.
func (s *SSHKeys) within(ctx context.Context, owner string, keys []string) error {
	l := s.s.limits.Load().Of(owner)
	if l == nil {
		return nil
	}
	old, err := s.SSHKeys(ctx, owner)
	if err != nil {
		return err
	}
	return l.Check(budget.SSHKeys, int64(len(old)), int64(len(keys)-len(old)))
}
