-- What jobs print. The column secret has the lines, which are no secret, and no list reads it.

CREATE TABLE podyard.job_logs (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX job_logs_owner ON podyard.job_logs (owner);
