-- What the users hold in the queue is the sum of their rows, which are made and added up as those of
-- job_counters are.
CREATE TABLE podyard.job_holdings (
	owner bytea NOT NULL,
	slot bigint NOT NULL,
	jobs bigint NOT NULL,
	queued bigint NOT NULL,
	bytes bigint NOT NULL, -- of jobs, and of the copies in the two tables below
	deliveries bigint NOT NULL,
	dead bigint NOT NULL,
	PRIMARY KEY (owner, slot)
) WITH (fillfactor = 30);
CREATE INDEX job_holdings_loose ON podyard.job_holdings (slot) WHERE slot < 0;

-- What a copy counts for.
ALTER TABLE podyard.job_outbox ADD COLUMN bytes bigint NOT NULL DEFAULT 0;
ALTER TABLE podyard.job_dead ADD COLUMN bytes bigint NOT NULL DEFAULT 0;

-- What a payload counts for that is there; a sealed text is 44 bytes longer than the text.
CREATE FUNCTION podyard.held_bytes(input bytea, webhook bytea, extra bytea, parent bytea, state bytea, output bytea, error bytea) RETURNS bigint
LANGUAGE sql AS $$
	SELECT CASE WHEN input IS NULL THEN 0 ELSE octet_length(input) + coalesce(octet_length(webhook), 0) + coalesce(octet_length(extra) - 44, 0)
		+ coalesce(octet_length(parent), 0) + coalesce(octet_length(state), 0) END + coalesce(octet_length(output), 0) + coalesce(octet_length(error), 0)
$$;
UPDATE podyard.job_outbox SET bytes = podyard.held_bytes(input, webhook, extra, trace_parent, trace_state, output, error);
UPDATE podyard.job_dead SET bytes = podyard.held_bytes(input, webhook, extra, trace_parent, trace_state, output, error);
INSERT INTO podyard.job_holdings (owner, slot, jobs, queued, bytes, deliveries, dead)
SELECT owner, 0, sum(jobs), sum(queued), sum(bytes), sum(deliveries), sum(dead) FROM (
	SELECT j.owner, 1 AS jobs, (j.status = 0)::int AS queued, 0 AS deliveries, 0 AS dead,
		podyard.held_bytes(b.input, b.webhook, b.extra, b.trace_parent, b.trace_state, o.output, o.error) + coalesce(c.bytes, 0) AS bytes
	FROM podyard.jobs j LEFT JOIN podyard.job_bodies b ON b.num = j.num LEFT JOIN podyard.job_outputs o ON o.num = j.num
	LEFT JOIN (SELECT num, sum(octet_length(data)) AS bytes FROM podyard.job_chunks GROUP BY num) c ON c.num = j.num
	UNION ALL SELECT owner, 0, 0, 1, 0, bytes FROM podyard.job_outbox
	UNION ALL SELECT owner, 0, 0, 0, 1, bytes FROM podyard.job_dead
) h GROUP BY owner;
DROP FUNCTION podyard.held_bytes;
