-- Secrets: the values of variables of pods. The column secret has the value, and no list reads it.

CREATE TABLE podyard.secrets (LIKE podyard.endpoints INCLUDING ALL);
CREATE INDEX secrets_owner ON podyard.secrets (owner);
-- Sealed bytes do not become smaller.
ALTER TABLE podyard.secrets ALTER COLUMN secret SET STORAGE EXTERNAL;
