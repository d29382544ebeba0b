package postgres

import (
	"context"
	"encoding/json"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/podyard/podyard/serverless/queue"
)

// Buckets are rows of job_rates. Lines and owners without room are out of the indexes, as those at a limit
// are; when their instant has come, a claim tells of them as if a job of theirs had ended. The instant of the
// database decides, because the clocks of servers differ. An endpoint without rates has no statement for it.

const (
	// The instant of a claim: that of the database, unless one is given.
	rateNow = `coalesce($2::int8, (extract(epoch FROM clock_timestamp()) * 1000)::int8)`

	sqlFreeHeld = `WITH d AS (UPDATE podyard.job_rates SET held = 0 WHERE ep = $1 AND held > 0 AND held <= ` + rateNow + ` RETURNING what, owner, key),
	n AS (INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT $1, owner, -1, key, 0 FROM d WHERE what > 0)
	SELECT ` + rateNow

	sqlRates = `SELECT r.what, r.owner, r.key, r.full_at, r.held FROM unnest($2::int2[], $3::bytea[], $4::bytea[]) u(what, owner, key)
	JOIN podyard.job_rates r ON r.ep = $1 AND r.what = u.what AND r.owner = u.owner AND r.key = u.key`

	sqlPutRates = `INSERT INTO podyard.job_rates (ep, what, owner, key, full_at, held)
	SELECT $1, u.what, u.owner, u.key, u.full_at, u.held FROM unnest($2::int2[], $3::bytea[], $4::bytea[], $5::int8[], $6::int8[]) u(what, owner, key, full_at, held)
	ON CONFLICT (ep, what, owner, key) DO UPDATE SET full_at = excluded.full_at, held = excluded.held`

	sqlDropRates = `DELETE FROM podyard.job_rates WHERE ctid = ANY(ARRAY(SELECT x.ctid FROM podyard.job_rates x WHERE x.ep = $1 AND x.held = 0 AND x.full_at < $2 LIMIT 512))`

	sqlPutRated = `UPDATE podyard.job_endpoints SET rates = $2 WHERE ep = $1`

	// The rates are gone: so are the buckets. If some are left, the next claim goes on.
	sqlPutUnrated = `WITH d AS (DELETE FROM podyard.job_rates WHERE ctid = ANY(ARRAY(SELECT x.ctid FROM podyard.job_rates x WHERE x.ep = $1 LIMIT 512)) RETURNING 1)
	UPDATE podyard.job_endpoints SET rates = $2 WHERE ep = $1 AND (SELECT count(*) FROM d) < 512`

	// What is held is looked at again under other rates.
	sqlFreeAll = `UPDATE podyard.job_rates SET held = 1 WHERE ep = $1 AND held > 0`

	// The buckets of what waits. There may be many more, of keys that have nothing to do.
	sqlWaitingRates = `WITH k AS (SELECT DISTINCT owner, key FROM podyard.job_ready WHERE ep = $1),
	n AS (SELECT 0 AS what, ''::bytea AS owner, ''::bytea AS key UNION ALL SELECT DISTINCT 1, owner, ''::bytea FROM k UNION ALL SELECT 2, owner, key FROM k)
	SELECT r.what, r.owner, r.key, r.full_at, ` + rateNow + ` FROM n JOIN podyard.job_rates r ON r.ep = $1 AND r.what = n.what AND r.owner = n.owner AND r.key = n.key`

	sqlHeldBy = `SELECT r.what, r.owner, r.key, r.full_at, ` + rateNow + ` FROM unnest($3::int2[], $4::bytea[], $5::bytea[]) u(what, owner, key)
	JOIN podyard.job_rates r ON r.ep = $1 AND r.what = u.what AND r.owner = u.owner AND r.key = u.key`

	sqlGiveStarts = `INSERT INTO podyard.job_news (ep, owner, prio, key, seq, runs)
	SELECT u.ep, u.owner, -2, u.key, u.started, 1 FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[]) u(ep, owner, key, started)`

	// givenBack is the prio of news of a start that was none.
	givenBack = -2
)

// What a bucket is of.
const (
	rateOfEndpoint = iota
	rateOfOwner
	rateOfKey
)

type rateName struct {
	what       int16
	owner, key string
}

// An orderBucket is a bucket with what is stored of it.
type orderBucket struct {
	queue.Bucket
	hold         queue.Hold // of a key
	stored       queue.Bucket
	held, heldAs int64 // as it is to be stored, and as it is
}

// orderRates are the buckets of a locked endpoint that were read.
type orderRates struct {
	now     queue.Instant
	rates   string // those of the last claim
	holding bool   // keys are or were held, and their rows are not gone yet
	buckets map[rateName]*orderBucket
	given   []givenStart
}

// A givenStart tells of starts of a key that were none, the first of them at an instant.
type givenStart struct {
	owner, key string
	n          int
	started    queue.Instant
}

// ratesText is what a row says of rules with rates, with limits of single keys or with lifted holds; empty: they have none.
func ratesText(r *queue.Rules) string {
	if !r.Rated() && r.Keys == nil && r.HoldsSince == 0 {
		return ""
	}
	text, _ := json.Marshal(struct { //nolint:errchkjson // texts and numbers
		All, Key, User queue.Rate
		Keys           *queue.KeyRules
		HoldsSince     queue.Instant `json:",omitzero"`
	}{r.Rate, r.PerKeyRate, r.PerUserRate, r.Keys, r.HoldsSince})
	return string(text)
}

func (o *order) rateOf(n rateName) queue.Rate {
	switch n.what {
	case rateOfEndpoint:
		return o.rules.Rate
	case rateOfOwner:
		return o.rules.PerUserRate
	}
	return o.rules.KeyRate(n.key)
}

// ofJobs are the buckets of the jobs of an owner and a key.
func ofJobs(owner, key string) [3]rateName {
	return [...]rateName{{}, {what: rateOfOwner, owner: owner}, {what: rateOfKey, owner: owner, key: key}}
}

// room reports whether a bucket has room for a start.
func (o *order) room(n rateName) bool {
	r := o.rateOf(n)
	b := o.buckets[n]
	if b != nil && b.hold.Ends(&o.rules, o.orderRates.now) > 0 {
		return false
	}
	return r.Limit == 0 || b == nil || b.Room(r, o.orderRates.now) > 0
}

// starts counts a start of a job, or takes one back that was none.
func (o *order) starts(l *orderLine, back bool) {
	if !o.rules.Rated() {
		return
	}
	for _, n := range ofJobs(l.owner.name, l.key) {
		r := o.rateOf(n)
		if r.Limit == 0 {
			continue
		}
		b := o.bucket(n)
		if back {
			b.Bucket = b.GiveBack(r, o.orderRates.now, o.orderRates.now)
		} else {
			b.Bucket = b.Start(r, o.orderRates.now)
		}
	}
}

func (o *order) bucket(n rateName) *orderBucket {
	b := o.buckets[n]
	if b == nil {
		b = &orderBucket{}
		o.buckets[n] = b
	}
	return b
}

// prepareRates adds the statements that come before the news are read. given is the instant of a claim of a
// test; nil: the database has it.
func (o *order) prepareRates(b *pgx.Batch, given *int64) {
	ep := []byte(o.endpoint)
	if text := ratesText(&o.rules); text != o.rates {
		if o.rated() {
			b.Queue(sqlPutRated, ep, text)
		} else {
			b.Queue(sqlPutUnrated, ep, text)
		}
		b.Queue(sqlFreeAll, ep)
		b.Queue(sqlTellAll, ep)
		o.rates = text
	}
	if o.buckets == nil && o.rated() {
		o.buckets = map[rateName]*orderBucket{}
		b.Queue(sqlFreeHeld, ep, given).QueryRow(func(row pgx.Row) error { return row.Scan(&o.orderRates.now) })
	}
}

// readRates reads the buckets of the lines that were read, and gives back to them what news tell.
func (o *order) readRates(b *pgx.Batch) {
	if !o.rated() {
		return
	}
	var names []rateName
	var what []int16
	var owner, key [][]byte
	want := func(n rateName) {
		if (o.rateOf(n).Limit > 0 || o.holding && n.what == rateOfKey) && o.buckets[n] == nil {
			names = append(names, n)
			o.buckets[n] = &orderBucket{}
			what, owner, key = append(what, n.what), append(owner, []byte(n.owner)), append(key, []byte(n.key))
		}
	}
	for _, w := range o.owners {
		for k := range w.keys {
			for _, n := range ofJobs(w.name, k) {
				want(n)
			}
		}
		for p := range w.levels {
			for _, l := range w.levels[p].lines {
				for _, n := range ofJobs(w.name, l.key) {
					want(n)
				}
			}
		}
	}
	if len(what) > 0 {
		b.Queue(sqlRates, []byte(o.endpoint), what, owner, key).Query(o.scanRates)
	}
	o.readHolds(b, names)
}

func (o *order) scanRates(rows pgx.Rows) error {
	var n rateName
	var owner, key []byte
	var at, held int64
	_, err := pgx.ForEachRow(rows, []any{&n.what, &owner, &key, &at, &held}, func() error {
		n.owner, n.key = string(owner), string(key)
		b := &orderBucket{stored: queue.Bucket(at), held: held, heldAs: held}
		if b.Bucket = b.stored; o.rateOf(n).Limit > 0 {
			b.Bucket = b.stored.Within(o.rateOf(n), o.orderRates.now)
		}
		o.buckets[n] = b
		return nil
	})
	return err
}

// takeGiven gives back what news have told, after the buckets were read.
func (o *order) takeGiven() {
	for _, g := range o.given {
		for _, n := range ofJobs(g.owner, g.key) {
			if b, r := o.buckets[n], o.rateOf(n); b != nil && r.Limit > 0 {
				for range min(g.n, r.Limit) {
					b.Bucket = b.GiveBack(r, g.started, o.orderRates.now)
				}
			}
		}
	}
	o.given = nil
}

// queueRates adds the statements that write what a claim has changed.
func (o *order) queueRates(b *pgx.Batch, drop bool) {
	var what []int16
	var owner, key [][]byte
	var at, held []int64
	for n, x := range o.buckets {
		r := o.rateOf(n)
		if x.held = 0; r.Limit > 0 && x.Room(r, o.orderRates.now) == 0 {
			x.held = int64(x.Next(r, o.orderRates.now))
		}
		x.held = max(x.held, int64(x.hold.Ends(&o.rules, o.orderRates.now)))
		if x.Bucket == x.stored && x.held == x.heldAs {
			continue
		}
		what, owner, key = append(what, n.what), append(owner, []byte(n.owner)), append(key, []byte(n.key))
		at, held = append(at, int64(x.Bucket)), append(held, x.held)
	}
	queueIf(b, what, sqlPutRates, []byte(o.endpoint), what, owner, key, at, held)
	if drop && o.buckets != nil {
		b.Queue(sqlDropRates, []byte(o.endpoint), int64(o.orderRates.now)*1_000_000)
	}
	if drop && o.holding {
		b.Queue(sqlDropKeyHolds, []byte(o.endpoint), int64(o.orderRates.now))
	}
}

// usedRates are the buckets of an endpoint, of what waits.
type usedRates struct {
	rules   *queue.Rules
	now     queue.Instant
	holding bool // keys may be held
	buckets map[rateName]queue.Bucket
	holds   map[rateName]queue.Hold
	free    queue.Instant
}

// read adds the query for them to a batch.
func (u *usedRates) read(b *pgx.Batch, endpoint string, given *int64) {
	if !u.holding && !u.rules.Rated() {
		return
	}
	u.buckets, u.holds, u.free = map[rateName]queue.Bucket{}, map[rateName]queue.Hold{}, 0
	if u.holding {
		b.Queue(sqlAllKeyHolds, []byte(endpoint), given).Query(u.scanHolds)
	}
	b.Queue(sqlWaitingRates, []byte(endpoint), given).Query(u.scan)
}

func (u *usedRates) scan(rows pgx.Rows) error {
	var n rateName
	var owner, key []byte
	var at int64
	_, err := pgx.ForEachRow(rows, []any{&n.what, &owner, &key, &at, &u.now}, func() error {
		n.owner, n.key = string(owner), string(key)
		u.buckets[n] = queue.Bucket(at)
		return nil
	})
	return err
}

// room returns how many of n jobs a bucket has room for, and notes when it has some if it has none.
func (u *usedRates) room(n rateName, jobs int) int {
	r := (&order{rules: *u.rules}).rateOf(n)
	held := queue.Held{}.Longer("", u.buckets[n], r, u.now).LongerHold(u.holds[n], u.rules, u.now)
	switch {
	case held.Until > 0 && jobs > 0:
		u.free = queue.Sooner(u.free, held.Until)
		return 0
	case r.Limit == 0:
		return jobs
	}
	return min(jobs, u.buckets[n].Room(r, u.now))
}

// isFull reports whether a job of an owner and a key has no room.
func (u *usedRates) isFull(owner, key string) bool {
	if u.buckets == nil {
		return false
	}
	for _, n := range ofJobs(owner, key) {
		if u.room(n, 1) == 0 {
			return true
		}
	}
	return false
}

// HeldBy implements queue.RateHolder.
func (q *Jobs) HeldBy(ctx context.Context, now queue.Instant, endpoint, owner, key string, rules *queue.Rules) (h queue.Held, err error) {
	if rules == nil {
		return h, nil
	}
	names := ofJobs(owner, key)
	var what []int16
	var owners, keys [][]byte
	for _, n := range names {
		what, owners, keys = append(what, n.what), append(owners, []byte(n.owner)), append(keys, []byte(n.key))
	}
	u := usedRates{rules: rules}
	err = q.read(ctx, func(conn *pgxpool.Conn) error {
		u.buckets, u.holds = map[rateName]queue.Bucket{}, map[rateName]queue.Hold{}
		b := &pgx.Batch{}
		b.Queue(sqlHeldBy, []byte(endpoint), q.givenNow(now), what, owners, keys).Query(u.scan)
		b.Queue(sqlKeyHold, []byte(endpoint), q.givenNow(now), []byte(owner), []byte(key)).Query(u.scanHolds)
		return conn.SendBatch(ctx, b).Close()
	})
	h = h.Longer("rate", u.buckets[names[rateOfEndpoint]], rules.Rate, u.now)
	h = h.Longer("perUserRate", u.buckets[names[rateOfOwner]], rules.PerUserRate, u.now)
	h = h.Longer(rules.KeyRateName(key), u.buckets[names[rateOfKey]], rules.KeyRate(key), u.now)
	return h.LongerHold(u.holds[names[rateOfKey]], rules, u.now), err
}

// givenNow is the instant of a call if that is to count; nil: the clock of the database does.
func (q *Jobs) givenNow(now queue.Instant) *int64 {
	if !q.sizes.callersTime {
		return nil
	}
	return (*int64)(&now)
}
