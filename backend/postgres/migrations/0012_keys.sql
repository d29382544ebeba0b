-- The job that took a unique key last. Who takes one has an advisory lock of the key until the end of the
-- transaction.
CREATE TABLE podyard.job_keys (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	name bytea NOT NULL,
	id bytea NOT NULL,
	PRIMARY KEY (ep, owner, name)
) WITH (fillfactor = 70);
