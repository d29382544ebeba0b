package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	// The ready rows of an endpoint with one line: the late ones below the floor, and those from it
	// on; none of another endpoint, because the database asks whether it is mixed before it reads them.
	// The order of the scans is that of Seq; OFFSET 0 keeps the planner from moving the limit or
	// sorting.
	readyRows = `(SELECT r.seq, r.queued, r.expires, r.low, r.ctid FROM podyard.job_ready r
		WHERE NOT e.mixed AND (r.ep || ''::bytea) = e.ep AND r.owner = e.owner AND r.prio = e.prio AND r.key = e.key AND r.seq < $2 AND r.late ORDER BY r.seq OFFSET 0)
	UNION ALL
	(SELECT r.seq, r.queued, r.expires, r.low, r.ctid FROM podyard.job_ready r
		WHERE NOT e.mixed AND r.ep = e.ep AND r.owner = e.owner AND r.prio = e.prio AND r.key = e.key AND r.seq >= $2 ORDER BY r.seq OFFSET 0)`

	// Whether the endpoint is mixed is in each row, also in the one that says that there is no job.
	sqlOldest = `SELECT coalesce(j.num, 0), coalesce(j.armed, 0), coalesce(j.seq, 0), j.ep, j.id, j.owner, j.key, j.state, j.ctid, j.ready, e.mixed
	FROM podyard.job_endpoints e LEFT JOIN LATERAL (SELECT ` + lockedColumns + `, r.ctid AS ready FROM (` + readyRows + `) r,
		LATERAL (SELECT ` + lockedColumns + ` FROM podyard.jobs j WHERE (j.ep || ''::bytea) = e.ep AND j.seq = r.seq FOR UPDATE SKIP LOCKED) j
		WHERE r.expires > $4) j ON true
	WHERE e.ep = $1 LIMIT $3`

	sqlLockSeqs = `SELECT ` + lockedColumns + ` FROM unnest($1::bytea[], $2::int8[]) u(ep, seq),
	LATERAL (SELECT ` + lockedColumns + ` FROM podyard.jobs j WHERE (j.ep || ''::bytea) = u.ep AND j.seq = u.seq FOR UPDATE SKIP LOCKED) j`

	// A job that can be claimed has no output: what it had is gone since it is in the queue.
	sqlInputs = `SELECT b.num, b.input, b.webhook, b.extra, b.trace_parent, b.trace_state FROM podyard.job_bodies b WHERE b.num = ANY($1::int8[])`
)

// A claimCall is a call of Claim.
type claimCall struct {
	now    queue.Instant
	slots  []queue.Slot
	out    []*jobRow
	answer answer
	end    claimEnd
}

func (c *claimCall) size() (items, bytes int) {
	for i := range c.slots {
		items += c.slots[i].N
	}
	return items, 0
}

// Claim implements queue.JobQueue. A call whose jobs have more than 8 MiB of input gets fewer of them than
// it asks for, at least one: the next call gets more. After an error nobody has the jobs of the call:
// if the commit may have been made, it is undone first, unless the store is closed meanwhile.
//
// An endpoint whose jobs are of one owner, key and priority, and that has no limits, is served by
// any number of servers at the same time. For another one a server locks the endpoint, so the
// order is that of the contract and no limit is ever exceeded.
func (q *Jobs) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	c := &claimCall{now: now, answer: newAnswer()}
	for _, s := range slots {
		if s.N > 0 && (s.Rules == nil || !s.Rules.Paused) {
			c.slots = append(c.slots, s)
		}
	}
	if len(c.slots) == 0 {
		return out, nil
	}
	if err := q.claimed.push(ctx, c); err != nil {
		return out, err
	}
	if err := c.await(ctx); err != nil {
		return out, err
	}
	out = slices.Grow(out, len(c.out))
	for _, r := range c.out {
		out = append(out, r.job)
	}
	return out, nil
}

// claimAll makes some calls in one transaction, and in further ones those whose jobs are too large for
// the first.
func (q *Jobs) claimAll(ctx context.Context, calls []*claimCall, rows *counterRows) {
	evs, made, err := q.claimOnce(ctx, calls, rows)
	for errors.Is(err, ErrUnknown) && q.undo(ctx, calls) {
		evs, made, err = q.claimOnce(ctx, calls, rows)
	}
	if mayBeOfOne(err) && len(calls) > 1 {
		for i := range calls {
			q.claimAll(ctx, calls[i:i+1], rows)
		}
		return
	}
	q.publish(ctx, evs)
	if err != nil {
		made = len(calls)
	}
	for _, c := range calls[:made] {
		q.reply(ctx, c, err)
	}
	if made < len(calls) {
		q.claimAll(ctx, calls[made:], rows)
	}
}

func (q *Jobs) claimOnce(ctx context.Context, calls []*claimCall, rows *counterRows) (evs []queue.Event, made int, err error) {
	epoch, err := q.node(ctx)
	if err != nil {
		return nil, 0, err
	}
	var c *claimer
	err = q.transact(ctx, func(t *jobTx) error {
		c = &claimer{mover: newMover(t, epoch, rows), q: q, calls: calls, plain: map[string]*oldest{}, orders: map[string]*order{}}
		if err := c.begin(ctx); err != nil {
			return err
		}
		if made, err = c.serve(ctx); err != nil {
			return err
		}
		return c.finish(ctx)
	})
	if err != nil {
		return nil, made, err
	}
	q.held.moved(c.moves)
	q.floors.claimed(ctx, c.claimed())
	return c.evs, made, nil
}

// claimed returns how many jobs were claimed of endpoints with one line.
func (c *claimer) claimed() map[string]int {
	jobs := map[string]int{}
	for _, call := range c.calls {
		for _, r := range call.out {
			if c.plain[r.job.Endpoint] != nil {
				jobs[r.job.Endpoint]++
			}
		}
	}
	return jobs
}

// A claimer makes some calls of Claim in a transaction.
type claimer struct {
	*mover
	q      *Jobs
	calls  []*claimCall
	plain  map[string]*oldest
	orders map[string]*order
	bytes  int // of the inputs of the claimed jobs
}

// oldest are the oldest jobs of an endpoint with one line.
type oldest struct {
	jobs         []*jobRow
	asked, found int // of the last query; if fewer were found than asked for, there are no more
	mixed        bool
}

// read adds the query for the oldest n jobs that nobody has locked to a batch.
func (o *oldest) read(b *pgx.Batch, endpoint string, floor int64, n int, now queue.Instant) {
	known := map[int64]bool{}
	for _, r := range o.jobs {
		known[r.num] = true
	}
	o.asked, o.found = n, 0
	b.Queue(sqlOldest, []byte(endpoint), floor, n, int64(now)).Query(func(rows pgx.Rows) error {
		var c jobScan
		var place, ready pgtype.TID
		_, err := pgx.ForEachRow(rows, c.targets(&place, &ready, &o.mixed), func() error {
			if c.num == 0 {
				return nil
			}
			o.found++
			if known[c.num] {
				return nil
			}
			r, err := c.row()
			r.place, r.readyPlace = place, ready
			o.jobs = append(o.jobs, r)
			return err
		})
		return err
	})
}

func limited(r *queue.Rules) bool { return r != nil && (r.PerKey > 0 || r.PerUser > 0 || r.Total > 0) }

// begin reads the oldest jobs of the endpoints with one line, and the lines of others.
func (c *claimer) begin(ctx context.Context) error {
	need, now := map[string]int{}, c.calls[0].now
	for _, call := range c.calls {
		now = min(now, call.now)
		for i := range call.slots {
			s := &call.slots[i]
			need[s.Endpoint] += min(s.N, maxItems)
			if limited(s.Rules) {
				c.orders[s.Endpoint] = nil
			}
		}
		call.out = nil
	}
	endpoints := slices.Sorted(maps.Keys(need))
	b := &pgx.Batch{}
	for _, ep := range endpoints {
		if _, ok := c.orders[ep]; !ok {
			c.plain[ep] = &oldest{}
			c.plain[ep].read(b, ep, c.q.floors.of(ep), min(need[ep], maxItems), now)
		}
	}
	if err := c.t.send(ctx, b); err != nil {
		return err
	}
	for ep, o := range c.plain {
		c.moves = slices.Grow(c.moves, len(o.jobs))
		if o.mixed {
			delete(c.plain, ep)
			c.orders[ep] = nil
		}
	}
	return c.readOrders(ctx, need)
}

func byteas(list []string) [][]byte {
	bs := make([][]byte, len(list))
	for i := range list {
		bs[i] = []byte(list[i])
	}
	return bs
}

// serve claims for each slot in order, and returns how many calls it has served.
func (c *claimer) serve(ctx context.Context) (made int, err error) {
	for n, call := range c.calls {
		if c.bytes >= maxBytes {
			return n, nil
		}
		for i := range call.slots {
			s := &call.slots[i]
			if o := c.orders[s.Endpoint]; o != nil {
				err = c.inOrder(ctx, call, s, o)
			} else {
				err = c.oldestFirst(ctx, call, s, c.plain[s.Endpoint])
			}
			if err != nil {
				return 0, err
			}
		}
	}
	return len(c.calls), nil
}

// oldestFirst claims the oldest jobs of an endpoint with one line.
func (c *claimer) oldestFirst(ctx context.Context, call *claimCall, s *queue.Slot, o *oldest) error {
	n, i, before := 0, 0, c.bytes
	for !s.Full(n, c.bytes-before) && c.bytes < maxBytes {
		if i == len(o.jobs) {
			if o.found < o.asked {
				return nil
			}
			if err := c.readMore(ctx, call, s, o); err != nil {
				return err
			}
			continue
		}
		got, err := c.claim(ctx, call, s, o.jobs[i])
		if err != nil {
			return err
		}
		if got {
			n++
		}
		i++
	}
	return nil
}

// readMore reads more jobs. Those that were read before are locked, and are read again.
func (c *claimer) readMore(ctx context.Context, call *claimCall, s *queue.Slot, o *oldest) error {
	b := &pgx.Batch{}
	o.read(b, s.Endpoint, c.q.floors.of(s.Endpoint), 2*o.asked+min(s.N, 1<<16), call.now)
	return c.t.send(ctx, b)
}

// claim claims a locked job for a slot, if it can.
func (c *claimer) claim(ctx context.Context, call *claimCall, s *queue.Slot, r *jobRow) (ok bool, err error) {
	if r.job.Status != queue.InQueue || r.job.Gone(call.now) {
		return false, nil // it moved, or a sweep will delete it
	}
	op := queue.Op{Ref: r.job.Ref, Kind: queue.OpClaim, Worker: s.Worker, Token: c.q.token(c.epoch), Until: s.Until}
	res, err := c.move(ctx, call.now, r, &op)
	if err != nil || res.Err != nil {
		return false, err
	}
	call.out = append(call.out, r)
	c.bytes += int(r.job.InBytes)
	return true, nil
}

// finish writes the claims and reads the inputs of the jobs.
func (c *claimer) finish(ctx context.Context) error {
	rows := map[int64]*jobRow{}
	var nums []int64
	for _, call := range c.calls {
		for _, r := range call.out {
			rows[r.num] = r
			nums = append(nums, r.num)
		}
	}
	b := &pgx.Batch{}
	for _, o := range c.orders {
		if o != nil {
			o.queue(b)
		}
	}
	var inputs merged
	addIf(&inputs, nums, sqlInputs, nums)
	return c.commit(ctx, b, inputs, func(found pgx.Rows) error {
		var num int64
		var p payloads
		_, err := pgx.ForEachRow(found, append([]any{&num}, p.inputs()...), func() error {
			return c.q.fill(&p, &rows[num].job)
		})
		return err
	})
}
