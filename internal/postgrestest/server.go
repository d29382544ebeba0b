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
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/internal/sweeptest"
)

// A Server is a PostgreSQL server that starts when a test first needs it. The zero value is
// ready to use. It is safe for concurrent use.
type Server struct {
	// Prepare prepares the database that databases of tests are copies of, for example with
	// migrations. Nil: they are empty.
	Prepare func(ctx context.Context, url string) error

	mu      sync.Mutex
	bin     string
	dir     string
	port    int
	process *process
	failed  error // why it cannot be started; it is not tried again
	made    int   // databases
}

// original is the database that the others are copies of.
const original = "original"

// Main runs the tests of a binary and then stops the server. It returns the exit code.
func (s *Server) Main(m *testing.M) int {
	return sweeptest.Main(&serverTests{s, m})
}

type serverTests struct {
	server *Server
	tests  *testing.M
}

// Run runs the tests and stops the server.
func (t *serverTests) Run() int {
	defer t.server.Stop()
	return t.tests.Run()
}

// Stop stops the server and deletes its directory. Main does it.
func (s *Server) Stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.process.stop(os.Interrupt)
	if s.dir != "" {
		_ = os.RemoveAll(s.dir) // files that stay are in the directory for temporary files
	}
}

// Database returns the URL of a new database, which the end of the test deletes. Without
// PostgreSQL it skips the test; in continuous integration (PODYARD_CI=1) it fails.
func (s *Server) Database(t testing.TB) (url string) {
	t.Helper()
	s.require(t)
	name := s.name()
	s.Admin(t, "CREATE DATABASE "+name+" TEMPLATE "+original)
	t.Cleanup(func() { s.Admin(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return s.URL("postgres", "", name)
}

// Empty is Database without what Prepare does.
func (s *Server) Empty(t testing.TB) (url string) {
	t.Helper()
	s.require(t)
	name := s.name()
	s.Admin(t, "CREATE DATABASE "+name)
	t.Cleanup(func() { s.Admin(t, "DROP DATABASE IF EXISTS "+name+" WITH (FORCE)") })
	return s.URL("postgres", "", name)
}

func (s *Server) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.made++
	return "test" + strconv.Itoa(s.made)
}

// URL returns the URL of a database for a user. The server trusts the user postgres; others
// need their password.
func (s *Server) URL(user, password, database string) string {
	u := url.URL{Scheme: "postgres", User: url.User(user), Path: "/" + database, RawQuery: "sslmode=disable"}
	if password != "" {
		u.User = url.UserPassword(user, password)
	}
	u.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port))
	return u.String()
}

// Admin executes statements as the superuser, each of its own.
func (s *Server) Admin(t testing.TB, statements ...string) {
	t.Helper()
	if err := s.admin(context.WithoutCancel(t.Context()), statements...); err != nil {
		t.Error(err)
	}
}

func (s *Server) admin(ctx context.Context, statements ...string) error {
	conn, err := pgx.Connect(ctx, s.URL("postgres", "", "postgres"))
	if err != nil {
		return err
	}
	for _, sql := range statements {
		if _, e := conn.Exec(ctx, sql); e != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", sql, e))
		}
	}
	return errors.Join(err, conn.Close(ctx))
}

// Program returns the path of a program of the installation of the server, such as pg_dump.
func (s *Server) Program(t testing.TB, name string) string {
	t.Helper()
	s.require(t)
	return filepath.Join(s.bin, name)
}

// Restart stops the server, at once or as after a crash, and starts it again. while runs
// between, and may be nil.
func (s *Server) Restart(t testing.TB, crash bool, while func()) {
	t.Helper()
	s.require(t)
	s.mu.Lock()
	defer s.mu.Unlock()
	if crash {
		s.process.stop(immediate)
	} else {
		s.process.stop(os.Interrupt)
	}
	if while != nil {
		while()
	}
	if err := s.run(context.WithoutCancel(t.Context())); err != nil {
		s.failed = err
		t.Fatal(err)
	}
}

func (s *Server) require(t testing.TB) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failed == nil && s.process == nil {
		s.failed = s.start(context.WithoutCancel(t.Context()))
	}
	switch {
	case s.failed == nil:
	case os.Getenv("PODYARD_CI") == "1" || !errors.Is(s.failed, errMissing):
		t.Fatal(s.failed)
	default:
		t.Skip(s.failed)
	}
}

var errMissing = errors.New("needs the PostgreSQL server (Debian: postgresql)")

// find returns the directory with the programs of the newest installed version.
func find() (string, error) {
	all, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(all) == 0 {
		path, err := exec.LookPath("initdb")
		if err != nil {
			return "", errMissing
		}
		return filepath.Dir(path), nil
	}
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path)))) // another name counts as 0
		return n
	}
	slices.SortFunc(all, func(a, b string) int { return version(b) - version(a) })
	return filepath.Dir(all[0]), nil
}

// start makes the cluster, starts it and prepares the original of the databases.
func (s *Server) start(ctx context.Context) (err error) {
	if s.bin, err = find(); err != nil {
		return err
	}
	if s.dir, err = ownDir(); err != nil {
		return err
	}
	initdb := s.command(ctx, "initdb", "-D", filepath.Join(s.dir, "data"), "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C")
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w\n%s", err, out)
	}
	rules := "host all postgres 127.0.0.1/32 trust\nhost all all 127.0.0.1/32 scram-sha-256\n"
	if err := os.WriteFile(filepath.Join(s.dir, "data", "pg_hba.conf"), []byte(rules), 0o644); err != nil { //nolint:gosec // the server runs as another user
		return err
	}
	if err := s.run(ctx); err != nil {
		return err
	}
	if err := s.admin(ctx, "CREATE DATABASE "+original); err != nil || s.Prepare == nil {
		return err
	}
	return s.Prepare(ctx, s.URL("postgres", "", original))
}

// run starts the server and waits until it answers. It keeps its port.
func (s *Server) run(ctx context.Context) (err error) {
	if s.port == 0 {
		if s.port, err = suite.FreePort(ctx); err != nil {
			return err
		}
	}
	cmd := s.command(ctx, "postgres", "-D", filepath.Join(s.dir, "data"), "-k", "", // no socket: nobody uses one, and its name would be too long below a long TMPDIR

		"-p", strconv.Itoa(s.port), "-c", "listen_addresses=127.0.0.1", "-c", "max_connections=200",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "shared_buffers=32MB",
		// What is committed asynchronously stays away from the disk, so that crashes lose it.
		"-c", "wal_writer_delay=10s", "-c", "wal_writer_flush_after=1GB")
	if s.process, err = start(cmd, filepath.Join(s.dir, "log")); err != nil {
		return err
	}
	for {
		if err = s.admin(ctx); err == nil {
			return nil
		}
		select {
		case <-s.process.exited:
			log, _ := os.ReadFile(filepath.Join(s.dir, "log")) // the error says enough without it
			return fmt.Errorf("the server ended: %w\n%s", err, log)
		case <-time.After(20 * time.Millisecond):
		}
	}
}
