-- Records that servers change one after the other.
CREATE TABLE podyard.server_records (
	key     bytea  PRIMARY KEY,
	version bigint NOT NULL,
	data    bytea  NOT NULL
);
CREATE UNIQUE INDEX server_records_version ON podyard.server_records (version);
