package idempotency_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// A shelf is the simplest idempotency.Store. It creates names.
type shelf struct {
	mu      sync.Mutex
	names   []string
	records map[idempotency.Digest]idempotency.Record
	down    error
}

func (s *shelf) Create(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.names = append(s.names, name)
	return nil
}

func (s *shelf) CreateKeyed(_ context.Context, name string, r idempotency.Record) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.records[r.Key]; ok && !old.Over(r.At) {
		return idempotency.ErrTaken
	}
	if s.records == nil {
		s.records = map[idempotency.Digest]idempotency.Record{}
	}
	s.records[r.Key] = r
	s.names = append(s.names, name)
	return nil
}

func (s *shelf) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down != nil {
		return idempotency.Record{}, s.down
	}
	r, ok := s.records[key]
	if !ok {
		return r, idempotency.ErrNotFound
	}
	return r, nil
}

var (
	now      = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	noFaults = func() error { return nil }
)

func request(key, content string) *idempotency.Request {
	return idempotency.NewRequest(key, []string{"alice"}, []byte(content))
}

// creation creates a name in a shelf.
func creation(s *shelf, g *idempotency.Guard, name string, at time.Time) idempotency.Creation[string] {
	return idempotency.Creation[string]{Guard: g, Store: s, Now: at, Check: noFaults, Create: func(r *idempotency.Record) (string, error) {
		return name, idempotency.Add(context.Background(), s, name, name, r)
	}}
}

func wantRepeated(t *testing.T, err error, id string) {
	t.Helper()
	if r := (*idempotency.Repeated)(nil); !errors.As(err, &r) || r.ID != id {
		t.Errorf("Do = %v, want a repetition of the request that created %s", err, id)
	}
}

func TestARequestWithoutAKeyIsMadeEachTime(t *testing.T) {
	s := &shelf{}
	for range 2 {
		if _, err := idempotency.Do(t.Context(), nil, creation(s, nil, "a", now)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.names) != 2 || len(s.records) != 0 {
		t.Errorf("%q with %d records, want two names and no record", s.names, len(s.records))
	}
}

func TestARequestWithAKeyIsMadeOnceIn24Hours(t *testing.T) {
	s, g := &shelf{}, &idempotency.Guard{}
	if v, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "a", now)); v != "a" || err != nil {
		t.Fatalf("Do = %q, %v", v, err)
	}
	_, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "b", now.Add(idempotency.Retention-1)))
	wantRepeated(t, err, "a")
	if problem.KindOf(err) != problem.Conflict {
		t.Errorf("a caller that does not know Repeated gets %v, want a conflict", problem.KindOf(err))
	}
	if _, err := idempotency.Do(t.Context(), request("k", "y"), creation(s, g, "b", now)); !errors.Is(err, idempotency.ErrReused) {
		t.Errorf("Do of another request = %v, want ErrReused", err)
	}
	if v, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "c", now.Add(idempotency.Retention))); v != "c" || err != nil {
		t.Errorf("Do after the retention = %q, %v", v, err)
	}
}

func TestFaultsOfARequestComeBeforeThoseOfItsKey(t *testing.T) {
	s, g := &shelf{}, &idempotency.Guard{}
	if _, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "a", now)); err != nil {
		t.Fatal(err)
	}
	schema, rule := problem.New(problem.Invalid, "a fault"), problem.New(problem.BadRequest, "a rule")
	for faults, want := range map[error]error{schema: schema, rule: idempotency.ErrReused} {
		c := creation(s, g, "b", now)
		c.Check = func() error { return faults }
		if _, err := idempotency.Do(t.Context(), request("k", "y"), c); !errors.Is(err, want) {
			t.Errorf("Do of a request with %v = %v, want %v", faults, err, want)
		}
	}
}

func TestATwinIsRefusedUntilTheFirstRequestIsStored(t *testing.T) {
	s, g := &shelf{}, &idempotency.Guard{}
	c := creation(s, g, "a", now)
	create := c.Create
	c.Create = func(r *idempotency.Record) (string, error) {
		if _, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "b", now)); !errors.Is(err, idempotency.ErrBusy) {
			t.Errorf("Do of a twin = %v, want ErrBusy", err)
		}
		if _, err := idempotency.Do(t.Context(), request("other", "x"), creation(s, g, "c", now)); err != nil {
			t.Errorf("Do with another key = %v", err)
		}
		return create(r)
	}
	if _, err := idempotency.Do(t.Context(), request("k", "x"), c); err != nil {
		t.Fatal(err)
	}
	_, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, g, "b", now))
	wantRepeated(t, err, "a")
}

// A twin on another server, which has a guard of its own, is stored first.
func TestARequestThatLosesToAnotherServerIsARepetition(t *testing.T) {
	for what, refused := range map[string]error{"key": nil, "capacity": problem.New(problem.BadRequest, "no capacity")} {
		s := &shelf{}
		c := creation(s, &idempotency.Guard{}, "a", now)
		create := c.Create
		c.Create = func(r *idempotency.Record) (string, error) {
			if _, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, &idempotency.Guard{}, "b", now)); err != nil {
				t.Fatal(err)
			}
			if refused != nil {
				return "", refused
			}
			return create(r)
		}
		v, err := idempotency.Do(t.Context(), request("k", "x"), c)
		wantRepeated(t, err, "b")
		if v != "" || len(s.names) != 1 {
			t.Errorf("%s: Do = %q, and %q were created, want b", what, v, s.names)
		}
	}
}

func TestNothingIsCreatedWhileRecordsCannotBeRead(t *testing.T) {
	s := &shelf{down: problem.New(problem.Unavailable, "the store is down")}
	if _, err := idempotency.Do(t.Context(), request("k", "x"), creation(s, &idempotency.Guard{}, "a", now)); !errors.Is(err, s.down) || len(s.names) != 0 {
		t.Errorf("Do = %v, and %q were created", err, s.names)
	}
}

func TestDigestsDependOnEveryPart(t *testing.T) {
	seen := map[idempotency.Request]string{}
	for what, r := range map[string]*idempotency.Request{
		"plain":        idempotency.NewRequest("k", []string{"a", "b"}, []byte("x"), []byte("y")),
		"other key":    idempotency.NewRequest("l", []string{"a", "b"}, []byte("x"), []byte("y")),
		"joined scope": idempotency.NewRequest("k", []string{"ab", ""}, []byte("x"), []byte("y")),
		"joined body":  idempotency.NewRequest("k", []string{"a", "b"}, []byte("xy"), nil),
	} {
		for old, other := range seen {
			sameKey := other != "other key" && what != "other key" && other != "joined scope" && what != "joined scope"
			if old == *r || (old.Key == r.Key) != sameKey {
				t.Errorf("%s and %s have the digests %x and %x", what, other, *r, old)
			}
		}
		seen[*r] = what
	}
}

// seats is an idempotency.Room for a number of keys.
type seats struct{ free int }

var errFull = problem.New(problem.TooManyRequests, "full")

func (s *seats) Take() error {
	if s.free == 0 {
		return errFull
	}
	s.free--
	return nil
}

func (s *seats) Give() { s.free++ }

func TestOnlyANewKeyThatSucceedsTakesRoom(t *testing.T) {
	s, g, room := &shelf{}, &idempotency.Guard{}, &seats{free: 1}
	keyed := func(key string) *idempotency.Request {
		r := request(key, "x")
		r.Room = room
		return r
	}
	failing := creation(s, g, "a", now)
	failing.Create = func(*idempotency.Record) (string, error) { return "", errors.New("no") }
	if _, err := idempotency.Do(t.Context(), keyed("k"), failing); err == nil || room.free != 1 {
		t.Errorf("a failed creation: %v, and room for %d, want 1", err, room.free)
	}
	if _, err := idempotency.Do(t.Context(), keyed("k"), creation(s, g, "a", now)); err != nil || room.free != 0 {
		t.Fatalf("a creation: %v, and room for %d, want 0", err, room.free)
	}
	if _, err := idempotency.Do(t.Context(), keyed("l"), creation(s, g, "b", now)); !errors.Is(err, errFull) || len(s.names) != 1 {
		t.Errorf("without room: %v, and %q were created", err, s.names)
	}
	_, err := idempotency.Do(t.Context(), keyed("k"), creation(s, g, "b", now))
	wantRepeated(t, err, "a")
	if stored, err := s.FindKey(t.Context(), keyed("k").Key); err != nil || stored.Room != nil {
		t.Errorf("the record has the room %v, %v", stored.Room, err)
	}
}
