package disk

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/serverless/queue"
)

// A keyedRequest makes a request once in a store, as a service does, and returns the id of
// what it created.
type keyedRequest func(s *Store, id string) (string, error)

// once makes a creation with a key.
func once(t *testing.T, name string, store idempotency.Finder, create func(r *idempotency.Record) error) (string, error) {
	r := idempotency.NewRequest(name, []string{"alice"}, []byte("body"))
	made, err := idempotency.Do(t.Context(), r, idempotency.Creation[string]{
		Guard: &idempotency.Guard{}, Store: store, Now: at.Time(), Check: func() error { return nil },
		Create: func(r *idempotency.Record) (string, error) {
			err := create(r)
			return r.ID, err
		},
	})
	if repeated := (*idempotency.Repeated)(nil); errors.As(err, &repeated) {
		return repeated.ID, nil
	}
	return made, err
}

func keyedRequests(t *testing.T) map[string]keyedRequest {
	return map[string]keyedRequest{
		"job": func(s *Store, id string) (string, error) {
			return once(t, "job", s.Jobs(), func(r *idempotency.Record) error {
				j := newJob(id)
				r.ID, j.Creation = id, r
				return s.Jobs().Enqueue(t.Context(), []queue.Job{j})
			})
		},
		"volume": func(s *Store, id string) (string, error) {
			return once(t, "volume", s.Volumes(), func(r *idempotency.Record) error {
				return idempotency.Add(t.Context(), s.Volumes(), volumes.Volume{ID: id, Owner: "alice"}, id, r)
			})
		},
	}
}

// created returns how many of the things with these ids a store has.
func created(t *testing.T, s *Store, ids ...string) (n int) {
	t.Helper()
	for _, id := range ids {
		_, jerr := s.Jobs().Get(t.Context(), at, queue.Ref{Endpoint: "echo", ID: queue.JobID(id)})
		_, verr := s.Volumes().Get(t.Context(), id)
		if jerr == nil || verr == nil {
			n++
		}
	}
	return n
}

// The store loses power before every write to the disk, and the client repeats its request:
// there is one thing, and if the first request was answered, it is that one.
func TestARequestThatIsRepeatedAfterACrashIsMadeOnce(t *testing.T) {
	for name, request := range keyedRequests(t) {
		t.Run(name, func(t *testing.T) {
			type point struct {
				fs       *vfs.MemFS
				answered bool
			}
			var mu sync.Mutex
			var points []point
			answered := false
			mem := vfs.NewCrashableMem()
			s := openForTest(t, "store", inMemory(errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
				mu.Lock()
				defer mu.Unlock()
				if op.Kind.ReadOrWrite() == errorfs.OpIsWrite && len(points) < 200 {
					points = append(points, point{mem.CrashClone(vfs.CrashCloneCfg{}), answered})
				}
				return nil
			}))))
			if id, err := request(s, "first"); err != nil || id != "first" {
				t.Fatalf("the request created %q, %v", id, err)
			}
			mu.Lock()
			answered = true
			mu.Unlock()
			must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob("later")})) // more writes
			mu.Lock()
			defer mu.Unlock()
			before, after := 0, 0
			for i, p := range points {
				r, err := Open(t.Context(), "store", inMemory(p.fs))
				must(t, err)
				id, err := request(r, "second")
				if err != nil || p.answered && id != "first" {
					t.Errorf("crash %d: the repetition created %q, %v; the first one was answered: %t", i, id, err, p.answered)
				}
				if n := created(t, r, "first", "second"); n != 1 {
					t.Errorf("crash %d: %d things, want 1", i, n)
				}
				if id == "first" {
					after++
				} else {
					before++
				}
				must(t, r.Close())
			}
			if before == 0 || after == 0 {
				t.Errorf("%d crashes before the commit and %d after it: the test needs both", before, after)
			}
		})
	}
}

func TestAKeyIsThereAfterAReopeningAndPassesTheCheck(t *testing.T) {
	s := memStore(t)
	for _, request := range keyedRequests(t) {
		_, err := request(s, "first")
		must(t, err)
		s = reopen(t, s)
		if id, err := request(s, "second"); err != nil || id != "first" {
			t.Errorf("the repetition created %q, %v; want what is there", id, err)
		}
	}
	r, err := s.Check(t.Context())
	must(t, errors.Join(err, r.Err()))
}

// A record that cannot be read may say that the request was made.
func TestARequestWhoseKeyIsDamagedCreatesNothing(t *testing.T) {
	s := memStore(t)
	for name, request := range keyedRequests(t) {
		_, err := request(s, "first")
		must(t, err)
		corruptRecord(t, s, keyedKey(idempotency.NewRequest(name, []string{"alice"}).Key))
		if id, err := request(s, "second"); !errors.Is(err, ErrDamaged) || id == "second" && err == nil {
			t.Errorf("the repetition created %q, %v; want ErrDamaged", id, err)
		}
		if n := created(t, s, "second"); n != 0 {
			t.Errorf("the repetition of the %s created a second one", name)
		}
	}
}

// Records that are over are removed by later requests, a few at a time.
func TestRecordsOfKeysDoNotPileUp(t *testing.T) {
	s := memStore(t)
	const perDay, days = 300, 6
	for day := range days {
		for i := range perDay {
			id := fmt.Sprintf("%d-%d", day, i)
			r := idempotency.Record{Request: *idempotency.NewRequest(id, nil), ID: id, At: at.Time().Add(time.Duration(day) * idempotency.Retention)}
			j := newJob(id)
			j.Creation = &r
			must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		}
	}
	e, err := s.engine()
	must(t, err)
	n := 0
	must(t, each(e.db, []byte{keyKeyed}, func(_, _ []byte) error { n++; return nil }))
	if n < perDay || n > 2*perDay {
		t.Errorf("%d records after %d days of %d, want those of a day and some", n, days, perDay)
	}
	if _, err := s.Jobs().FindKey(t.Context(), idempotency.NewRequest("5-0", nil).Key); err != nil {
		t.Errorf("a key of the last day: %v", err)
	}
}
