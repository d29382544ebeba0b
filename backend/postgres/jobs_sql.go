package postgres

// The statements that change jobs. Each takes its rows as arrays.
//
// Rows are found by LATERAL with OFFSET 0, one after the other by their index, and changed by ctid. In a
// join the database would read all of an index whose table has few rows and many that are dead. A row
// that the transaction has just read is looked for at its place first, which costs the database a third of
// what an index does. Others are not: reading by an index also makes room on the pages that it reads.
const (
	sqlLock = `SELECT ` + lockedColumns + ` FROM unnest($1::bytea[], $2::bytea[]) u(ep, id),
	LATERAL (SELECT ` + lockedColumns + ` FROM podyard.jobs j WHERE j.ep = u.ep AND j.id = u.id FOR UPDATE) j`

	// The rows are locked, or are compared with what is known of them.
	sqlUpdate = `UPDATE podyard.jobs j SET seq = u.seq, armed = u.armed, gone = u.gone, status = u.status, state = u.state
	FROM (SELECT u.seq, u.armed, u.gone, u.status, u.state, u.known, u.known_armed, coalesce((SELECT x.ctid FROM podyard.jobs x WHERE x.ctid = u.place AND x.ep = u.ep AND x.id = u.id),
			(SELECT x.ctid FROM podyard.jobs x WHERE x.ep = u.ep AND x.id = u.id)) AS at
		FROM unnest($1::bytea[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::int2[], $7::bytea[], $8::bytea[], $9::int8[], $10::tid[])
			u(ep, id, seq, armed, gone, status, state, known, known_armed, place) OFFSET 0) u
	WHERE j.ctid = u.at AND (u.known IS NULL OR j.state = u.known AND j.armed = u.known_armed) RETURNING 1`

	sqlDelete = `DELETE FROM podyard.jobs WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::bytea[], $2::bytea[]) u(ep, id),
	LATERAL (SELECT x.ctid AS at FROM podyard.jobs x WHERE x.ep = u.ep AND x.id = u.id OFFSET 0) x))`

	sqlUnready = `DELETE FROM podyard.job_ready WHERE ctid = ANY(ARRAY(
	SELECT coalesce((SELECT x.ctid FROM podyard.job_ready x WHERE x.ctid = u.place AND x.ep = u.ep AND x.seq = u.seq),
		(SELECT x.ctid FROM podyard.job_ready x WHERE x.ep = u.ep AND x.owner = u.owner AND x.prio = u.prio AND x.key = u.key AND x.seq = u.seq))
	FROM unnest($1::bytea[], $2::bytea[], $3::int2[], $4::bytea[], $5::int8[], $6::tid[]) u(ep, owner, prio, key, seq, place)))`

	sqlReady = `INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost)
	SELECT u.ep, u.owner, u.prio, u.key, u.seq, u.queued, u.expires, u.low, u.lost
	FROM unnest($1::bytea[], $2::bytea[], $3::int2[], $4::bytea[], $5::int8[], $6::int8[], $7::int8[], $8::bool[], $9::bytea[])
		u(ep, owner, prio, key, seq, queued, expires, low, lost)`

	sqlStopped = `DELETE FROM podyard.job_running WHERE ctid = ANY(ARRAY(
	SELECT x.at FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[]) u(ep, owner, key, num),
	LATERAL (SELECT x.ctid AS at FROM podyard.job_running x WHERE x.ep = u.ep AND x.owner = u.owner AND x.key = u.key AND x.num = u.num OFFSET 0) x))`

	sqlRunning = `INSERT INTO podyard.job_running (ep, owner, key, num, seq, id, counted, node)
	SELECT u.ep, u.owner, u.key, u.num, u.seq, u.id, CASE u.counted WHEN 0 THEN false WHEN 1 THEN true END, $8
	FROM unnest($1::bytea[], $2::bytea[], $3::bytea[], $4::int8[], $5::int8[], $6::bytea[], $7::int2[]) u(ep, owner, key, num, seq, id, counted)`

	sqlDropOutputs = `DELETE FROM podyard.job_outputs WHERE num = ANY($1::int8[])`

	// It fails if there is a row. To allow for one costs a third of what the insert does.
	sqlPutFirstOutputs = `INSERT INTO podyard.job_outputs (num, output, error)
	SELECT u.num, u.output, u.error FROM unnest($1::int8[], $2::bytea[], $3::bytea[]) u(num, output, error)`

	sqlPutOutputs = sqlPutFirstOutputs + `
	ON CONFLICT (num) DO UPDATE SET output = excluded.output, error = excluded.error`

	sqlDropChunks = `DELETE FROM podyard.job_chunks WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::int8[], $2::int8[]) u(num, below),
	LATERAL (SELECT x.ctid AS at FROM podyard.job_chunks x WHERE x.num = u.num AND x.n < u.below OFFSET 0) x))`

	sqlAddChunks = `INSERT INTO podyard.job_chunks (num, n, data)
	SELECT u.num, u.n, u.data FROM unnest($1::int8[], $2::int8[], $3::bytea[]) u(num, n, data)`

	sqlPutTries = `INSERT INTO podyard.job_tries (num, n, data)
	SELECT u.num, u.n, u.data FROM unnest($1::int8[], $2::int2[], $3::bytea[]) u(num, n, data)
	ON CONFLICT (num, n) DO UPDATE SET data = excluded.data`

	sqlDropInputs = `UPDATE podyard.job_bodies SET input = NULL WHERE num = ANY($1::int8[])`

	sqlDropSent = `UPDATE podyard.job_outbox o SET input = NULL FROM unnest($1::bytea[], $2::int8[]) u(ep, num) WHERE o.ep = u.ep AND o.num = u.num`

	sqlPutOutbox = `WITH x AS (INSERT INTO podyard.job_outbox (ep, did, due, num, seq, id, owner, key, state, bytes,
		input, webhook, extra, trace_parent, trace_state, output, error)
	SELECT u.ep, u.did, u.due, u.num, u.seq, u.id, u.owner, u.key, u.state, u.bytes, ` + payloadColumns + `
	FROM unnest($1::bytea[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[], $7::bytea[], $8::bytea[], $9::bytea[], $10::int8[])
		u(ep, did, due, num, seq, id, owner, key, state, bytes)
	LEFT JOIN podyard.job_bodies b ON b.num = u.num LEFT JOIN podyard.job_outputs o ON o.num = u.num
	ON CONFLICT (ep, did) DO NOTHING RETURNING owner, bytes)` + intoHoldings + `$11` + addDeliveries

	sqlDropDead = `WITH x AS (DELETE FROM podyard.job_dead WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::bytea[], $2::bytea[]) u(ep, id),
	LATERAL (SELECT x.ctid AS at FROM podyard.job_dead x WHERE x.ep = u.ep AND x.id = u.id OFFSET 0) x)) RETURNING owner, bytes)` + intoHoldings + `$3` + takeDead

	sqlPutDead = `WITH x AS (INSERT INTO podyard.job_dead (ep, id, until, seq, owner, key, state, bytes,
		input, webhook, extra, trace_parent, trace_state, output, error)
	SELECT u.ep, u.id, u.until, u.seq, u.owner, u.key, u.state, u.bytes, ` + payloadColumns + `
	FROM unnest($1::bytea[], $2::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::bytea[], $7::bytea[], $8::bytea[], $9::int8[])
		u(ep, id, until, num, seq, owner, key, state, bytes)
	LEFT JOIN podyard.job_bodies b ON b.num = u.num LEFT JOIN podyard.job_outputs o ON o.num = u.num
	RETURNING owner, bytes)` + intoHoldings + `$10` + addDead

	// The rank of the first one too many is found through the index of the owner.
	sqlTrimDead = `WITH x AS (DELETE FROM podyard.job_dead WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::bytea[], $2::bytea[]) u(ep, owner),
	LATERAL (SELECT x.ctid AS at FROM podyard.job_dead x WHERE (x.ep || ''::bytea) = u.ep AND x.owner = u.owner ORDER BY x.n DESC OFFSET $3) x)) RETURNING owner, bytes)` + intoHoldings + `$4` + takeDead

	// 224 is dueGroup.
	sqlArm = `INSERT INTO podyard.job_due (at, ep, seqs)
	SELECT u.at, u.ep, array_agg(u.seq) FROM unnest($1::int8[], $2::bytea[], $3::int8[]) WITH ORDINALITY u(at, ep, seq, ord) GROUP BY u.at, u.ep, (u.ord - 1) / 224`

	sqlCount = `INSERT INTO podyard.job_counters AS c (ep, slot, queued, queued_low, delayed, delayed_low, running, completed, failed, retried, last_seq)
	SELECT u.ep, $2, u.queued, u.queued_low, u.delayed, u.delayed_low, u.running, u.completed, u.failed, u.retried, u.last_seq
	FROM unnest($1::bytea[], $3::int8[], $4::int8[], $5::int8[], $6::int8[], $7::int8[], $8::int8[], $9::int8[], $10::int8[], $11::int8[])
		u(ep, queued, queued_low, delayed, delayed_low, running, completed, failed, retried, last_seq)
	` + onCountConflict

	onCountConflict = `ON CONFLICT (ep, slot) DO UPDATE SET queued = c.queued + excluded.queued, queued_low = c.queued_low + excluded.queued_low,
		delayed = c.delayed + excluded.delayed, delayed_low = c.delayed_low + excluded.delayed_low, running = c.running + excluded.running,
		completed = c.completed + excluded.completed, failed = c.failed + excluded.failed, retried = c.retried + excluded.retried,
		last_seq = greatest(c.last_seq, excluded.last_seq)`

	// A writer whose row is folded has a new one. 1099511627776 is firstGeneration.
	sqlFold = `WITH d AS (DELETE FROM podyard.job_counters d
		WHERE slot < 0 OR slot > 0 AND slot < $1 OR slot >= 1099511627776 AND slot < $2 ` + foldInto

	sqlFoldRows = `WITH d AS (DELETE FROM podyard.job_counters d
		WHERE ctid = ANY(ARRAY(SELECT x.at FROM unnest($1::bytea[], $2::int8[]) u(ep, slot),
			LATERAL (SELECT x.ctid AS at FROM podyard.job_counters x WHERE x.ep = u.ep AND x.slot = u.slot OFFSET 0) x)) ` + foldInto

	foldInto = `RETURNING d.ep, d.queued, d.queued_low, d.delayed, d.delayed_low, d.running, d.completed, d.failed, d.retried, d.last_seq)
	INSERT INTO podyard.job_counters AS c (ep, slot, queued, queued_low, delayed, delayed_low, running, completed, failed, retried, last_seq)
	SELECT ep, 0, sum(queued), sum(queued_low), sum(delayed), sum(delayed_low), sum(running), sum(completed), sum(failed), sum(retried), max(last_seq)
	FROM d GROUP BY ep ORDER BY ep ` + onCountConflict

	sqlNextSeqs = `SELECT nextval('podyard.job_seq') FROM generate_series(1, $1)`

	sqlAsync = `SELECT set_config('synchronous_commit', 'off', true)`
)
