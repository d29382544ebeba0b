package postgres_test

import (
	"context"
	"errors"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
)

var postgresql = postgrestest.Server{Prepare: func(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url, nil)
	if err == nil {
		_ = s.Close()
	}
	return err
}}

func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }

func openURL(t *testing.T, url string) *postgres.Store {
	t.Helper()
	s, err := postgres.Open(t.Context(), url, postgres.CallersTime(&postgres.Options{MaxConns: 8, Key: testKey}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func TestServersThatStartTogetherMakeOneSchema(t *testing.T) {
	url := postgresql.Empty(t)
	var servers sync.WaitGroup
	for range 8 {
		servers.Go(func() {
			s, err := postgres.Open(t.Context(), url, &postgres.Options{MaxConns: 2})
			if err != nil {
				t.Error(err)
				return
			}
			_ = s.Close()
		})
	}
	servers.Wait()
}

func TestOpenSaysWhatIsWrongAndNeverThePassword(t *testing.T) {
	postgresql.Empty(t)
	good, err := url.Parse(postgresql.URL("postgres", "", "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	const password = "s3cr%2Ft:pass"
	postgresql.Admin(t, "CREATE ROLE poor LOGIN PASSWORD 's3cr/t:pass'")
	t.Cleanup(func() { postgresql.Admin(t, "DROP ROLE poor") })
	for name, c := range map[string]struct{ url, want string }{
		"scheme":   {"mysql://u:" + password + "@h/d", "it begins with postgres://"},
		"parse":    {"postgres://u:s3cr/t:pass@h/d", "it does not parse"},
		"sslmode":  {"postgres://u:" + password + "@h/d?sslmode=maybe", "sslmode is invalid"},
		"port":     {"postgres://u:" + password + "@127.0.0.1:1/d", "cannot connect to 127.0.0.1:1"},
		"password": {"postgres://u:" + password + "@" + good.Host + "/d?sslmode=disable", `refuses the user "u" or its password`},
		"socket":   {"postgres://u:" + password + "@%2Fvar%2Frun/d", "postgres://USER@/DB?host=/DIR"},
		"rights":   {postgresql.URL("poor", "s3cr/t:pass", "postgres"), good.Host + `: the user "poor" may not make or change the schema podyard`},
		"database": {postgresql.URL("postgres", "s3cr/t:pass", "nothing"), `has no database "nothing"`},
		"TLS":      {postgresql.URL("postgres", "s3cr/t:pass", "postgres") + "&sslmode=require", "refused TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := postgres.Open(t.Context(), strings.Replace(c.url, "sslmode=disable&", "", 1), nil)
			if err == nil {
				_ = s.Close()
				t.Fatal("Open succeeded")
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("Open = %q, want %q", err, c.want)
			}
			if strings.Contains(err.Error(), "s3cr") || strings.Contains(err.Error(), "pass@") {
				t.Errorf("the error shows the password: %v", err)
			}
		})
	}
}

func TestASchemaOfANewerProgramIsRefused(t *testing.T) {
	url := postgresql.Database(t)
	execute(t, url, `INSERT INTO podyard.migrations (version, name) VALUES (1000, '1000_later.sql')`)
	_, err := postgres.Open(t.Context(), url, nil)
	if !errors.Is(err, postgres.ErrNewer) {
		t.Fatalf("Open = %v, want ErrNewer", err)
	}
	if want := "it has version 1000"; !strings.Contains(err.Error(), want) {
		t.Errorf("Open = %q, want %q", err, want)
	}
}
