-- Jobs. Names and texts are bytea: they may hold NUL or bytes that are not UTF-8.
-- Instants are milliseconds since 1970; 0 is never.

CREATE SEQUENCE podyard.job_seq;
CREATE SEQUENCE podyard.job_epochs;

-- Each opening of a store has an epoch, which makes its tokens unique.
CREATE TABLE podyard.job_nodes (
	epoch bigint PRIMARY KEY,
	opened timestamptz NOT NULL DEFAULT now()
);

-- num identifies a job and what belongs to it for good; seq is its place in the queue.
-- A claim and the end of a job change no indexed column.
CREATE TABLE podyard.jobs (
	num bigint NOT NULL,
	seq bigint NOT NULL,
	armed bigint NOT NULL, -- the instant of the row in job_due that counts
	gone bigint NOT NULL, -- from when on nothing finds the job
	status smallint NOT NULL,
	ep bytea NOT NULL,
	id bytea NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	state bytea NOT NULL, -- without seq
	CONSTRAINT jobs_pkey PRIMARY KEY (ep, id)
) WITH (fillfactor = 70);
-- An expression, so that no plan for an id reads this index instead: both would look as good while
-- the database does not know how many jobs there are.
CREATE UNIQUE INDEX jobs_seq ON podyard.jobs ((ep || ''::bytea), seq);

CREATE TABLE podyard.job_bodies (
	num bigint PRIMARY KEY,
	input bytea,
	webhook bytea,
	extra bytea,
	trace_parent bytea,
	trace_state bytea
);

CREATE TABLE podyard.job_outputs (
	num bigint PRIMARY KEY,
	output bytea,
	error bytea
);

CREATE TABLE podyard.job_chunks (
	num bigint NOT NULL,
	n bigint NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (num, n)
);

-- Attempts that were followed by another one.
CREATE TABLE podyard.job_tries (
	num bigint NOT NULL,
	n smallint NOT NULL,
	data bytea NOT NULL,
	PRIMARY KEY (num, n)
);

-- Jobs that can be claimed. A line has the jobs of one owner, priority and key.
CREATE TABLE podyard.job_ready (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	prio smallint NOT NULL,
	key bytea NOT NULL,
	seq bigint NOT NULL,
	queued bigint NOT NULL,
	expires bigint NOT NULL,
	low boolean NOT NULL,
	lost bytea NOT NULL,
	PRIMARY KEY (ep, owner, prio, key, seq)
);

CREATE TABLE podyard.job_running (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	num bigint NOT NULL,
	seq bigint NOT NULL,
	id bytea NOT NULL,
	node bigint NOT NULL, -- the epoch of the server that claimed it
	PRIMARY KEY (ep, owner, key, num)
);

-- An endpoint has the line of its first job here. It is mixed once a job of another line came.
CREATE TABLE podyard.job_endpoints (
	ep bytea PRIMARY KEY,
	owner bytea NOT NULL,
	prio smallint NOT NULL,
	key bytea NOT NULL,
	mixed boolean NOT NULL DEFAULT false,
	claims bigint NOT NULL DEFAULT 0 -- numbers the turns
) WITH (fillfactor = 50);

-- When a line, or an owner (prio -1), was last served.
CREATE TABLE podyard.job_turns (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	prio smallint NOT NULL,
	key bytea NOT NULL,
	seq bigint NOT NULL,
	n bigint NOT NULL,
	PRIMARY KEY (ep, owner, prio, key)
) WITH (fillfactor = 50);

-- Jobs to look at from an instant on, those of a commit and about the same instant in one row.
CREATE TABLE podyard.job_due (
	at bigint NOT NULL,
	n bigint GENERATED ALWAYS AS IDENTITY,
	ep bytea NOT NULL,
	seqs bigint[] NOT NULL,
	PRIMARY KEY (at, n)
);

-- Counts of an endpoint are the sum of its rows. Each writer has a row of its own (slot), so that
-- none waits for another. Jobs that were added in the transaction of a caller have a row below 0
-- for each call. Such rows, and those of servers that ended, are added to slot 0.
CREATE TABLE podyard.job_counters (
	ep bytea NOT NULL,
	slot bigint NOT NULL,
	queued bigint NOT NULL,
	queued_low bigint NOT NULL,
	delayed bigint NOT NULL,
	delayed_low bigint NOT NULL,
	running bigint NOT NULL,
	completed bigint NOT NULL,
	failed bigint NOT NULL,
	retried bigint NOT NULL,
	last_seq bigint NOT NULL,
	PRIMARY KEY (ep, slot)
) WITH (fillfactor = 30);
CREATE INDEX job_counters_loose ON podyard.job_counters (slot) WHERE slot < 0;

-- Webhooks that are not settled, each with the payloads of its run.
CREATE TABLE podyard.job_outbox (
	ep bytea NOT NULL,
	did bytea NOT NULL,
	due bigint NOT NULL,
	n bigint GENERATED ALWAYS AS IDENTITY,
	token bigint NOT NULL DEFAULT 0,
	tries integer NOT NULL DEFAULT 0,
	num bigint NOT NULL,
	seq bigint NOT NULL,
	id bytea NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	state bytea NOT NULL,
	input bytea,
	webhook bytea,
	extra bytea,
	trace_parent bytea,
	trace_state bytea,
	output bytea,
	error bytea,
	PRIMARY KEY (ep, did)
);
CREATE INDEX job_outbox_due ON podyard.job_outbox (due, n);

-- The log of deliveries of a job.
CREATE TABLE podyard.job_sent (
	num bigint NOT NULL,
	n bigint GENERATED ALWAYS AS IDENTITY,
	did bytea NOT NULL,
	token bigint NOT NULL,
	at bigint NOT NULL,
	next bigint NOT NULL,
	status integer NOT NULL,
	err bytea NOT NULL,
	PRIMARY KEY (num, n)
);

CREATE TABLE podyard.job_dead (
	ep bytea NOT NULL,
	id bytea NOT NULL,
	n bigint GENERATED ALWAYS AS IDENTITY,
	until bigint NOT NULL,
	seq bigint NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	state bytea NOT NULL,
	input bytea,
	webhook bytea,
	extra bytea,
	trace_parent bytea,
	trace_state bytea,
	output bytea,
	error bytea,
	PRIMARY KEY (ep, id)
);
CREATE INDEX job_dead_owner ON podyard.job_dead (owner, (ep || ''::bytea), n);
CREATE INDEX job_dead_until ON podyard.job_dead (until);
