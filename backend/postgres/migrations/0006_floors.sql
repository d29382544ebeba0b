-- A row is late if it may appear behind rows with a greater seq that were claimed before: the job
-- was queued again where it was, or is added in the transaction of a caller, which may take long.
-- Servers of the version before this one write only late rows, by the default.
ALTER TABLE podyard.job_ready ADD COLUMN late boolean NOT NULL DEFAULT false;
ALTER TABLE podyard.job_ready ALTER COLUMN late SET DEFAULT true;
-- An expression, so that no plan for late rows reads the primary key instead.
CREATE INDEX job_ready_late ON podyard.job_ready ((ep || ''::bytea), owner, prio, key, seq) WHERE late;
