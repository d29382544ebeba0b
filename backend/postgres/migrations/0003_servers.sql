-- What servers share. Instants are milliseconds since 1970.

CREATE TABLE podyard.server_epoch (n bigint NOT NULL);
INSERT INTO podyard.server_epoch VALUES (0);

CREATE TABLE podyard.server_leases (
	name     bytea  PRIMARY KEY,
	holder   bytea  NOT NULL,
	epoch    bigint NOT NULL,
	until_ms bigint NOT NULL,
	data     bytea
) WITH (fillfactor = 50);

-- added is what the last change has added.
CREATE TABLE podyard.server_counts (
	key      bytea  PRIMARY KEY,
	n        bigint NOT NULL,
	added    bigint NOT NULL,
	until_ms bigint NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE podyard.server_secrets (
	name   bytea PRIMARY KEY,
	secret bytea NOT NULL
);

-- Workers of all servers. After a crash of the database the servers write them again.
CREATE UNLOGGED TABLE podyard.worker_rows (
	ep       bytea  NOT NULL,
	id       bytea  NOT NULL,
	server   bytea  NOT NULL,
	until_ms bigint NOT NULL,
	data     bytea  NOT NULL,
	PRIMARY KEY (ep, id, server)
) WITH (fillfactor = 50);
