package postgres

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/serverless/queue"
)

// The order of claims is kept in rows: job_lines has one for each line of an endpoint that has jobs, and
// job_owners one for each owner. A claim reads the first ones from indexes, so its cost does not depend on
// how many there are. Heads and turns in rows may be too early, never too late: a job that was cancelled
// changes no row, and the claim that comes to its line reads the jobs and corrects it.

const (
	sqlLockEndpoints = `SELECT ep, owner, prio, key, mixed, counted, per_key, per_user, floor, rates FROM podyard.job_endpoints WHERE ep = ANY($1::bytea[]) ORDER BY ep FOR UPDATE`

	// It is read after the lock: a statement that waits for the lock sees what was there before.
	sqlHolding = `SELECT u.ep FROM unnest($1::bytea[]) u(ep) WHERE EXISTS (SELECT FROM podyard.job_key_holds h WHERE h.ep = u.ep)`

	sqlAddEndpoints = `INSERT INTO podyard.job_endpoints (ep, owner, prio, key) SELECT u.ep, n.owner, n.prio, n.key FROM unnest($1::bytea[]) u(ep),
	LATERAL (SELECT x.owner, x.prio, x.key FROM podyard.job_news x WHERE x.ep = u.ep AND x.prio >= 0 LIMIT 1) n ON CONFLICT (ep) DO NOTHING`

	// The ready jobs of the line l from a place on, as arrays.
	lineJobs = `LATERAL (SELECT array_agg(r.seq) AS seqs, array_agg(r.queued) AS queued, array_agg(r.expires) AS expires, array_agg(r.lost) AS lost, array_agg(r.ctid) AS places FROM (
		SELECT r.seq, r.queued, r.expires, r.lost, r.ctid FROM podyard.job_ready r
		WHERE r.ep = $1 AND r.owner = l.owner AND r.prio = l.prio AND r.key = l.key AND r.seq >= l.head ORDER BY r.seq LIMIT $2) r) j`

	// What runs of the key of the line l.
	keyUse = `LEFT JOIN LATERAL (SELECT x.ctid AS place, x.runs FROM podyard.job_lines x
		WHERE x.ep = $1 AND x.owner = l.owner AND x.key = l.key AND x.prio = -1 AND l.key <> '' ORDER BY x.v DESC LIMIT 1) k ON true`

	lineColumns = `l.prio, l.key, l.place, l.head, l.stored, l.served, l.waiting, k.place, coalesce(k.runs, 0), j.seqs, j.queued, j.expires, j.lost, j.places`

	ownerColumns = `o.owner, o.place, o.served, o.turn, o.waiting, o.runs, o.heads, o.turns`

	// The news of an endpoint, added up by line, with what rows there are.
	sqlNews = `WITH d AS (DELETE FROM podyard.job_news WHERE ctid = ANY(ARRAY(
		SELECT x.ctid FROM podyard.job_news x WHERE x.ep = $1 AND x.tx >= $3 ORDER BY x.tx LIMIT $4)) RETURNING owner, prio, key, seq, runs)
	SELECT l.runs, l.n, pg_snapshot_xmin(pg_current_snapshot())::text::int8, o.place, coalesce(o.served, 0), coalesce(o.turn, 0), coalesce(o.waiting, false),
		coalesce(o.runs, 0), o.heads, o.turns, l.owner, ` + lineColumns + `
	FROM (SELECT g.owner, g.prio, g.key, g.runs, g.n, x.place, CASE WHEN x.head > 0 AND g.seq > 0 THEN least(x.head, g.seq) WHEN g.seq > 0 THEN g.seq ELSE coalesce(x.head, 0) END AS head,
			coalesce(x.head, 0) AS stored, coalesce(x.served, 0) AS served, coalesce(x.waiting, false) AS waiting
		FROM (SELECT owner, prio, key, coalesce(min(seq) FILTER (WHERE seq > 0), 0) AS seq, sum(runs)::int4 AS runs, count(*) AS n FROM d GROUP BY owner, prio, key) g
		LEFT JOIN LATERAL (SELECT x.ctid AS place, x.head, x.served, x.waiting FROM podyard.job_lines x
			WHERE x.ep = $1 AND x.owner = g.owner AND x.key = g.key AND x.prio = g.prio AND g.prio >= 0 ORDER BY x.v DESC LIMIT 1) x ON true OFFSET 0) l
	LEFT JOIN LATERAL (SELECT x.ctid AS place, x.served, x.turn, x.waiting, x.runs, x.heads, x.turns FROM podyard.job_owners x
		WHERE x.ep = $1 AND x.owner = l.owner ORDER BY x.v DESC LIMIT 1) o ON true
	` + keyUse + ` LEFT JOIN ` + lineJobs + ` ON l.head > 0`

	// The first lines of the level p of the owner o: by their turns (via 1), and by their oldest jobs (via 2).
	levelLines = `LATERAL ((SELECT o.owner, l.prio, l.key, l.ctid AS place, l.head, l.head AS stored, l.served, l.waiting, l.turn AS at, 1::int2 AS via FROM podyard.job_lines l
			WHERE l.ep = $1 AND l.owner = o.owner AND l.prio = p.prio AND l.waiting AND l.turn > p.turn ORDER BY l.turn LIMIT $3)
		UNION ALL (SELECT o.owner, l.prio, l.key, l.ctid AS place, l.head, l.head AS stored, l.served, l.waiting, l.head AS at, 2::int2 AS via FROM podyard.job_lines l
			WHERE l.ep = $1 AND l.owner = o.owner AND l.prio = p.prio AND l.waiting AND l.head > p.head ORDER BY l.head LIMIT $3)) l
	` + keyUse + ` CROSS JOIN ` + lineJobs

	sqlFirstOwners = `SELECT ` + ownerColumns + `, l.via, l.at, l.prio, l.key, l.place, l.head, l.stored, l.served, l.waiting, l.key_place, coalesce(l.runs, 0),
		l.seqs, l.queued, l.expires, l.lost, l.places FROM podyard.job_endpoints e,
	LATERAL (SELECT o.owner, o.ctid AS place, o.served, o.turn, o.waiting, o.runs, o.heads, o.turns FROM podyard.job_owners o
		WHERE o.ep = e.ep AND o.waiting AND o.turn >= e.floor AND o.turn > $5 ORDER BY o.turn LIMIT $4) o
	LEFT JOIN LATERAL (SELECT l.via, l.at, l.prio, l.key, l.place, l.head, l.stored, l.served, l.waiting, k.place AS key_place, k.runs, j.seqs, j.queued, j.expires, j.lost, j.places FROM (
			SELECT (u.n - 1)::int2 AS prio, u.turn - 1 AS turn, u.head - 1 AS head FROM unnest(o.turns, o.heads) WITH ORDINALITY u(turn, head, n) WHERE u.head IS NOT NULL) p,
		` + levelLines + `) l ON true
	WHERE e.ep = $1`

	sqlLevel = `SELECT l.via, l.at, ` + lineColumns + ` FROM (SELECT $4::bytea AS owner) o, (SELECT $5::int2 AS prio, $6::int8 AS turn, $7::int8 AS head) p, ` + levelLines

	// The lines of keys that are not claimed from although they have jobs.
	sqlKeyLines = `SELECT l.owner, ` + lineColumns + ` FROM unnest($3::bytea[], $4::bytea[]) u(owner, key), generate_series(0, 9) p(prio),
	LATERAL (SELECT x.owner, x.prio, x.key, x.ctid AS place, x.head, x.head AS stored, x.served, x.waiting FROM podyard.job_lines x
		WHERE x.ep = $1 AND x.owner = u.owner AND x.key = u.key AND x.prio = p.prio ORDER BY x.v DESC LIMIT 1) l
	` + keyUse + ` CROSS JOIN ` + lineJobs + ` WHERE NOT l.waiting AND l.head > 0`

	sqlMoreOfLine = `SELECT seq, queued, expires, lost, ctid FROM podyard.job_ready
	WHERE ep = $1 AND owner = $2 AND prio = $3 AND key = $4 AND seq > $5 ORDER BY seq LIMIT $6`

	// The first jobs of an endpoint with one line, which are locked before the news are read: most claims have
	// them, and need no further round trip.
	sqlLockFirst = `SELECT ` + lockedColumns + ` FROM ` + oneLine + `,
		LATERAL (SELECT r.seq FROM podyard.job_ready r WHERE r.ep = e.ep AND r.owner = e.owner AND r.prio = e.prio AND r.key = e.key
			AND r.seq >= f.seq AND r.expires > $4 ORDER BY r.seq LIMIT $3 OFFSET 0) r,
		LATERAL (SELECT ` + lockedColumns + ` FROM podyard.jobs j WHERE (j.ep || ''::bytea) = e.ep AND j.seq = r.seq FOR UPDATE SKIP LOCKED) j
	WHERE e.ep = $1 AND NOT e.mixed`

	// An endpoint with one line, and f.seq, from where on its row, or its news, say that it has jobs.
	oneLine = `podyard.job_endpoints e, LATERAL (SELECT min(f.seq) AS seq FROM (
			SELECT n.seq FROM podyard.job_news n WHERE n.ep = e.ep AND n.tx >= $2 AND n.seq > 0
			UNION ALL (SELECT l.head FROM podyard.job_lines l WHERE l.ep = e.ep AND l.owner = e.owner AND l.key = e.key AND l.prio = e.prio
				ORDER BY l.v DESC LIMIT 1)) f WHERE f.seq > 0) f`

	sqlRunningOf = `SELECT coalesce(sum(running), 0)::int8 FROM podyard.job_counters WHERE ep = $1`

	sqlPutLines = `UPDATE podyard.job_lines l SET v = nextval('podyard.job_seq'), head = u.head, served = u.served, waiting = u.waiting, runs = u.runs
	FROM unnest($1::tid[], $2::int8[], $3::int8[], $4::bool[], $5::int8[]) u(place, head, served, waiting, runs) WHERE l.ctid = u.place`

	sqlAddLines = `INSERT INTO podyard.job_lines (ep, v, owner, prio, key, head, served, waiting, runs)
	SELECT $1, nextval('podyard.job_seq'), u.owner, u.prio, u.key, u.head, u.served, u.waiting, u.runs
	FROM unnest($2::bytea[], $3::int2[], $4::bytea[], $5::int8[], $6::int8[], $7::bool[], $8::int8[]) u(owner, prio, key, head, served, waiting, runs)`

	sqlPutOwners = `UPDATE podyard.job_owners o SET v = nextval('podyard.job_seq'), served = u.served, turn = u.turn, waiting = u.waiting, runs = u.runs, heads = u.heads::int8[], turns = u.turns::int8[]
	FROM unnest($1::tid[], $2::int8[], $3::int8[], $4::bool[], $5::int8[], $6::text[], $7::text[]) u(place, served, turn, waiting, runs, heads, turns) WHERE o.ctid = u.place`

	sqlAddOwners = `INSERT INTO podyard.job_owners (ep, v, owner, served, turn, waiting, runs, heads, turns)
	SELECT $1, nextval('podyard.job_seq'), u.owner, u.served, u.turn, u.waiting, u.runs, u.heads::int8[], u.turns::int8[]
	FROM unnest($2::bytea[], $3::int8[], $4::int8[], $5::bool[], $6::int8[], $7::text[], $8::text[]) u(owner, served, turn, waiting, runs, heads, turns)`

	sqlPutEndpoint = `UPDATE podyard.job_endpoints SET floor = $2, mixed = $3 WHERE ep = $1`

	// When an idle line was served is forgotten after so many places.
	sqlDropLines = `DELETE FROM podyard.job_lines WHERE ctid = ANY(ARRAY(
	SELECT x.ctid FROM podyard.job_lines x WHERE x.ep = $1 AND NOT x.waiting AND x.head = 0 AND x.runs = 0 AND x.v < (SELECT nextval('podyard.job_seq')) - 262144 ORDER BY x.v LIMIT 512))`

	sqlPutLimits = `UPDATE podyard.job_endpoints SET counted = true, per_key = $2, per_user = $3 WHERE ep = $1`

	// A limit was raised, so lines and owners that are at it are looked at again.
	sqlTellAll = `WITH l AS (INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT ep, owner, prio, key, head FROM podyard.job_lines
		WHERE ep = $1 AND NOT waiting AND head > 0 AND prio >= 0)
	INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT ep, owner, -1, '', 0 FROM podyard.job_owners WHERE ep = $1 AND NOT waiting`
)

// startCounting counts what runs of an endpoint, from now on in its lines. Nothing ends meanwhile.
func startCounting(b *pgx.Batch, endpoint string) {
	ep := []byte(endpoint)
	b.Queue(`LOCK TABLE podyard.job_running IN SHARE ROW EXCLUSIVE MODE`)
	for _, sql := range [...]string{
		`DELETE FROM podyard.job_news WHERE ep = $1 AND runs <> 0`,
		`DELETE FROM podyard.job_lines WHERE ep = $1 AND prio = -1`,
		`UPDATE podyard.job_running SET counted = true WHERE ep = $1`,
		`INSERT INTO podyard.job_lines (ep, owner, key, prio, v, head, served, waiting, runs)
			SELECT ep, owner, key, -1, 0, 0, 0, false, count(*) FROM podyard.job_running WHERE ep = $1 AND key <> '' GROUP BY ep, owner, key`,
		`UPDATE podyard.job_owners o SET runs = (SELECT count(*) FROM podyard.job_running r WHERE r.ep = o.ep AND r.owner = o.owner) WHERE ep = $1`,
		`INSERT INTO podyard.job_owners (ep, owner, v, served, turn, waiting, runs, heads, turns)
			SELECT r.ep, r.owner, 0, 0, 0, false, count(*), array_fill(NULL::int8, ARRAY[10]), array_fill(NULL::int8, ARRAY[10]) FROM podyard.job_running r
			WHERE r.ep = $1 AND NOT EXISTS (SELECT FROM podyard.job_owners o WHERE o.ep = r.ep AND o.owner = r.owner) GROUP BY r.ep, r.owner`,
	} {
		b.Queue(sql, ep)
	}
}

const (
	// maxNews is how many news a claim reads at once, and newsReads how often in a transaction.
	maxNews   = 1024
	newsReads = 4
	// lineDepth is how many jobs are read of a line at first, and moreOfLine of one that has no more of those.
	lineDepth  = 4
	moreOfLine = 256
	// firstRead is how many owners, and lines of a level, are read at once at most; each further read has
	// twice as many.
	firstRead = 8
	// rowLag is how many places a row may be behind before it is written for that alone.
	rowLag = 512
	// dropShare is after how many claims one drops idle lines.
	dropShare = 64
)

// errNoRow: an endpoint has no row to lock.
var errNoRow = errors.New("postgres: an endpoint has no row yet")

// A newsFloors has what a Store knows of the endpoints it has claimed from.
type newsFloors struct {
	mu     sync.Mutex
	resets int
	list   map[string]endpointNews
}

type endpointNews struct {
	from    int64 // the transactions before have ended, and their news were read
	mixed   bool  // the endpoint has had several lines
	counted bool
}

// reset forgets where news begin: a crash of the database undoes claims that were not durable.
func (f *newsFloors) reset() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.resets++
	for ep, e := range f.list {
		e.from = 0
		f.list[ep] = e
	}
}

// of returns what is known of an endpoint. A transaction asks after it has its connection.
func (f *newsFloors) of(endpoint string) (e endpointNews, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, known = f.list[endpoint]
	return e, known
}

func (f *newsFloors) forget(endpoints []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ep := range endpoints {
		delete(f.list, ep)
	}
}

// count returns what raise needs.
func (f *newsFloors) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.resets
}

// raise is called after a claim that began when there had been so many resets is committed.
func (f *newsFloors) raise(resets int, pooled bool, orders map[string]*order) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.list == nil {
		f.list = map[string]endpointNews{}
	}
	for ep, o := range orders {
		e := f.list[ep]
		e.mixed, e.counted = o.mixed, o.counted
		if f.resets == resets && !pooled && !o.newsLeft {
			e.from = max(e.from, o.newsTo)
		}
		f.list[ep] = e
	}
}

// A lineScan has the columns of a line while they are read.
type lineScan struct {
	prio                  *int16
	key                   []byte
	place, keyPlace       pgtype.TID
	head, stored, served  *int64
	waiting               *bool
	keyRuns               int
	seqs, queued, expires []int64
	lost                  [][]byte
	places                []pgtype.TID
}

func (c *lineScan) targets(before ...any) []any {
	return append(before, &c.prio, &c.key, &c.place, &c.head, &c.stored, &c.served, &c.waiting, &c.keyPlace, &c.keyRuns, &c.seqs, &c.queued, &c.expires, &c.lost, &c.places)
}

// add adds the line to an owner, unless it is there.
func (c *lineScan) add(w *orderOwner, depth int) (l *orderLine, added bool) {
	prio, key := int(*c.prio), string(c.key)
	use := w.keyUse(key)
	c.addUse(use)
	for _, l := range w.levels[prio].lines {
		if l.key == key {
			return l, false
		}
	}
	l = &orderLine{owner: w, prio: prio, key: key, use: use, place: c.place, stored: *c.stored, served: *c.served, last: *c.served, waiting: *c.waiting}
	c.jobs(l, depth)
	w.levels[prio].lines = append(w.levels[prio].lines, l)
	return l, true
}

// jobs sets the jobs of a line.
func (c *lineScan) jobs(l *orderLine, depth int) {
	l.head, l.more, l.jobs = *c.head, len(c.seqs) >= depth, nil
	for i := range c.seqs {
		l.jobs = append(l.jobs, &readyJob{line: l, seq: uint64(c.seqs[i]), queued: queue.Instant(c.queued[i]), expires: queue.Instant(c.expires[i]), lost: queue.WorkerID(c.lost[i]), place: c.places[i]})
	}
}

// renew adds what later news say of a line. Both have read the jobs from a place on, as they were then, and
// the later one may begin before or after the other.
func (c *lineScan) renew(l *orderLine, depth int) {
	first := *c.head
	switch {
	case l.head == 0 || 0 < first && first <= l.head:
		c.jobs(l, depth)
	case first == 0 || l.more && l.after() <= first:
		// What is read of it next is as new as the news.
	default:
		head, old := l.head, l.jobs
		c.jobs(l, depth)
		n := slices.IndexFunc(old, func(j *readyJob) bool { return int64(j.seq) >= first })
		if n < 0 {
			n = len(old)
		}
		l.head, l.jobs = head, slices.Concat(old[:n], l.jobs)
	}
}

// addUse takes what is stored about a key, once.
func (c *lineScan) addUse(u *orderUse) {
	if u != nil && c.keyPlace.Valid && !u.place.Valid {
		u.place, u.stored = c.keyPlace, c.keyRuns
		u.runs += c.keyRuns
	}
}

// lockRows adds the queries that lock endpoints, after those that add rows for unknown ones.
func (c *claimer) lockRows(b *pgx.Batch, endpoints []string) {
	var unknown []string
	for _, ep := range endpoints {
		if _, ok := c.q.news.of(ep); !ok {
			unknown = append(unknown, ep)
		}
	}
	if len(unknown) > 0 {
		b.Queue(sqlAddEndpoints, byteas(unknown))
	}
	b.Queue(sqlLockEndpoints, byteas(endpoints)).Query(func(rows pgx.Rows) error {
		var ep, owner, key []byte
		var prio int
		var mixed, counted bool
		var perKey, perUser int
		var floor int64
		var rates string
		_, err := pgx.ForEachRow(rows, []any{&ep, &owner, &prio, &key, &mixed, &counted, &perKey, &perUser, &floor, &rates}, func() error {
			o := c.orders[string(ep)]
			o.rates, o.locked, o.orderRow, o.perKey, o.perUser, o.floor = rates, true, orderRow{mixed, counted}, perKey, perUser, floor
			o.was = o.orderRow
			o.first = lineName{string(owner), string(key), prio}
			return nil
		})
		return err
	})
	b.Queue(sqlHolding, byteas(endpoints)).Query(func(rows pgx.Rows) error {
		var ep []byte
		_, err := pgx.ForEachRow(rows, []any{&ep}, func() error {
			c.orders[string(ep)].holding = true
			return nil
		})
		return err
	})
}

// limit adds the statements that prepare the rows of an endpoint for the limits of a claim, if they are not.
func (o *order) limit(b *pgx.Batch) {
	perKey, perUser := o.rules.PerKey, o.rules.PerUser
	if o.counted && o.perKey == perKey && o.perUser == perUser || !o.counted && !limited(&o.rules) {
		return
	}
	raised := func(from, to int) bool { return from > 0 && (to == 0 || to > from) }
	if !o.counted {
		startCounting(b, o.endpoint)
		o.counted = true
	}
	b.Queue(sqlPutLimits, []byte(o.endpoint), perKey, perUser)
	if raised(o.perKey, perKey) || raised(o.perUser, perUser) {
		b.Queue(sqlTellAll, []byte(o.endpoint))
	}
	o.perKey, o.perUser = perKey, perUser
}

// read adds the queries for the news and the first lines.
func (o *order) read(b *pgx.Batch, from int64, n int, mixed bool, now queue.Instant) {
	if !mixed {
		var list []*jobRow
		b.Queue(sqlLockFirst, []byte(o.endpoint), from, n, int64(now)).Query(func(rows pgx.Rows) (err error) {
			list, err = lockedRows(rows)
			for _, r := range list {
				o.rows[r.job.Seq] = r
			}
			return err
		})
	}
	o.readNews(b, from)
	o.readOwners(b, min(n+1, o.sizes.firstRead))
	if o.rules.Total > 0 {
		b.Queue(sqlRunningOf, []byte(o.endpoint)).QueryRow(func(row pgx.Row) error { return row.Scan(&o.running) })
	}
}

func (o *order) readNews(b *pgx.Batch, from int64) {
	b.Queue(sqlNews, []byte(o.endpoint), o.depth, from, o.sizes.news).Query(func(rows pgx.Rows) error {
		var runs, n, total int
		var owner ownerScan
		var c lineScan
		_, err := pgx.ForEachRow(rows, c.targets(owner.rest([]any{&runs, &n, &o.newsTo}, &owner.name)...), func() error {
			total += n
			w := owner.add(o)
			if *c.prio == givenBack {
				o.given = append(o.given, givenStart{w.name, string(c.key), runs, queue.Instant(*c.head)})
				o.freed = append(o.freed, [2]string{w.name, string(c.key)})
				w.keyUse(string(c.key)) // its bucket is read
				return nil
			}
			if *c.prio < 0 {
				if use := w.keyUse(string(c.key)); use != nil {
					c.addUse(use)
					use.runs += runs
					o.freed = append(o.freed, [2]string{w.name, string(c.key)})
				}
				w.runs += runs
				return nil
			}
			if l, added := c.add(w, o.depth); !added {
				c.renew(l, o.depth)
			}
			return nil
		})
		o.newsLeft = total >= o.sizes.news
		return err
	})
}

func (o *order) readOwners(b *pgx.Batch, lines int) {
	step, after := o.step, o.ownersTo
	o.step *= 2
	b.Queue(sqlFirstOwners, []byte(o.endpoint), o.depth, lines, step, after).Query(func(rows pgx.Rows) error {
		var owner ownerScan
		var via *int16
		var at *int64
		var c lineScan
		var last *orderOwner
		n := 0
		_, err := pgx.ForEachRow(rows, c.targets(append(owner.rest([]any{&owner.name}), &via, &at)...), func() error {
			w := owner.add(o)
			if w != last {
				last, n = w, n+1
				o.ownersTo = w.turn - 1 // another one may have the same turn
				w.opened()
			}
			if via != nil {
				w.levels[*c.prio].found(*via, *at)
				c.add(w, o.depth)
			}
			return nil
		})
		if n < step {
			o.ownersTo = none
		}
		for _, w := range o.owners {
			w.closed(lines)
		}
		return err
	})
}

// readLevel adds the query for more lines of a level.
func (o *order) readLevel(b *pgx.Batch, v *orderLevel) {
	lines := v.step + 1 // the last one that was read comes again
	v.step *= 2
	v.open = true
	b.Queue(sqlLevel, []byte(o.endpoint), o.depth, lines, []byte(v.owner.name), v.prio, v.turnsTo, v.headsTo).Query(func(rows pgx.Rows) error {
		var via int16
		var at int64
		var c lineScan
		_, err := pgx.ForEachRow(rows, c.targets(&via, &at), func() error {
			v.found(via, at)
			c.add(v.owner, o.depth)
			return nil
		})
		v.close(lines)
		return err
	})
}

// opened begins the reading of the levels of an owner from the front.
func (w *orderOwner) opened() {
	for p := range w.levels {
		w.levels[p].open = true
	}
}

func (w *orderOwner) closed(lines int) {
	for p := range w.levels {
		w.levels[p].close(lines)
	}
}

// found records that a line was read, by its turn or by its oldest job. Places in rows may be too early, so
// another line that was not read may have the same one.
func (v *orderLevel) found(via int16, at int64) {
	v.read[via-1]++
	if via == 1 {
		v.turnsTo = at - 1
	} else {
		v.headsTo = at - 1
	}
}

// close ends the reading of a level. If there were fewer lines than asked for, there are no more.
func (v *orderLevel) close(lines int) {
	if v.open && (v.read[0] < lines || v.read[1] < lines) {
		v.turnsTo, v.headsTo = none, none
	}
	v.open, v.read = false, [2]int{}
}

// readLine adds the query for more jobs of a line.
func (o *order) readLine(b *pgx.Batch, l *orderLine) {
	n := max(o.sizes.moreOfLine, o.depth)
	b.Queue(sqlMoreOfLine, []byte(o.endpoint), []byte(l.owner.name), l.prio, []byte(l.key), l.after()-1, n).Query(func(rows pgx.Rows) error {
		var seq, queued, expires int64
		var lost []byte
		var place pgtype.TID
		found := 0
		_, err := pgx.ForEachRow(rows, []any{&seq, &queued, &expires, &lost, &place}, func() error {
			l.jobs = append(l.jobs, &readyJob{line: l, seq: uint64(seq), queued: queue.Instant(queued), expires: queue.Instant(expires), lost: queue.WorkerID(lost), place: place})
			found++
			return nil
		})
		l.more = found >= n
		return err
	})
}

// readKeys adds the query for the lines of keys of which a job has ended.
func (o *order) readKeys(b *pgx.Batch) {
	var owner, key [][]byte
	for _, k := range o.freed {
		owner, key = append(owner, []byte(k[0])), append(key, []byte(k[1]))
	}
	o.freed = nil
	b.Queue(sqlKeyLines, []byte(o.endpoint), o.depth, owner, key).Query(func(rows pgx.Rows) error {
		var name []byte
		var c lineScan
		_, err := pgx.ForEachRow(rows, c.targets(&name), func() error {
			c.add(o.names[string(name)], o.depth)
			return nil
		})
		return err
	})
}

// An ownerScan has the columns of an owner while they are read. Its row may be missing.
type ownerScan struct {
	name         []byte
	place        pgtype.TID
	served, turn int64
	waiting      bool
	runs         int
	heads, turns []*int64
}

func (c *ownerScan) rest(before []any, after ...any) []any {
	return append(append(before, &c.place, &c.served, &c.turn, &c.waiting, &c.runs, &c.heads, &c.turns), after...)
}

// add adds the owner to an order, unless it is there.
func (c *ownerScan) add(o *order) *orderOwner {
	w, added := o.ownerOf(string(c.name))
	if !added {
		return w
	}
	w.place, w.served, w.last, w.turn, w.waiting, w.stored, w.runs = c.place, c.served, c.served, c.turn, c.waiting, c.runs, c.runs
	for p := range c.heads {
		if v := &w.levels[p]; c.heads[p] != nil && c.turns[p] != nil {
			v.head, v.turn = *c.heads[p], *c.turns[p]
			v.headsTo, v.turnsTo = v.head-1, v.turn-1
		}
	}
	return w
}

// orderRows are what is written of an order, as columns.
type orderRows struct {
	place                    []pgtype.TID
	owner, key               [][]byte
	prio                     []int16
	head, served, turn, runs []int64
	waiting                  []bool
	heads, turns             []string
}

func (r *orderRows) line(place pgtype.TID, l *orderLine, head, served int64, waiting bool, runs int) {
	r.place, r.owner, r.key, r.prio = append(r.place, place), append(r.owner, []byte(l.owner.name)), append(r.key, []byte(l.key)), append(r.prio, int16(l.prio))
	r.head, r.served, r.waiting, r.runs = append(r.head, head), append(r.served, served), append(r.waiting, waiting), append(r.runs, int64(runs))
}

// queue adds the statements to a batch that write what a claim has changed.
func (o *order) queue(b *pgx.Batch, drop bool) {
	var put, add, putOwners, addOwners orderRows
	for _, w := range o.owners {
		for p := range w.levels {
			for _, l := range w.levels[p].lines {
				switch {
				case !o.settleLine(l):
				case l.place.Valid:
					put.line(l.place, l, l.stored, l.served, l.waiting, 0)
				default:
					add.line(l.place, l, l.stored, l.served, l.waiting, 0)
				}
			}
		}
		for key, use := range w.keys {
			l := &orderLine{owner: w, prio: -1, key: key}
			switch {
			case use.runs == use.stored:
			case use.place.Valid:
				put.line(use.place, l, 0, 0, false, use.runs)
			default:
				add.line(use.place, l, 0, 0, false, use.runs)
			}
		}
		rows := &putOwners
		if !w.place.Valid {
			rows = &addOwners
		}
		if o.settleOwner(w) {
			rows.addOwner(w)
		}
	}
	ep := []byte(o.endpoint)
	queueIf(b, put.place, sqlPutLines, put.place, put.head, put.served, put.waiting, put.runs)
	queueIf(b, add.place, sqlAddLines, ep, add.owner, add.prio, add.key, add.head, add.served, add.waiting, add.runs)
	r := &putOwners
	queueIf(b, r.place, sqlPutOwners, r.place, r.served, r.turn, r.waiting, r.runs, r.heads, r.turns)
	r = &addOwners
	queueIf(b, r.place, sqlAddOwners, ep, r.owner, r.served, r.turn, r.waiting, r.runs, r.heads, r.turns)
	o.queueRates(b, drop)
	if o.settle() {
		b.Queue(sqlPutEndpoint, ep, o.floor, o.mixed)
	}
	if drop && o.mixed {
		b.Queue(sqlDropLines, ep)
	}
}

func (r *orderRows) addOwner(w *orderOwner) {
	r.place, r.owner, r.served, r.turn = append(r.place, w.place), append(r.owner, []byte(w.name)), append(r.served, w.served), append(r.turn, w.turn)
	r.waiting, r.runs = append(r.waiting, w.waiting), append(r.runs, int64(w.stored))
	var heads, turns [queue.MaxPriority + 1]int64
	for p := range w.levels {
		heads[p], turns[p] = w.levels[p].head, w.levels[p].turn
	}
	r.heads, r.turns = append(r.heads, placesText(heads[:])), append(r.turns, placesText(turns[:]))
}

func placesText(list []int64) string {
	text := make([]string, len(list))
	for i, n := range list {
		text[i] = "NULL"
		if n != none {
			text[i] = strconv.FormatInt(n, 10)
		}
	}
	return "{" + strings.Join(text, ",") + "}"
}

// What follows decides what a row is to be like after a claim, and reports whether it is written. A row may
// lag behind. What says where reading begins is taken from the rows as they are then.

func (o *order) lags(stored, now int64) bool { return now < stored || now > stored+o.sizes.rowLag }

func (o *order) settleLine(l *orderLine) bool {
	head, waiting := o.rest(l)
	if !l.place.Valid && head == 0 && l.last == 0 {
		l.waiting = false
		return false
	}
	if l.place.Valid && waiting == l.waiting && l.last == l.served && (head == 0) == (l.stored == 0) && !o.lags(l.stored, head) {
		return false
	}
	l.stored, l.served, l.waiting = head, l.last, waiting
	return true
}

func (o *order) settleLevel(v *orderLevel) (changed bool) {
	turn, head := int64(none), int64(none)
	if v.turnsTo < none && v.headsTo < none {
		turn, head = v.turnsTo+1, v.headsTo+1
	}
	for _, l := range v.lines {
		if l.waiting {
			turn, head = min(turn, max(l.served, l.stored)), min(head, l.stored)
		}
	}
	if (head == none) == (v.head == none) && (head == none || !o.lags(v.turn, turn) && !o.lags(v.head, head)) {
		return false
	}
	v.turn, v.head = turn, head
	return true
}

func (o *order) settleOwner(w *orderOwner) bool {
	changed, first := false, int64(none)
	for p := range w.levels {
		v := &w.levels[p]
		changed = o.settleLevel(v) || changed
		first = min(first, v.head)
	}
	waiting, turn := first < none && !o.isFull(w), w.last
	if first < none {
		turn = max(turn, first)
	}
	if !w.place.Valid && first == none && w.last == 0 && w.runs == 0 {
		return false
	}
	if w.place.Valid && !changed && waiting == w.waiting && w.last == w.served && w.runs == w.stored && !o.lags(w.turn, turn) {
		return false
	}
	w.served, w.turn, w.waiting, w.stored = w.last, turn, waiting, w.runs
	return true
}

// settle is called after the owners have settled.
func (o *order) settle() bool {
	first := int64(none)
	if o.ownersTo < none {
		first = o.ownersTo + 1
	}
	for _, w := range o.owners {
		if w.waiting {
			first = min(first, w.turn)
		}
	}
	if first == none || !o.lags(o.floor, first) {
		first = o.floor
	}
	changed := first != o.floor || o.mixed != o.was.mixed
	o.floor = first
	return changed
}
