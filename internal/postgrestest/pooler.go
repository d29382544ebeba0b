package postgrestest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/internal/suite"
)

// poolerConns is how many connections to the server the transactions of all clients share.
const poolerConns = 4

// Pooled starts PgBouncer before the server, and returns the URL of Database through it. Each
// transaction of a client gets the connection to the server that was unused for longest, so
// what a client leaves on one is not there for its next transaction. The end of the test stops it.
// Without PgBouncer it skips the test; in continuous integration (PODYARD_CI=1) it fails.
func (s *Server) Pooled(t testing.TB, database string) string {
	t.Helper()
	s.require(t)
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skip("needs PgBouncer (Debian: pgbouncer)")
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := ownDir()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) }) // files that stay are in the directory for temporary files
	u.Host, err = s.runPooler(t, program, dir)
	if err != nil {
		log, _ := os.ReadFile(filepath.Join(dir, "log")) // the error says enough without it
		t.Fatalf("PgBouncer: %v\n%s", err, log)
	}
	return u.String()
}

// runPooler returns the address of a pooler when it answers.
func (s *Server) runPooler(t testing.TB, program, dir string) (host string, err error) {
	port, err := suite.FreePort(t.Context())
	if err != nil {
		return "", err
	}
	config := filepath.Join(dir, "config")
	text := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%d user=postgres\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\n"+
		"auth_type = any\npool_mode = transaction\nserver_round_robin = 1\ndefault_pool_size = %d\nmax_client_conn = 1000\n", s.port, port, poolerConns)
	if err := os.WriteFile(config, []byte(text), 0o644); err != nil { //nolint:gosec // the pooler runs as another user
		return "", err
	}
	cmd := s.commandAt(context.WithoutCancel(t.Context()), program, config)
	// It may have been unpacked and not installed.
	libraries, err := filepath.Glob(filepath.Join(filepath.Dir(program), "../lib/*-linux-gnu"))
	if err != nil {
		return "", err
	}
	cmd.Env = append(os.Environ(), "LD_LIBRARY_PATH="+strings.Join(libraries, ":"))
	p, err := start(cmd, filepath.Join(dir, "log"))
	if err != nil {
		return "", err
	}
	t.Cleanup(func() { p.stop(os.Interrupt) })
	host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for {
		conn, err := pgx.Connect(t.Context(), "postgres://postgres@"+host+"/postgres?sslmode=disable")
		if err == nil {
			return host, conn.Close(t.Context())
		}
		select {
		case <-p.exited:
			return "", errors.Join(errors.New("it ended"), err)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
