package postgres

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

const (
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
// A server locks the endpoint while it claims, so the order is that of the contract and no limit is ever
// exceeded.
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
	resets := 0
	claim := func(t *jobTx) error {
		resets = q.news.count()
		c = &claimer{mover: newMover(t, epoch, rows), q: q, calls: calls, orders: map[string]*order{}}
		if err := c.begin(ctx); err != nil {
			return err
		}
		if c.unread() {
			return c.finish(ctx)
		}
		if made, err = c.serve(ctx); err != nil {
			return err
		}
		return c.finish(ctx)
	}
	for again := true; again; again = c.unread() {
		if err = q.transact(ctx, claim); errors.Is(err, errNoRow) {
			q.news.forget(c.endpoints)
			err = q.transact(ctx, claim)
		}
		if err != nil {
			return nil, made, err
		}
		q.news.raise(resets, q.s.pooled, c.orders)
	}
	q.held.moved(c.moves)
	return c.evs, made, nil
}

// unread reports whether there are more news than a transaction reads. One that leaves some claims nothing: the
// next jobs may be among those that nobody knows of yet. It writes what it has read, and another one goes on.
func (c *claimer) unread() bool {
	for _, o := range c.orders {
		if o.newsLeft {
			return true
		}
	}
	return false
}

// A claimer makes some calls of Claim in a transaction.
type claimer struct {
	*mover
	q         *Jobs
	calls     []*claimCall
	endpoints []string
	orders    map[string]*order
	bytes     int // of the inputs of the claimed jobs
}

func limited(r *queue.Rules) bool { return r != nil && (r.Limited() || r.Rated()) }

// begin locks the endpoints and reads their first lines.
func (c *claimer) begin(ctx context.Context) error {
	need, now := map[string]int{}, c.calls[0].now
	for _, call := range c.calls {
		call.out, now = nil, min(now, call.now)
		for i := range call.slots {
			s := &call.slots[i]
			need[s.Endpoint] += min(s.N, c.q.sizes.items)
			o := c.orders[s.Endpoint]
			if o == nil {
				o = newOrder(s.Endpoint, c.q.sizes)
				c.orders[s.Endpoint] = o
			}
			if s.Rules != nil {
				o.rules = *s.Rules
			}
		}
	}
	c.endpoints = slices.Sorted(maps.Keys(c.orders))
	b := &pgx.Batch{}
	c.lockRows(b, c.endpoints)
	known := true
	for _, ep := range c.endpoints {
		e, _ := c.q.news.of(ep)
		known = known && !e.counted && !limited(&c.orders[ep].rules)
	}
	if !known {
		if err := c.t.send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
	}
	numbers := 0
	for _, ep := range c.endpoints {
		o, n := c.orders[ep], min(need[ep], c.q.sizes.items)
		e, _ := c.q.news.of(ep)
		if o.depth = n; e.mixed {
			o.depth = min(n, c.q.sizes.lineDepth)
			numbers += n
		}
		if !known && o.locked {
			o.limit(b)
			o.prepareRates(b, c.q.givenNow(c.calls[0].now))
		}
		o.read(b, e.from, n, e.mixed, now)
	}
	if numbers > 0 {
		c.readNumbers(b, numbers)
	}
	if err := c.t.send(ctx, b); err != nil {
		return err
	}
	return c.readRest(ctx)
}

// readRest reads what the first answer says that is to be read, too.
func (c *claimer) readRest(ctx context.Context) error {
	b := &pgx.Batch{}
	for ep, o := range c.orders {
		switch {
		case !o.locked && len(o.owners) > 0:
			return errNoRow
		case !o.locked:
			delete(c.orders, ep) // it has never had a job
			continue
		case o.counted && (o.perKey != o.rules.PerKey || o.perUser != o.rules.PerUser):
			o.limit(b)
			o.newsLeft = true
		}
		if o.rates != ratesText(&o.rules) || o.rated() && o.buckets == nil { // an older row did not say it
			o.prepareRates(b, c.q.givenNow(c.calls[0].now))
			o.newsLeft = true
		}
	}
	for n := 1; n < c.q.sizes.newsReads; n++ {
		for ep, o := range c.orders {
			if o.newsLeft {
				e, _ := c.q.news.of(ep)
				o.readNews(b, e.from)
			}
		}
		if b.Len() == 0 {
			break
		}
		if err := c.t.send(ctx, b); err != nil {
			return err
		}
		b = &pgx.Batch{}
	}
	for _, o := range c.orders {
		if len(o.freed) > 0 {
			o.readKeys(b)
		}
	}
	if b.Len() > 0 {
		if err := c.t.send(ctx, b); err != nil {
			return err
		}
	}
	if err := c.readRates(ctx); err != nil {
		return err
	}
	for _, o := range c.orders {
		o.look()
		o.takeGiven()
	}
	return nil
}

// readRates reads the buckets of the lines that were read.
func (c *claimer) readRates(ctx context.Context) error {
	b := &pgx.Batch{}
	for _, o := range c.orders {
		o.readRates(b)
	}
	if b.Len() == 0 {
		return nil
	}
	return c.t.send(ctx, b)
}

// readNumbers adds the query for numbers of turns and of versions of rows to a batch.
func (c *claimer) readNumbers(b *pgx.Batch, n int) {
	b.Queue(sqlNextSeqs, n).Query(func(rows pgx.Rows) error {
		list, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		c.seqs = append(c.seqs, list...)
		return err
	})
}

// number returns a number of job_seq.
func (c *claimer) number(ctx context.Context) (int64, error) {
	if len(c.seqs) == 0 {
		b := &pgx.Batch{}
		c.readNumbers(b, 64)
		if err := c.t.send(ctx, b); err != nil {
			return 0, err
		}
	}
	n := c.seqs[0]
	c.seqs = c.seqs[1:]
	return n, nil
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
				if err := c.inOrder(ctx, call, s, o); err != nil {
					return 0, err
				}
			}
		}
	}
	return len(c.calls), nil
}

// How many jobs are locked at once bounds by how many inputs a claim may exceed maxBytes, and
// Slot.Bytes.
const (
	chosenAtOnce  = 32
	chosenOfBytes = 4
)

// inOrder claims for a slot of an endpoint in its order. A job that another server moves at the
// same time is passed by.
func (c *claimer) inOrder(ctx context.Context, call *claimCall, s *queue.Slot, o *order) error {
	o.begin(s)
	n, before, atOnce := 0, c.bytes, c.q.sizes.chosen
	switch {
	case s.Bytes > 0:
		atOnce = c.q.sizes.chosenOfBytes
	case !o.mixed:
		atOnce = c.q.sizes.items
	}
	for !s.Full(n, c.bytes-before) && c.bytes < maxBytes {
		chosen, err := c.chooseSome(ctx, call, s, o, min(s.N-n, atOnce))
		if err != nil || len(chosen) == 0 {
			return err
		}
		if err := c.lockChosen(ctx, o, chosen); err != nil {
			return err
		}
		for _, j := range chosen {
			if !o.mixed && (s.Full(n, c.bytes-before) || c.bytes >= maxBytes) {
				j.taken = false
				o.untake(j)
				continue
			}
			if r := o.rows[j.seq]; r != nil {
				r.counted, r.readyPlace = o.counted, j.place
				if j.claimed, err = c.claim(ctx, call, s, r); err != nil {
					return err
				}
			}
			if j.claimed {
				n++
			} else {
				o.untake(j)
			}
		}
	}
	return nil
}

func (c *claimer) chooseSome(ctx context.Context, call *claimCall, s *queue.Slot, o *order, n int) (list []*readyJob, err error) {
	for len(list) < n {
		j := o.next(call.now, s)
		if j == nil && o.want == (want{}) {
			return list, nil
		}
		if j == nil {
			b := &pgx.Batch{}
			o.readWanted(b)
			if err := c.t.send(ctx, b); err != nil {
				return nil, err
			}
			if err := c.readRates(ctx); err != nil {
				return nil, err
			}
			o.look()
			continue
		}
		served := int64(0)
		if o.mixed {
			if served, err = c.number(ctx); err != nil {
				return nil, err
			}
		}
		o.take(j, served)
		list = append(list, j)
	}
	return list, nil
}

// readWanted adds the query to a batch for what the order wants.
func (o *order) readWanted(b *pgx.Batch) {
	switch w := o.want; {
	case w.line != nil:
		o.readLine(b, w.line)
	case w.level != nil:
		o.readLevel(b, w.level)
	default:
		o.readOwners(b, o.sizes.firstRead)
	}
}

// lockChosen locks those jobs that are not yet.
func (c *claimer) lockChosen(ctx context.Context, o *order, chosen []*readyJob) error {
	var ep [][]byte
	var seq []int64
	for _, j := range chosen {
		if o.rows[j.seq] == nil {
			ep, seq = append(ep, []byte(o.endpoint)), append(seq, int64(j.seq))
		}
	}
	if len(seq) == 0 {
		return nil
	}
	slices.Sort(seq)
	var list []*jobRow
	b := &pgx.Batch{}
	queueLock(b, &list, sqlLockSeqs, ep, seq)
	if err := c.t.send(ctx, b); err != nil {
		return err
	}
	for _, r := range list {
		o.rows[r.job.Seq] = r
	}
	return nil
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
	drop := c.q.claims.Add(1)%c.q.sizes.dropShare == 0
	for _, o := range c.orders {
		o.queue(b, drop)
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
