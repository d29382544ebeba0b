-- Records of the small stores. data is the record as JSON, in UTF-8; secret is its part that is
-- sealed. version counts the changes of a record.

CREATE TABLE podyard.pods (
	id      bytea  PRIMARY KEY,
	owner   bytea  NOT NULL,
	host    bytea  NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	data    bytea  NOT NULL,
	secret  bytea
);
CREATE INDEX pods_owner ON podyard.pods (owner);
CREATE INDEX pods_host ON podyard.pods (host);

CREATE TABLE podyard.reservations (
	holder bytea PRIMARY KEY,
	data   bytea NOT NULL
);

-- What pods and reservations have of each resource. The limit is that of the claim that was
-- added last; it is checked in the statement that adds.
CREATE TABLE podyard.claims (
	resource bytea  PRIMARY KEY,
	units    bigint NOT NULL,
	maximum  bigint NOT NULL
);

CREATE TABLE podyard.endpoints (
	id      bytea  PRIMARY KEY,
	owner   bytea  NOT NULL,
	version bigint NOT NULL DEFAULT 1,
	data    bytea  NOT NULL,
	secret  bytea
);

CREATE TABLE podyard.volumes (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX volumes_owner ON podyard.volumes (owner);

CREATE TABLE podyard.templates (LIKE podyard.endpoints INCLUDING ALL);
ALTER TABLE podyard.templates ADD COLUMN public boolean NOT NULL DEFAULT false;
CREATE INDEX templates_owner ON podyard.templates (owner);
CREATE INDEX templates_public ON podyard.templates (id) WHERE public;

CREATE TABLE podyard.registries (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX registries_owner ON podyard.registries (owner);

CREATE TABLE podyard.accounts (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX accounts_owner ON podyard.accounts (owner);

CREATE TABLE podyard.schedules (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX schedules_owner ON podyard.schedules (owner);

CREATE TABLE podyard.batches (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX batches_owner ON podyard.batches (owner);

CREATE TABLE podyard.ssh_keys (
	owner bytea PRIMARY KEY,
	data  bytea NOT NULL
);

-- Instants are nanoseconds since 1970; those that are earlier or later than such a number can
-- be are its least and greatest value.
CREATE TABLE podyard.uses (
	kind      bytea   NOT NULL,
	id        bytea   NOT NULL,
	part      bytea   NOT NULL,
	from_time bigint  NOT NULL,
	to_time   bigint  NOT NULL,
	owner     bytea   NOT NULL,
	is_open   boolean NOT NULL,
	data      bytea   NOT NULL,
	PRIMARY KEY (kind, id, part, from_time)
);
CREATE INDEX uses_owner ON podyard.uses (owner, to_time);
CREATE INDEX uses_open ON podyard.uses (kind) WHERE is_open;

-- Records of requests with an Idempotency-Key; at is in milliseconds since 1970.
CREATE TABLE podyard.idempotency_keys (
	key     bytea  PRIMARY KEY,
	content bytea  NOT NULL,
	id      bytea  NOT NULL,
	at      bigint NOT NULL
);
CREATE INDEX idempotency_keys_at ON podyard.idempotency_keys (at);

-- What the servers have to agree on: the text that is sealed with the key of the secrets.
CREATE TABLE podyard.settings (
	name  text  PRIMARY KEY,
	value bytea NOT NULL
);
