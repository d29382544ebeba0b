package postgres

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// What users hold in the queue is counted in rows of job_holdings, in the transaction of each change.
// The sum of the rows of a user is read without a lock, so it lacks what transactions under way add.
// Far from a limit that does not matter: the margins are left for them. Nearer, a transaction takes the lock of the user and reads the sum
// again.

const (
	onHoldingConflict = `ON CONFLICT (owner, slot) DO UPDATE SET jobs = h.jobs + excluded.jobs, queued = h.queued + excluded.queued,
		bytes = h.bytes + excluded.bytes, deliveries = h.deliveries + excluded.deliveries, dead = h.dead + excluded.dead`

	sqlHold = `INSERT INTO podyard.job_holdings AS h (owner, slot, jobs, queued, bytes, deliveries, dead)
	SELECT u.owner, $2, u.jobs, u.queued, u.bytes, 0, 0 FROM unnest($1::bytea[], $3::int8[], $4::int8[], $5::int8[]) u(owner, jobs, queued, bytes)
	` + onHoldingConflict

	// Parts of statements that change copies of jobs, in x, which has their owner and bytes. The number of
	// the slot is between the first and another one.
	intoHoldings   = ` INSERT INTO podyard.job_holdings AS h (owner, slot, jobs, queued, bytes, deliveries, dead) SELECT owner, `
	addDeliveries  = `::int8, 0, 0, sum(bytes), count(*), 0 ` + ofCopies
	takeDeliveries = `::int8, 0, 0, -sum(bytes), -count(*), 0 ` + ofCopies
	addDead        = `::int8, 0, 0, sum(bytes), 0, count(*) ` + ofCopies
	takeDead       = `::int8, 0, 0, -sum(bytes), 0, -count(*) ` + ofCopies
	ofCopies       = `FROM x GROUP BY owner ORDER BY owner ` + onHoldingConflict

	holdingsOf = `SELECT coalesce(sum(h.jobs), 0)::int8 AS jobs, coalesce(sum(h.queued), 0)::int8 AS queued, coalesce(sum(h.bytes), 0)::int8 AS bytes,
		coalesce(sum(h.deliveries), 0)::int8 AS deliveries, coalesce(sum(h.dead), 0)::int8 AS dead FROM podyard.job_holdings h WHERE h.owner = `

	sqlHoldings = `SELECT u.owner, s.jobs, s.queued, s.bytes, s.deliveries, s.dead FROM unnest($1::bytea[]) u(owner), LATERAL (` + holdingsOf + `u.owner) s`

	// The users who hold more of something than they may without a look at the others.
	nearLimits = `SELECT u.owner FROM unnest($1::bytea[], $2::int8[], $3::int8[], $4::int8[], $5::int8[], $6::int8[])
		u(owner, jobs, queued, bytes, deliveries, dead), LATERAL (` + holdingsOf + `u.owner) s ` + isNear

	isNear = `WHERE s.jobs > u.jobs OR s.queued > u.queued OR s.bytes > u.bytes OR s.deliveries > u.deliveries OR s.dead > u.dead`

	sqlHolders = `SELECT owner FROM podyard.job_holdings GROUP BY owner
	HAVING sum(jobs) > 0 OR sum(queued) > 0 OR sum(bytes) > 0 OR sum(deliveries) > 0 OR sum(dead) > 0`

	// Bytes that the owners of jobs hold.
	sqlBytesHeld = `SELECT o.owner, s.bytes FROM (SELECT DISTINCT j.owner FROM unnest($1::bytea[], $2::bytea[]) u(ep, id),
		LATERAL (SELECT x.owner FROM podyard.jobs x WHERE x.ep = u.ep AND x.id = u.id OFFSET 0) j) o, LATERAL (` + holdingsOf + `o.owner) s`

	sqlLockUser = `SELECT pg_advisory_xact_lock($1)`

	sqlFoldHoldings = `WITH d AS (DELETE FROM podyard.job_holdings d WHERE slot > 0 AND slot < $1 ` + foldHoldings

	sqlFoldLooseHoldings = `WITH d AS (DELETE FROM podyard.job_holdings d WHERE slot < 0 ` + foldHoldings

	sqlFoldHoldingRows = `WITH d AS (DELETE FROM podyard.job_holdings d
		WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::bytea[], $2::int8[]) u(owner, slot),
			LATERAL (SELECT x.ctid AS at FROM podyard.job_holdings x WHERE x.owner = u.owner AND x.slot = u.slot OFFSET 0) x)) ` + foldHoldings

	foldHoldings = `RETURNING d.owner, d.jobs, d.queued, d.bytes, d.deliveries, d.dead)
	INSERT INTO podyard.job_holdings AS h (owner, slot, jobs, queued, bytes, deliveries, dead)
	SELECT owner, 0, sum(jobs), sum(queued), sum(bytes), sum(deliveries), sum(dead) FROM d GROUP BY owner ORDER BY owner ` + onHoldingConflict
)

// A transaction of a lane adds at most maxItems jobs or maxBytes, unless one call has more. This many
// of them may be under way at once, at 32 servers: two of each, and as much again of farMost.
const (
	overlapping = 128
	jobMargin   = overlapping * maxItems
	byteMargin  = overlapping * maxBytes
)

// looseSlots is how many rows of a user are changed by transactions of no lane.
const looseSlots = 32

// looseSlot returns the slot of a transaction of no lane. Its rows are folded by sweeps.
func looseSlot() int64 { return -1 - rand.Int64N(looseSlots) }

// errNear: a user is near a limit, and nothing was added.
var errNear = errors.New("postgres: a user is near a limit")

// holdings are what transactions add to what users hold.
type holdings map[string]*holding

type holding struct{ jobs, queued, bytes int64 }

func (h holdings) of(owner string) *holding {
	n := h[owner]
	if n == nil {
		n = &holding{}
		h[owner] = n
	}
	return n
}

// move counts a move of a job, without copies of it.
func (h holdings) move(owner string, before, after *queue.State, e queue.Effect) {
	n := h.of(owner)
	n.bytes -= before.Bytes()
	n.queued -= isQueued(before)
	if e&queue.Delete != 0 {
		n.jobs--
		return
	}
	n.bytes += after.Bytes()
	n.queued += isQueued(after)
}

func isQueued(s *queue.State) int64 { return bit(s.Status == queue.InQueue) }

// heldBy returns what new jobs add.
func heldBy(jobs []queue.Job) holdings {
	h := holdings{}
	for i := range jobs {
		n := h.of(jobs[i].Owner)
		n.jobs++
		n.queued += isQueued(&jobs[i].State)
		n.bytes += jobs[i].Bytes()
	}
	return h
}

// columns are what is not zero, in one order.
func (h holdings) columns() (owner [][]byte, jobs, queued, bytes []int64) {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if n := h[name]; *n != (holding{}) {
			owner, jobs, queued, bytes = append(owner, []byte(name)), append(jobs, n.jobs), append(queued, n.queued), append(bytes, n.bytes)
		}
	}
	return owner, jobs, queued, bytes
}

// add adds the statement that counts to others.
func (h holdings) add(list *merged, slot int64) {
	owner, jobs, queued, bytes := h.columns()
	addIf(list, owner, sqlHold, owner, slot, jobs, queued, bytes)
}

// amounts are of the budgets of a queue, which are the first ones.
type amounts [budget.DeadLetters + 1]int64

// lookMargin is what a look leaves below the limits.
func lookMargin() amounts { return amounts{jobMargin, jobMargin, byteMargin, jobMargin, jobMargin} }

// wants are what some jobs ask of the budgets of one owner.
type wants struct {
	holding
	hook, dead int64 // 1: one of them has a webhook, or may leave a dead letter
}

func wantsOf(jobs []queue.Job) map[string]*wants {
	all := map[string]*wants{}
	for i := range jobs {
		j := &jobs[i]
		w := all[j.Owner]
		if w == nil {
			w = &wants{}
			all[j.Owner] = w
		}
		w.jobs++
		w.queued += isQueued(&j.State)
		w.bytes += j.Bytes()
		w.hook = max(w.hook, bit(j.Flags&queue.HasWebhook != 0))
		w.dead = max(w.dead, bit(j.DeadLetter > 0))
	}
	return all
}

func (w *wants) amounts() amounts {
	return amounts{budget.Jobs: w.jobs, budget.QueuedJobs: w.queued, budget.JobBytes: w.bytes, budget.Deliveries: w.hook, budget.DeadLetters: w.dead}
}

// amountsOf returns what some jobs ask of the budgets of their owners.
func amountsOf(jobs []queue.Job) map[string]amounts {
	all := map[string]amounts{}
	for owner, w := range wantsOf(jobs) {
		all[owner] = w.amounts()
	}
	return all
}

// check returns a *budget.Error if an owner who holds used may not have w too.
func (w *wants) check(l *budget.Limits, used *budget.Usage) error {
	for _, n := range [...]struct {
		b budget.Budget
		n int64
	}{
		{budget.Jobs, w.jobs}, {budget.QueuedJobs, w.queued}, {budget.JobBytes, w.bytes},
		{budget.DeadLetters, w.dead}, {budget.Deliveries, w.hook},
	} {
		if err := l.Check(n.b, used[n.b], n.n); err != nil {
			return err
		}
	}
	return nil
}

// rooms are arguments of nearLimits.
type rooms struct {
	owner [][]byte
	most  [5][]int64
}

func (r *rooms) args() []any {
	return []any{r.owner, r.most[0], r.most[1], r.most[2], r.most[3], r.most[4]}
}

// roomsOf says how much users may hold so that they may have what they want without a lock. margin is
// left for transactions under way.
func roomsOf(set *budget.Set, want map[string]amounts, margin amounts) (r rooms) {
	for _, owner := range slices.Sorted(maps.Keys(want)) {
		l, w := set.Of(owner), want[owner]
		if l == nil {
			continue
		}
		r.owner = append(r.owner, []byte(owner))
		for i := range w {
			r.most[i] = append(r.most[i], unused(l.Of(budget.Budget(i)), w[i], margin[i]))
		}
	}
	return r
}

// unused is how much of a limit may be used for n more; nobody is refused who wants nothing.
func unused(limit, n, margin int64) int64 {
	if limit == 0 || n == 0 {
		return math.MaxInt64
	}
	return limit - n - margin
}

// near returns the users who are near a limit.
func (t *jobTx) near(ctx context.Context, r *rooms) (users []string, err error) {
	b := &pgx.Batch{}
	if len(r.owner) > 0 {
		b.Queue(nearLimits, r.args()...).Query(func(rows pgx.Rows) (err error) {
			users, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
				var owner []byte
				err := row.Scan(&owner)
				return string(owner), err
			})
			return err
		})
	}
	return users, t.send(ctx, b)
}

// lockUsers waits until no other transaction has the lock of one of the users, and returns what they
// hold then.
func (t *jobTx) lockUsers(ctx context.Context, users []string) (map[string]*budget.Usage, error) {
	keys := make([]int64, len(users))
	for i, user := range users {
		keys[i] = lockOf("jobs", user)
	}
	slices.Sort(keys)
	b := &pgx.Batch{}
	for _, key := range slices.Compact(keys) {
		b.Queue(sqlLockUser, key)
	}
	used := map[string]*budget.Usage{}
	b.Queue(sqlHoldings, byteas(users)).Query(func(rows pgx.Rows) error { return scanHoldings(rows, used) })
	return used, t.send(ctx, b)
}

func scanHoldings(rows pgx.Rows, used map[string]*budget.Usage) error {
	var owner []byte
	var u budget.Usage
	_, err := pgx.ForEachRow(rows, []any{&owner, &u[budget.Jobs], &u[budget.QueuedJobs], &u[budget.JobBytes], &u[budget.Deliveries], &u[budget.DeadLetters]}, func() error {
		one := u
		for b := range one {
			one[b] = max(one[b], 0)
		}
		used[string(owner)] = &one
		return nil
	})
	return err
}

// admit refuses the calls for which a user has no room, in order. The others may be added in the same
// transaction.
func (q *Jobs) admit(ctx context.Context, t *jobTx, calls []*addCall) error {
	set := q.s.limits.Load()
	var all []queue.Job
	for _, c := range calls {
		all = append(all, c.jobs...)
	}
	r := roomsOf(set, amountsOf(all), lookMargin())
	users, err := t.near(ctx, &r)
	if err != nil || len(users) == 0 {
		return err
	}
	used, err := t.lockUsers(ctx, users)
	if err != nil {
		return err
	}
	for _, c := range calls {
		w := wantsOf(c.jobs)
		if c.full = full(set, w, used); c.full != nil {
			if c.full, err = unlessThere(ctx, t, c); err != nil {
				return err
			}
			continue
		}
		for user, w := range w {
			if u := used[user]; u != nil {
				u[budget.Jobs] += w.jobs
				u[budget.QueuedJobs] += w.queued
				u[budget.JobBytes] += w.bytes
			}
		}
	}
	return nil
}

// full returns the refusal of jobs; users that are not in used have room.
func full(set *budget.Set, all map[string]*wants, used map[string]*budget.Usage) error {
	for _, user := range slices.Sorted(maps.Keys(all)) {
		if u := used[user]; u != nil {
			if err := all[user].check(set.Of(user), u); err != nil {
				return err
			}
		}
	}
	return nil
}

// unlessThere returns the refusal of a call, or ErrExists: a repetition is told that.
func unlessThere(ctx context.Context, t *jobTx, c *addCall) (refusal, err error) {
	ep, id := make([][]byte, len(c.jobs)), make([][]byte, len(c.jobs))
	for i := range c.jobs {
		ep[i], id[i] = []byte(c.jobs[i].Endpoint), []byte(c.jobs[i].ID)
	}
	there := 0
	err = t.conn.QueryRow(ctx, `SELECT count(*) FROM (`+sqlListed+`) j`, ep, id).Scan(&there)
	if there > 0 {
		return queue.ErrExists, err
	}
	return c.full, err
}

const sqlListed = `SELECT 1 FROM unnest($1::bytea[], $2::bytea[]) u(ep, id),
	LATERAL (SELECT x.num FROM podyard.jobs x WHERE x.ep = u.ep AND x.id = u.id OFFSET 0) x`

// room says what the reports of a transaction may add. A nil room has no limits.
type room struct {
	set  *budget.Set
	used map[string]int64 // budget.JobBytes of the users
}

// fits undoes a report for which the owner of the job has no room, and counts what another move adds.
func (m *room) fits(r *jobRow, before *queue.State, res *queue.Result, op *queue.Op) {
	l := m.limits(r.job.Owner)
	if l == nil || res.Err != nil {
		return
	}
	if err := res.State.Fits(before, res.Effect, op, l, m.used[r.job.Owner]); err != nil {
		*res = queue.Result{State: *before, Err: err}
		return
	}
	m.used[r.job.Owner] += res.State.Grows(before, res.Effect)
}

func (m *room) limits(owner string) *budget.Limits {
	if m == nil {
		return nil
	}
	return m.set.Of(owner)
}

// roomFor locks and reads those jobs of the calls that are not known, and returns what reports among the calls may add.
func (q *Jobs) roomFor(ctx context.Context, m *mover, refs []queue.Ref, calls []*moveCall) (*room, error) {
	b := &pgx.Batch{}
	set := q.s.limits.Load()
	adding := refsOf(calls, (*queue.Op).Adds)
	if set == nil || len(adding) == 0 {
		return nil, m.lock(ctx, b, refs)
	}
	in := &room{set, map[string]int64{}}
	ep, id := refColumns(adding)
	b.Queue(sqlBytesHeld, ep, id).Query(func(rows pgx.Rows) error {
		var owner []byte
		var bytes int64
		_, err := pgx.ForEachRow(rows, []any{&owner, &bytes}, func() error {
			in.used[string(owner)] = bytes
			return nil
		})
		return err
	})
	if err := m.lock(ctx, b, refs); err != nil {
		return nil, err
	}
	if err := in.exact(ctx, m.t); err != nil {
		return nil, err
	}
	return in, nil
}

// near reports whether a user who holds so many bytes is near the limit.
func (m *room) near(user string, used int64) bool {
	l := m.set.Of(user).Of(budget.JobBytes)
	return l > 0 && used+byteMargin > l
}

// exact locks the users who are near their limit, and reads again what they hold.
func (m *room) exact(ctx context.Context, t *jobTx) error {
	var near []string
	for user, used := range m.used {
		if m.near(user, used) {
			near = append(near, user)
		}
	}
	if len(near) == 0 {
		return nil
	}
	used, err := t.lockUsers(ctx, near)
	for user, u := range used {
		m.used[user] = u[budget.JobBytes]
	}
	return err
}

// refusal returns the *budget.Error of jobs that were not added. used reads what a user holds.
func (q *Jobs) refusal(jobs []queue.Job, used func(user string) (budget.Usage, error)) error {
	all, held := wantsOf(jobs), map[string]*budget.Usage{}
	for user := range all {
		u, err := used(user)
		if err != nil {
			return err
		}
		held[user] = &u
	}
	return cmp.Or(full(q.s.limits.Load(), all, held), errNear)
}

// Limit implements budget.Counter: see Store.Limit.
func (q *Jobs) Limit(set *budget.Set) { q.s.Limit(set) }

// Usage implements budget.Counter for the jobs alone.
func (q *Jobs) Usage(ctx context.Context, user string) (u budget.Usage, err error) {
	err = q.s.read(ctx, func(c *pgxpool.Conn) (err error) {
		u, err = q.usage(ctx, c, user)
		return err
	})
	return u, err
}

// Users implements budget.Counter for the jobs alone.
func (q *Jobs) Users(ctx context.Context) ([]string, error) { return q.s.usersOf(ctx, q) }

// EndpointsOf implements queue.OwnerLister. It reads the table of jobs.
func (q *Jobs) EndpointsOf(ctx context.Context, owner string) (list []string, err error) {
	err = q.s.read(ctx, func(c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, `SELECT DISTINCT ep FROM podyard.jobs WHERE owner = $1`, []byte(owner))
		if err != nil {
			return err
		}
		list, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (string, error) {
			var ep []byte
			err := row.Scan(&ep)
			return string(ep), err
		})
		return err
	})
	return list, err
}

func (q *Jobs) holders() string { return sqlHolders }

func (q *Jobs) usage(ctx context.Context, c querier, owner string) (u budget.Usage, err error) {
	rows, err := c.Query(ctx, sqlHoldings, [][]byte{[]byte(owner)})
	if err != nil {
		return u, err
	}
	used := map[string]*budget.Usage{}
	if err := scanHoldings(rows, used); err != nil {
		return u, err
	}
	return *used[owner], nil
}
