-- The buckets of rates that are not full, or were not when a claim last looked (docs/decisions.md 59). A claim
-- writes them while it has the row of the endpoint locked.
CREATE TABLE podyard.job_rates (
	ep bytea NOT NULL,
	what smallint NOT NULL, -- 0: of the endpoint, 1: of an owner, 2: of a key of an owner
	owner bytea NOT NULL,
	key bytea NOT NULL,
	full_at bigint NOT NULL, -- when it is full again, in nanoseconds
	held bigint NOT NULL, -- there is no room before this instant; 0: there is some
	PRIMARY KEY (ep, what, owner, key)
) WITH (fillfactor = 70);
CREATE INDEX job_rates_held ON podyard.job_rates (ep, held) WHERE held > 0;

-- rates: those of the last claim, and the limits of single keys; empty: none.
ALTER TABLE podyard.job_endpoints ADD COLUMN rates text NOT NULL DEFAULT '';
