package ratelimit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/ratelimit"
)

// noon is the begin of a minute, an hour and, in UTC, half a day.
var noon = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// sharing returns Windows of two servers over one store.
func sharing(q ratelimit.Quotas, c ratelimit.Counts) (list [2]*ratelimit.Windows) {
	for i := range list {
		list[i] = ratelimit.NewWindows(q)
		list[i].Shared(c)
	}
	return list
}

func TestServersHaveOneQuotaTogether(t *testing.T) {
	list := sharing(ratelimit.Quotas{Minute: 100}, memory.NewServers())
	passed := 0
	for n := range 300 {
		if d := list[n%2].TakeContext(t.Context(), noon.Add(time.Duration(n)*time.Millisecond), "alice"); d.OK {
			passed++
		} else if d.Exceeded != "minute" || d.RetryAfter != 60 || d.States[0].Remaining != 0 {
			t.Fatalf("decision = %+v", d)
		}
	}
	if passed != 100 {
		t.Errorf("%d requests of a quota of 100 passed at two servers", passed)
	}
	if d := list[0].TakeContext(t.Context(), noon, "bob"); !d.OK || d.States[0].Remaining != 99 {
		t.Errorf("another user: %+v", d)
	}
	if d := list[1].TakeContext(t.Context(), noon.Add(time.Minute), "alice"); !d.OK {
		t.Errorf("the next minute: %+v", d)
	}
}

func TestRefusedRequestIsCountedInNoWindowOfAnyServer(t *testing.T) {
	list := sharing(ratelimit.Quotas{Minute: 10, Hour: 20}, memory.NewServers())
	for minute := range 3 {
		passed := 0
		for n := range 40 {
			if list[n%2].TakeContext(t.Context(), noon.Add(time.Duration(minute)*time.Minute), "alice").OK {
				passed++
			}
		}
		if want := []int{10, 10, 0}[minute]; passed != want {
			t.Errorf("minute %d: %d requests passed, want %d", minute, passed, want)
		}
	}
}

// A countedStore counts the calls, and may fail.
type countedStore struct {
	ratelimit.Counts
	mu    sync.Mutex
	calls int
	err   error
}

func (s *countedStore) Reserve(ctx context.Context, now, until time.Time, key string, n, limit int64) (int64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.calls++; s.err != nil {
		return 0, s.err
	}
	return s.Counts.Reserve(ctx, now, until, key, n, limit)
}

func TestMostRequestsNeedNoCallOfTheStore(t *testing.T) {
	store := &countedStore{Counts: memory.NewServers()}
	w := sharing(ratelimit.Quotas{Minute: 1000, Hour: 1000, Day: 1000}, store)[0]
	for range 5000 {
		w.TakeContext(t.Context(), noon, "alice")
	}
	if store.calls > 3*21 {
		t.Errorf("%d calls of the store for 5000 requests", store.calls)
	}
}

func TestRequestsPassWhileTheStoreOfTheCountsFails(t *testing.T) {
	store := &countedStore{Counts: memory.NewServers(), err: errors.New("away")}
	w := sharing(ratelimit.Quotas{Minute: 10}, store)[0]
	for n := range 20 {
		if d := w.TakeContext(t.Context(), noon, "alice"); !d.OK {
			t.Fatalf("request %d = %+v", n, d)
		}
	}
}

func TestCallersAtOncePassNoMoreThanTheQuota(t *testing.T) {
	list := sharing(ratelimit.Quotas{Minute: 500}, memory.NewServers())
	var mu sync.Mutex
	var all sync.WaitGroup
	passed := map[string]int{}
	for i := range 16 {
		all.Go(func() {
			for n := range 200 {
				user := fmt.Sprint("u", n%2)
				if list[i%2].TakeContext(t.Context(), noon, user).OK {
					mu.Lock()
					passed[user]++
					mu.Unlock()
				}
			}
		})
	}
	all.Wait()
	for user, n := range passed {
		if n != 500 {
			t.Errorf("%d requests of %s passed, want 500", n, user)
		}
	}
}

func TestHigherQuotaIsTakenFromAtOnce(t *testing.T) {
	w := sharing(ratelimit.Quotas{Minute: 1}, memory.NewServers())[0]
	w.TakeContext(t.Context(), noon, "alice")
	if w.TakeContext(t.Context(), noon, "alice").OK {
		t.Error("a second request passed a quota of one")
	}
	w.SetQuotas(ratelimit.Quotas{Minute: 2})
	if !w.TakeContext(t.Context(), noon, "alice").OK {
		t.Error("the quota is 2 now, and the second request is refused")
	}
}

func TestServersShareShortLimitsEvenly(t *testing.T) {
	live := 1
	r := ratelimit.NewRates(0)
	r.Shared(func() int { return live })
	count := func(user string) (n int) {
		for {
			if _, d := r.Acquire(noon, ratelimit.Key{User: user, Endpoint: "e", Operation: ratelimit.Run}, 0); !d.OK {
				return n
			}
			n++
		}
	}
	alone := count("alice")
	live = 4
	if n := count("bob"); n != (alone+3)/4 {
		t.Errorf("%d requests at one of 4 servers, and %d at one that is alone", n, alone)
	}
	live = 1_000_000
	if n := count("carol"); n != 1 {
		t.Errorf("%d requests at one of a million servers, want 1", n)
	}
}

func TestPeekAtOneOfSeveralServersSaysWhatThisOneKnows(t *testing.T) {
	list := sharing(ratelimit.Quotas{Minute: 100}, memory.NewServers())
	for range 7 {
		list[0].TakeContext(t.Context(), noon, "alice")
	}
	for range 2 {
		if s := list[0].Peek(noon.Add(20*time.Second), "alice")[0]; s.Remaining != 93 || s.Reset != 40 {
			t.Errorf("Peek = %+v, want 93 left for 40 s", s)
		}
	}
	if s := list[1].Peek(noon, "alice")[0]; s.Remaining != 100 || s.Reset != 60 {
		t.Errorf("Peek at the other = %+v, want a quota of which it knows nothing", s)
	}
}
