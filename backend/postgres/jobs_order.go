package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

const (
	sqlLockEndpoints = `SELECT ep, claims FROM podyard.job_endpoints WHERE ep = ANY($1::bytea[]) ORDER BY ep FOR UPDATE`

	// The lines of an endpoint, each found from the one before, with their oldest jobs.
	sqlLines = `WITH RECURSIVE l AS (
		(SELECT r.owner, r.prio, r.key FROM podyard.job_ready r WHERE r.ep = $1 ORDER BY r.owner, r.prio, r.key LIMIT 1)
		UNION ALL
		SELECT n.owner, n.prio, n.key FROM l, LATERAL (SELECT r.owner, r.prio, r.key FROM podyard.job_ready r
			WHERE r.ep = $1 AND (r.owner, r.prio, r.key) > (l.owner, l.prio, l.key) ORDER BY r.owner, r.prio, r.key LIMIT 1) n
	) SELECT l.owner, l.prio, l.key, h.seq, h.queued, h.expires, h.lost FROM l, LATERAL (
		SELECT r.seq, r.queued, r.expires, r.lost FROM podyard.job_ready r
		WHERE r.ep = $1 AND r.owner = l.owner AND r.prio = l.prio AND r.key = l.key ORDER BY r.seq LIMIT $2) h`

	sqlMoreOfLine = `SELECT owner, prio, key, seq, queued, expires, lost FROM podyard.job_ready
	WHERE ep = $1 AND owner = $2 AND prio = $3 AND key = $4 AND seq > $5 ORDER BY seq LIMIT $6`

	sqlTurns = `SELECT owner, prio, key, seq, n FROM podyard.job_turns WHERE ep = $1`

	sqlUse = `SELECT owner, key, count(*) FROM podyard.job_running WHERE ep = $1 GROUP BY owner, key`

	sqlLastSeq = `SELECT last_value FROM podyard.job_seq`

	sqlPutTurns = `INSERT INTO podyard.job_turns (ep, owner, prio, key, seq, n)
	SELECT $1, u.owner, u.prio, u.key, $5, u.n FROM unnest($2::bytea[], $3::int2[], $4::bytea[], $6::int8[]) u(owner, prio, key, n)
	ON CONFLICT (ep, owner, prio, key) DO UPDATE SET seq = excluded.seq, n = excluded.n`

	sqlPutClaims = `UPDATE podyard.job_endpoints SET claims = $2 WHERE ep = $1`

	// A turn before the oldest job that waits or runs has no effect any more.
	sqlDropTurns = `DELETE FROM podyard.job_turns
	WHERE ep = $1 AND seq < least($2, (SELECT min(seq) FROM podyard.job_running WHERE ep = $1))`
)

// How many jobs are read of each line at first, and of one that has no more of those. An endpoint
// may have thousands of lines, which are served in turn.
const (
	lineDepth  = 4
	moreOfLine = 256
	// How many are locked at once bounds by how many inputs a claim may exceed maxBytes, and
	// Slot.Bytes.
	chosenAtOnce  = 32
	chosenOfBytes = 4
)

// A turn says when a line or an owner is next: the lowest turn first (see queue.JobQueue.Claim).
type turn struct {
	seq uint64
	n   int64 // of a claim; 0: not a claim
}

func (a turn) before(b turn) bool { return a.seq < b.seq || a.seq == b.seq && a.n < b.n }

// next returns the turn of somebody who was last served at a, and whose oldest job has this Seq.
func (a turn) next(seq uint64) turn {
	if t := (turn{seq: seq}); a.before(t) {
		return t
	}
	return a
}

// A lineName names a line of an endpoint. An owner has the priority -1 and no key.
type lineName struct {
	owner, key string
	prio       int16
}

func ownerName(owner string) lineName { return lineName{owner: owner, prio: -1} }

// An order has the ready jobs of a locked endpoint, and says which one is claimed next.
type order struct {
	endpoint string
	depth    int // how many jobs of a line are read at once
	lines    map[lineName]*orderLine
	list     []*orderLine // in the order of names
	served   map[lineName]turn
	changed  map[lineName]bool // of served
	use      map[[2]string]int // running jobs by owner and key
	users    map[string]int    // running jobs by owner
	running  int
	claims   int64
	last     uint64 // a Seq that no job is above
}

// An orderLine is a line with its oldest jobs.
type orderLine struct {
	lineName
	jobs []readyJob
	more bool // there may be jobs after these
}

type readyJob struct {
	seq             uint64
	queued, expires queue.Instant
	lost            queue.WorkerID
	taken           bool
}

func newOrder(endpoint string, depth int) *order {
	return &order{
		endpoint: endpoint, depth: depth, lines: map[lineName]*orderLine{}, served: map[lineName]turn{},
		changed: map[lineName]bool{}, use: map[[2]string]int{}, users: map[string]int{},
	}
}

// readOrders locks the endpoints that are not plain, and reads their lines.
func (c *claimer) readOrders(ctx context.Context, need map[string]int) error {
	if len(c.orders) == 0 {
		return nil
	}
	endpoints := slices.Sorted(maps.Keys(c.orders))
	for _, ep := range endpoints {
		c.orders[ep] = newOrder(ep, min(need[ep], lineDepth))
	}
	b := &pgx.Batch{}
	b.Queue(sqlLockEndpoints, byteas(endpoints)).Query(func(rows pgx.Rows) error {
		var ep []byte
		var claims int64
		_, err := pgx.ForEachRow(rows, []any{&ep, &claims}, func() error {
			c.orders[string(ep)].claims = claims
			return nil
		})
		return err
	})
	for _, ep := range endpoints {
		c.orders[ep].read(b)
	}
	return c.t.send(ctx, b)
}

// read adds the queries of an order to a batch.
func (o *order) read(b *pgx.Batch) {
	ep := []byte(o.endpoint)
	b.Queue(sqlLines, ep, o.depth).Query(o.addJobs)
	b.Queue(sqlLastSeq).QueryRow(func(row pgx.Row) error { return row.Scan(&o.last) })
	b.Queue(sqlTurns, ep).Query(func(rows pgx.Rows) error {
		var owner, key []byte
		var prio int16
		var seq, n int64
		_, err := pgx.ForEachRow(rows, []any{&owner, &prio, &key, &seq, &n}, func() error {
			o.served[lineName{string(owner), string(key), prio}] = turn{uint64(seq), n}
			return nil
		})
		return err
	})
	o.readUse(b)
}

// readUse adds the query for the running jobs to a batch.
func (o *order) readUse(b *pgx.Batch) {
	b.Queue(sqlUse, []byte(o.endpoint)).Query(func(rows pgx.Rows) error {
		var owner, key []byte
		var n int
		_, err := pgx.ForEachRow(rows, []any{&owner, &key, &n}, func() error {
			o.run(string(owner), string(key), n)
			return nil
		})
		return err
	})
}

// addJobs adds the jobs of rows to their lines.
func (o *order) addJobs(rows pgx.Rows) error {
	var owner, key, lost []byte
	var prio int16
	var seq, queued, expires int64
	found := map[*orderLine]int{}
	_, err := pgx.ForEachRow(rows, []any{&owner, &prio, &key, &seq, &queued, &expires, &lost}, func() error {
		name := lineName{string(owner), string(key), prio}
		l := o.lines[name]
		if l == nil {
			l = &orderLine{lineName: name}
			o.lines[name] = l
			o.list = append(o.list, l)
		}
		l.jobs = append(l.jobs, readyJob{seq: uint64(seq), queued: queue.Instant(queued), expires: queue.Instant(expires), lost: queue.WorkerID(lost)})
		found[l]++
		return nil
	})
	for l, n := range found {
		l.more = n >= o.depth
	}
	return err
}

// run counts n more running jobs.
func (o *order) run(owner, key string, n int) {
	o.use[[2]string{owner, key}] += n
	o.users[owner] += n
	o.running += n
}

// A choice is a job that is next for a slot.
type choice struct {
	line *orderLine
	job  int
}

// choose returns the job that is next for a slot. It returns a line alone if it must have more of
// its jobs first, and no line if there is no job.
func (o *order) choose(now queue.Instant, s *queue.Slot) (next choice) {
	r := queue.Rules{}
	if s.Rules != nil {
		r = *s.Rules
	}
	if r.Total > 0 && o.running >= r.Total {
		return choice{}
	}
	owners := map[string][]choice{}
	for _, l := range o.list {
		if o.isFull(&r, l.owner, l.key) {
			continue
		}
		i := l.head(now, s.Worker)
		switch {
		case i >= 0:
			owners[l.owner] = append(owners[l.owner], choice{l, i})
		case l.more:
			return choice{l, -1}
		}
	}
	var heads []choice
	var first turn
	for owner, list := range owners {
		if t := o.served[ownerName(owner)].next(oldestOf(list)); heads == nil || t.before(first) {
			heads, first = list, t
		}
	}
	return o.firstKey(highest(heads, now, r.Ageing.Milliseconds()))
}

// isFull reports whether an owner, or a key of it, is at a limit.
func (o *order) isFull(r *queue.Rules, owner, key string) bool {
	return r.PerUser > 0 && o.users[owner] >= r.PerUser || key != "" && r.PerKey > 0 && o.use[[2]string{owner, key}] >= r.PerKey
}

// head returns the oldest job of a line that a worker can claim; -1: none.
func (l *orderLine) head(now queue.Instant, w queue.WorkerID) int {
	return slices.IndexFunc(l.jobs, func(j readyJob) bool { return !j.taken && j.expires > now && (j.lost == "" || j.lost != w) })
}

func (c choice) seq() uint64 { return c.line.jobs[c.job].seq }

func oldestOf(list []choice) uint64 {
	seq := list[0].seq()
	for _, c := range list[1:] {
		seq = min(seq, c.seq())
	}
	return seq
}

// highest returns the choices of the priority that is served first.
func highest(list []choice, now queue.Instant, ageing int64) (best []choice) {
	score := int64(-1)
	for p := int16(queue.MaxPriority); p >= 0; p-- {
		var level []choice
		for _, c := range list {
			if c.line.prio == p {
				level = append(level, c)
			}
		}
		if len(level) == 0 {
			continue
		}
		s := int64(p)
		if ageing > 0 {
			first := slices.MinFunc(level, func(a, b choice) int {
				if a.seq() < b.seq() {
					return -1
				}
				return 1
			})
			s = s*ageing + max(int64(now-first.line.jobs[first.job].queued), 0)
		}
		if s > score {
			best, score = level, s
		}
	}
	return best
}

// firstKey returns the choice of the line whose turn is first.
func (o *order) firstKey(list []choice) (next choice) {
	var first turn
	for _, c := range list {
		if t := o.served[c.line.lineName].next(c.seq()); next.line == nil || t.before(first) {
			next, first = c, t
		}
	}
	return next
}

// take makes a choice.
func (o *order) take(c choice) {
	c.line.jobs[c.job].taken = true
	o.run(c.line.owner, c.line.key, 1)
	o.claims++
	for _, name := range [...]lineName{c.line.lineName, ownerName(c.line.owner)} {
		o.served[name] = turn{o.last, o.claims}
		o.changed[name] = true
	}
}

// inOrder claims for a slot of an endpoint in its order. A job that another server moves at the
// same time is passed by.
func (c *claimer) inOrder(ctx context.Context, call *claimCall, s *queue.Slot, o *order) error {
	n, before, atOnce := 0, c.bytes, chosenAtOnce
	if s.Bytes > 0 {
		atOnce = chosenOfBytes
	}
	for !s.Full(n, c.bytes-before) && c.bytes < maxBytes {
		chosen, err := c.chooseSome(ctx, call, s, o, min(s.N-n, atOnce))
		if err != nil || len(chosen) == 0 {
			return err
		}
		rows, err := c.lockChosen(ctx, o, chosen)
		if err != nil {
			return err
		}
		for _, ch := range chosen {
			ok := false
			if r := rows[ch.seq()]; r != nil {
				if ok, err = c.claim(ctx, call, s, r); err != nil {
					return err
				}
			}
			if ok {
				n++
			} else {
				o.run(ch.line.owner, ch.line.key, -1)
			}
		}
	}
	return nil
}

func (c *claimer) chooseSome(ctx context.Context, call *claimCall, s *queue.Slot, o *order, n int) (list []choice, err error) {
	for len(list) < n {
		next := o.choose(call.now, s)
		switch {
		case next.line == nil:
			return list, nil
		case next.job < 0:
			if err := c.readLine(ctx, o, next.line); err != nil {
				return nil, err
			}
			continue
		}
		o.take(next)
		list = append(list, next)
	}
	return list, nil
}

// readLine reads more jobs of a line.
func (c *claimer) readLine(ctx context.Context, o *order, l *orderLine) error {
	l.more = false
	after := l.jobs[len(l.jobs)-1].seq
	b := &pgx.Batch{}
	b.Queue(sqlMoreOfLine, []byte(o.endpoint), []byte(l.owner), l.prio, []byte(l.key), int64(after), moreOfLine).Query(o.addJobs)
	return c.t.send(ctx, b)
}

func (c *claimer) lockChosen(ctx context.Context, o *order, chosen []choice) (map[uint64]*jobRow, error) {
	ep, seq := make([][]byte, len(chosen)), make([]int64, len(chosen))
	for i, ch := range chosen {
		ep[i], seq[i] = []byte(o.endpoint), int64(ch.seq())
	}
	slices.Sort(seq)
	var list []*jobRow
	b := &pgx.Batch{}
	queueLock(b, &list, sqlLockSeqs, ep, seq)
	if err := c.t.send(ctx, b); err != nil {
		return nil, err
	}
	rows := map[uint64]*jobRow{}
	for _, r := range list {
		rows[r.job.Seq] = r
	}
	return rows, nil
}

// queue adds the statements that store the turns to a batch.
func (o *order) queue(b *pgx.Batch) {
	if len(o.changed) == 0 {
		return
	}
	ep := []byte(o.endpoint)
	if len(o.served) > 2*len(o.list)+64 {
		live := o.last
		for _, l := range o.list {
			live = min(live, l.jobs[0].seq)
		}
		b.Queue(sqlDropTurns, ep, int64(live))
	}
	var owner, key [][]byte
	var prio []int16
	var n []int64
	for name := range o.changed {
		owner, key, prio = append(owner, []byte(name.owner)), append(key, []byte(name.key)), append(prio, name.prio)
		n = append(n, o.served[name].n)
	}
	b.Queue(sqlPutTurns, ep, owner, prio, key, int64(o.last), n)
	b.Queue(sqlPutClaims, ep, o.claims)
}
