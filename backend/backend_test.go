package backend_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend"
	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

var postgresql = postgrestest.Server{Prepare: func(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	return s.Close()
}}

func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }

// A program changes its address and nothing else: each backend has every store, and the same life.
func TestEveryAddressOpensOneShapeOfStore(t *testing.T) {
	for name, x := range map[string]struct {
		where  func(t *testing.T) string
		is     any
		lasts  bool // what is closed refuses work
		shared bool // others may use it, too
	}{
		"Memory":   {func(*testing.T) string { return "" }, &memory.Store{}, false, false},
		"Disk":     {func(t *testing.T) string { return filepath.Join(t.TempDir(), "store") }, &disk.Store{}, true, false},
		"Postgres": {func(t *testing.T) string { return postgresql.Database(t) }, &postgres.Store{}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := backend.Open(t.Context(), x.where(t), &backend.Options{Key: make([]byte, 32)})
			if err != nil {
				t.Fatal(err)
			}
			if reflect.TypeOf(s) != reflect.TypeOf(x.is) {
				t.Errorf("it is a %T, want a %T", s, x.is)
			}
			wantEveryStore(t, s, x.shared)
			ctx, cancel := context.WithCancel(t.Context())
			ran := make(chan error, 1)
			go func() { ran <- s.Run(ctx) }()
			if err := s.Ready(); err != nil {
				t.Errorf("Ready = %v", err)
			}
			doesAJob(t, s)
			cancel()
			if err := <-ran; err != nil {
				t.Errorf("Run = %v, want nil at the end of its context", err)
			}
			for range 2 {
				if err := s.Close(); err != nil {
					t.Errorf("Close = %v", err)
				}
			}
			if err := s.Ready(); x.lasts != (err != nil) {
				t.Errorf("Ready after Close = %v", err)
			}
		})
	}
}

// wantEveryStore finds a field of the set that a backend has forgotten.
func wantEveryStore(t *testing.T, s backend.Store, shared bool) {
	t.Helper()
	set := reflect.ValueOf(s.Stores())
	for i := range set.NumField() {
		switch name := set.Type().Field(i).Name; name {
		case "Servers", "Presence":
			if set.Field(i).IsZero() == shared {
				t.Errorf("%T: %s is there: %t, want %t", s, name, !shared, shared)
			}
		case "Warning", "Short": // only a disk has them
		default:
			if set.Field(i).IsZero() {
				t.Errorf("%T has no %s", s, name)
			}
		}
	}
}

// doesAJob has a function do a job over the store.
func doesAJob(t *testing.T, s backend.Store) {
	t.Helper()
	jobs := serverless.New(s.Stores().Jobs, s.Stores().Endpoints, nil)
	double, err := serverless.Handle(t.Context(), jobs, "double", func(_ context.Context, in map[string]int) (int, error) { return 2 * in["n"], nil }, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ends := make(chan error, 2)
	go func() { ends <- jobs.Run(ctx) }()
	go func() { ends <- jobs.ServeHandlers(ctx, nil) }()
	if n, err := double.Do(t.Context(), map[string]int{"n": 21}); err != nil || n != 42 {
		t.Errorf("Do = %d, %v, want 42", n, err)
	}
	cancel()
	if err := errors.Join(<-ends, <-ends); err != nil {
		t.Error(err)
	}
}

func TestAnAddressThatIsNoneIsRefusedAndMakesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, where := range []string{"mysql://me:secret@host/db", "sqlite://x.db", "http://127.0.0.1"} {
		s, err := backend.Open(t.Context(), where, nil)
		if s != nil || !errors.Is(err, backend.ErrAddress) || problem.KindOf(err) != problem.Invalid {
			t.Fatalf("Open(%q) = %v, %v, want ErrAddress", where, s, err)
		}
		if strings.Contains(err.Error(), "secret") {
			t.Errorf("the error has the password: %v", err)
		}
	}
	if s, err := backend.Open(t.Context(), "postgres://me:secret@127.0.0.1:1/db?connect_timeout=1", nil); s != nil || err == nil || strings.Contains(err.Error(), "secret") {
		t.Errorf("Open of a database that is not there = %v, %v", s, err)
	}
	left, err := os.ReadDir(".")
	if err != nil || len(left) > 0 {
		t.Errorf("it has made %v (%v)", left, err)
	}
}
