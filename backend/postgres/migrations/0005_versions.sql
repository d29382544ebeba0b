-- How often the rows of a table were changed, for those who keep a copy of them.
CREATE TABLE podyard.versions (
	name    text   PRIMARY KEY,
	version bigint NOT NULL
);

CREATE FUNCTION podyard.count_version() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO podyard.versions AS v (name, version) VALUES (TG_TABLE_NAME, 1)
		ON CONFLICT (name) DO UPDATE SET version = v.version + 1;
	RETURN NULL;
END $$;

CREATE TRIGGER accounts_version AFTER INSERT OR UPDATE OR DELETE ON podyard.accounts
	FOR EACH STATEMENT EXECUTE FUNCTION podyard.count_version();
