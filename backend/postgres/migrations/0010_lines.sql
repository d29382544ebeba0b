-- A line is the ready jobs of one owner, priority and key of an endpoint. Who claims holds the lock of the
-- endpoint (its row in job_endpoints), and is the only one who changes its rows here. All others
-- only add rows to job_news; the next claim makes lines of them.
--
-- v grows with each version of a row, so the row of a name is the first one from above: an old transaction
-- makes the database keep the versions below it.
CREATE TABLE podyard.job_lines (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	prio smallint NOT NULL, -- -1: the row counts what runs of the key
	v bigint NOT NULL,
	head bigint NOT NULL, -- no ready job of the line is before this place; 0: there is none
	served bigint NOT NULL, -- a number of job_seq, from when it was last served
	turn bigint GENERATED ALWAYS AS (greatest(served, head)) STORED,
	waiting boolean NOT NULL, -- it can be claimed from; else it has no job, or its key is at a limit
	held bigint NOT NULL DEFAULT 0, -- until when nothing is claimed from it; not used yet
	runs integer NOT NULL DEFAULT 0,
	PRIMARY KEY (ep, owner, key, prio, v)
) WITH (fillfactor = 70);
CREATE INDEX job_lines_turn ON podyard.job_lines (ep, owner, prio, turn) WHERE waiting;
CREATE INDEX job_lines_head ON podyard.job_lines (ep, owner, prio, head) WHERE waiting;
CREATE INDEX job_lines_idle ON podyard.job_lines (ep, v) WHERE NOT waiting AND head = 0 AND runs = 0;

-- heads and turns have an element for each priority: no line of this level that waits is before it; NULL:
-- none waits. Reading begins there, and not at the versions that an old transaction keeps.
CREATE TABLE podyard.job_owners (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	v bigint NOT NULL,
	served bigint NOT NULL,
	turn bigint NOT NULL, -- of served and the lowest of heads the later one
	waiting boolean NOT NULL, -- it has a line that waits, and is below its limit
	runs integer NOT NULL DEFAULT 0,
	heads bigint[] NOT NULL,
	turns bigint[] NOT NULL,
	PRIMARY KEY (ep, owner, v)
) WITH (fillfactor = 70);
CREATE INDEX job_owners_turn ON podyard.job_owners (ep, turn) WHERE waiting;

-- What happened to a line since its row was written. Only a transaction that has ended has a number below
-- that of each one under way, so a claim begins to read where the last one saw the first of these.
CREATE TABLE podyard.job_news (
	ep bytea NOT NULL,
	tx bigint NOT NULL DEFAULT pg_current_xact_id()::text::bigint,
	owner bytea NOT NULL,
	prio smallint NOT NULL, -- -1: a job of the key has ended
	key bytea NOT NULL,
	seq bigint NOT NULL, -- the first job that was added; 0: none
	runs integer NOT NULL DEFAULT 0
);
CREATE INDEX job_news_tx ON podyard.job_news (ep, tx);

-- floor: no owner that waits has an earlier turn. counted: what runs is counted in the lines, since the
-- endpoint has had limits; per_key and per_user are those of the last claim.
ALTER TABLE podyard.job_endpoints ADD COLUMN floor bigint NOT NULL DEFAULT 0, ADD COLUMN counted boolean NOT NULL DEFAULT false,
	ADD COLUMN per_key integer NOT NULL DEFAULT 0, ADD COLUMN per_user integer NOT NULL DEFAULT 0;

-- Triggers, because every way that adds a ready job must tell, also that of an older server.
CREATE FUNCTION podyard.tell_added() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT ep, owner, prio, key, min(seq) FROM added GROUP BY ep, owner, prio, key;
	RETURN NULL;
END $$;
CREATE TRIGGER tell_added AFTER INSERT ON podyard.job_ready REFERENCING NEW TABLE AS added
	FOR EACH STATEMENT EXECUTE FUNCTION podyard.tell_added();

-- counted: NULL until the claim of an older server is counted.
ALTER TABLE podyard.job_running ADD COLUMN counted boolean DEFAULT false;
ALTER TABLE podyard.job_running ALTER COLUMN counted SET DEFAULT NULL;
CREATE FUNCTION podyard.tell_began() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	NEW.counted := true;
	INSERT INTO podyard.job_news (ep, owner, prio, key, seq, runs) VALUES (NEW.ep, NEW.owner, -1, NEW.key, 0, 1);
	RETURN NEW;
END $$;
CREATE TRIGGER tell_began BEFORE INSERT ON podyard.job_running
	FOR EACH ROW WHEN (NEW.counted IS NULL) EXECUTE FUNCTION podyard.tell_began();
CREATE FUNCTION podyard.tell_ended() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO podyard.job_news (ep, owner, prio, key, seq, runs) VALUES (OLD.ep, OLD.owner, -1, OLD.key, 0, -1);
	RETURN NULL;
END $$;
CREATE TRIGGER tell_ended AFTER DELETE ON podyard.job_running
	FOR EACH ROW WHEN (OLD.counted) EXECUTE FUNCTION podyard.tell_ended();

-- Claims do not need to know what is late any more. Those of older servers find it without this index, but slower.
DROP INDEX podyard.job_ready_late;

-- What waits now. The triggers keep everybody from adding until this is committed.
INSERT INTO podyard.job_news (ep, owner, prio, key, seq) SELECT ep, owner, prio, key, min(seq) FROM podyard.job_ready GROUP BY ep, owner, prio, key;
