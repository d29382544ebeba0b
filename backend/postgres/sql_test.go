package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
)

// execute executes one statement in a database.
func execute(t testing.TB, url, sql string, args ...any) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	if _, err := conn.Exec(t.Context(), sql, args...); err != nil {
		t.Fatal(err)
	}
}

// empty deletes all records of a database.
func empty(t *testing.T, url string) {
	t.Helper()
	execute(t, url, `DO $$ DECLARE name text; BEGIN
		FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = 'podyard' AND tablename NOT IN ('migrations', 'settings', 'server_epoch') LOOP
			EXECUTE format('DELETE FROM podyard.%I', name);
		END LOOP;
	END $$`)
}
