package servers_test

import (
	"bytes"
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/servers"
)

// join makes a server that runs until end is called, or dies with kill: it gives nothing back.
func join(t *testing.T, store servers.Store) (s *servers.Server, end func()) {
	t.Helper()
	s, err := servers.Join(t.Context(), store, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	end = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
	t.Cleanup(end)
	return s, end
}

func wantLead(t *testing.T, s *servers.Server, want bool) servers.Lease {
	t.Helper()
	l, leads, err := s.Lead(t.Context(), "x", nil)
	if err != nil || leads != want {
		t.Errorf("Lead = %v, %v, want %v", leads, err, want)
	}
	return l
}

func TestServersKnowHowManyLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewServers()
		a, _ := join(t, store)
		b, endB := join(t, store)
		dead, err := servers.Join(t.Context(), store, nil) // and dies: nothing renews its lease
		if err != nil {
			t.Fatal(err)
		}
		if a.ID() == b.ID() || a.Epoch() >= b.Epoch() || b.Epoch() >= dead.Epoch() {
			t.Errorf("ids %q, %q, epochs %d, %d, %d", a.ID(), b.ID(), a.Epoch(), b.Epoch(), dead.Epoch())
		}
		time.Sleep(servers.DefaultLease / 2)
		if n := a.Live(); n != 3 {
			t.Errorf("%d servers live, want 3", n)
		}
		time.Sleep(2 * servers.DefaultLease)
		if n := a.Live(); n != 2 {
			t.Errorf("%d servers live after one has died, want 2", n)
		}
		others, err := a.Others(t.Context())
		if err != nil || len(others) != 1 || others[0].Name != b.ID() {
			t.Errorf("Others = %v, %v, want b", others, err)
		}
		endB()
		time.Sleep(servers.DefaultLease / 2)
		if n := a.Live(); n != 1 {
			t.Errorf("%d servers live after another has left, want 1", n)
		}
	})
}

func TestLeadIsTakenOverWhenItsServerDies(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewServers()
		dead, err := servers.Join(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		b, _ := join(t, store)
		mine := wantLead(t, dead, true)
		wantLead(t, b, false)
		time.Sleep(servers.DefaultLease - 2*time.Second)
		wantLead(t, b, false)
		if !dead.Leads("x") {
			t.Error("the leader gives up before its lease is over")
		}
		time.Sleep(time.Second + time.Millisecond)
		if dead.Leads("x") {
			t.Error("the leader relies on the last second of its lease")
		}
		time.Sleep(time.Second)
		if l := wantLead(t, b, true); l.Epoch <= mine.Epoch {
			t.Errorf("epoch %d after %d", l.Epoch, mine.Epoch)
		}
		wantLead(t, dead, false)
	})
}

func TestServerThatEndsGivesItsLeasesBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := memory.NewServers()
		a, end := join(t, store)
		b, _ := join(t, store)
		wantLead(t, a, true)
		end()
		wantLead(t, b, true)
		if err := b.Resign(t.Context(), "x"); err != nil {
			t.Fatal(err)
		}
		c, _ := join(t, store)
		wantLead(t, c, true)
	})
}

// A brokenStore counts the calls of Take, and can be made to refuse them.
type brokenStore struct {
	servers.Store
	takes  int
	broken bool
}

func (s *brokenStore) Take(ctx context.Context, now time.Time, l servers.Lease) (servers.Lease, error) {
	s.takes++
	if s.broken {
		return servers.Lease{}, errors.New("the store is away")
	}
	return s.Store.Take(ctx, now, l)
}

func TestLeadAsksTheStoreSeldom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &brokenStore{Store: memory.NewServers()}
		a, err := servers.Join(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantLead(t, a, true)
		store.takes = 0
		for range 40 {
			time.Sleep(100 * time.Millisecond)
			wantLead(t, a, true)
		}
		if store.takes != 0 {
			t.Errorf("%d calls in the first third of the lease, want none", store.takes)
		}
		if l, leads, err := a.Lead(t.Context(), "x", []byte("new")); !leads || err != nil || !bytes.Equal(l.Data, []byte("new")) || store.takes != 1 {
			t.Errorf("Lead with new data = %q, %v, %v after %d calls", l.Data, leads, err, store.takes)
		}
	})
}

func TestLeaderWithoutAStoreLeadsUntilItsLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &brokenStore{Store: memory.NewServers()}
		a, err := servers.Join(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		wantLead(t, a, true)
		store.broken = true
		time.Sleep(10 * time.Second)
		wantLead(t, a, true)
		time.Sleep(5 * time.Second)
		if _, leads, err := a.Lead(t.Context(), "x", nil); leads || err == nil {
			t.Errorf("Lead = %v, %v after the end of the lease, want an error", leads, err)
		}
	})
}

func TestServersHaveTheSameSecret(t *testing.T) {
	store := memory.NewServers()
	var list [2][]byte
	for i := range list {
		s, err := servers.Join(t.Context(), store, nil)
		if err != nil {
			t.Fatal(err)
		}
		if list[i], err = s.Secret(t.Context(), "workers"); err != nil || len(list[i]) != 32 {
			t.Fatalf("Secret = %d bytes, %v", len(list[i]), err)
		}
	}
	if !bytes.Equal(list[0], list[1]) {
		t.Error("the secrets differ")
	}
}
