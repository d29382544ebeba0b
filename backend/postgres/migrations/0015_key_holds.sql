-- The keys that workers hold (docs/decisions.md 59). Who ends a job writes them, and claims read them and write
-- until when lines are held to job_rates.
CREATE TABLE podyard.job_key_holds (
	ep bytea NOT NULL,
	owner bytea NOT NULL,
	key bytea NOT NULL,
	made bigint NOT NULL,
	until bigint NOT NULL,
	PRIMARY KEY (ep, owner, key)
);
