package billing_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/billing"
)

// A ledger is a service over a store, at a given time.
type ledger struct {
	*billing.Service
	t     *testing.T
	store billing.Store
	clock *clock.Manual
}

func newLedger(t *testing.T, store billing.Store, now string) *ledger {
	c := clock.NewManual(at(now))
	return &ledger{billing.New(store, c), t, store, c}
}

// restart returns the ledger of a new process that begins at now.
func (l *ledger) restart(now string) *ledger { return newLedger(l.t, l.store, now) }

// see calls Observe at now with workers of endpoint e.
func (l *ledger) see(now string, uses ...pods.Usage) {
	l.t.Helper()
	if err := l.clock.Advance(l.t.Context(), at(now).Sub(l.clock.Now())); err != nil {
		l.t.Fatal(err)
	}
	if err := l.Observe(l.t.Context(), pods.WorkerUsage, at(now), uses); err != nil {
		l.t.Fatal(err)
	}
}

// hours returns the sum of each hour that has records, by its start.
func (l *ledger) hours(owner string) map[string]float64 {
	l.t.Helper()
	r, err := l.Report(l.t.Context(), owner, billing.Query{Size: billing.Hour, Kind: pods.WorkerUsage, ID: "e", Start: at("2026-03-05T00:00:00Z")})
	if err != nil {
		l.t.Fatal(err)
	}
	sums := make(map[string]float64)
	for _, x := range r.Records {
		sums[x.Start.Format("15:04")] = x.Amounts.Round().Total()
	}
	return sums
}

func (l *ledger) want(what string, want map[string]float64) {
	l.t.Helper()
	if diff := cmp.Diff(want, l.hours("alice")); diff != "" {
		l.t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// on is a worker of alice's endpoint e since from, with a GPU for 3.6 USD an hour.
func on(worker, from string) pods.Usage {
	return pods.Usage{Owner: "alice", ID: "e", Part: worker, From: at(from), GPU: 3.6}
}

func until(u pods.Usage, to string) pods.Usage {
	u.To = at(to)
	return u
}

func TestWorkersOfOneEndpointAddUpExactlyAtTheBordersOfBuckets(t *testing.T) {
	l := newLedger(t, memory.NewBilling(), "2026-03-05T10:00:00Z")
	a, b, c := on("a", "2026-03-05T10:00:00Z"), on("b", "2026-03-05T10:00:00Z"), on("c", "2026-03-05T10:59:59Z")
	l.see("2026-03-05T10:00:00Z", a, b)
	l.see("2026-03-05T11:00:00Z", until(a, "2026-03-05T11:00:00Z"), b, c)
	l.want("on the hour", map[string]float64{"10:00": 7.201})
	l.see("2026-03-05T11:00:01Z", b, c)
	l.want("a second later", map[string]float64{"10:00": 7.201, "11:00": 0.002})
	l.see("2026-03-05T12:00:00Z", until(b, "2026-03-05T12:00:00Z"), until(c, "2026-03-05T11:30:00Z"))
	want := map[string]float64{"10:00": 7.201, "11:00": 5.4}
	l.want("in the end", want)
	l.see("2026-03-05T13:00:00Z")
	l.want("later", want)
	l.restart("2026-03-05T14:00:00Z").want("after a restart", want)
	if sums := l.hours("bob"); len(sums) != 0 {
		t.Errorf("bob is billed %v for alice's workers", sums)
	}
}

func TestWhatWentOnAtACrashCountsAsFarAsItWasSeen(t *testing.T) {
	l := newLedger(t, memory.NewBilling(), "2026-03-05T10:00:00Z")
	gone, stays := on("gone", "2026-03-05T10:00:00Z"), on("stays", "2026-03-05T10:00:00Z")
	l.see("2026-03-05T10:00:00Z", gone, stays)
	l.see("2026-03-05T10:29:30Z", gone, stays)
	if err := l.clock.Advance(t.Context(), 40*time.Second); err != nil {
		t.Fatal(err)
	}
	l.want("before it", map[string]float64{"10:00": 2 * 3.6 * 1810 / 3600})

	l = l.restart("2026-03-05T12:00:00Z")
	l.want("before anybody has looked", map[string]float64{"10:00": 2 * 3.6 * 1770 / 3600})
	found := pods.Usage{ID: "e", Part: "stays", From: at("2026-03-05T12:00:00Z"), GPU: 99}
	fresh := on("fresh", "2026-03-05T12:00:00Z")
	l.see("2026-03-05T12:00:00Z", found, fresh)
	l.want("after it", map[string]float64{"10:00": 3.6 + 3.6*1770/3600, "11:00": 3.6})
	l.see("2026-03-05T12:30:00Z", until(found, "2026-03-05T12:30:00Z"), fresh)
	l.want("in the end", map[string]float64{"10:00": 3.6 + 3.6*1770/3600, "11:00": 3.6, "12:00": 3.6})

	l = l.restart("2026-03-05T13:30:00Z")
	l.see("2026-03-05T13:30:00Z")
	l.want("after another one", map[string]float64{"10:00": 3.6 + 3.6*1770/3600, "11:00": 3.6, "12:00": 3.6})
	if list, err := l.store.Open(t.Context(), pods.WorkerUsage); err != nil || len(list) != 0 {
		t.Errorf("%v, %v are open when nothing goes on", list, err)
	}
}

func TestWhatIsNobodysIsNotKept(t *testing.T) {
	l := newLedger(t, memory.NewBilling(), "2026-03-05T10:00:00Z")
	u := on("w", "2026-03-05T10:00:00Z")
	u.Owner = ""
	l.see("2026-03-05T10:00:00Z", u)
	l.see("2026-03-05T11:00:00Z", until(u, "2026-03-05T11:00:00Z"))
	if sums := l.hours(""); len(sums) != 0 {
		t.Errorf("nobody is billed %v", sums)
	}
}

// A full store refuses every write.
type full struct {
	billing.Store
	err error
}

func (s *full) Record(ctx context.Context, uses []pods.Usage) error {
	if s.err != nil {
		return s.err
	}
	return s.Store.Record(ctx, uses)
}

func TestACallOfObserveThatFailsIsMendedByTheNext(t *testing.T) {
	store := &full{Store: memory.NewBilling()}
	l := newLedger(t, store, "2026-03-05T10:00:00Z")
	w := on("w", "2026-03-05T10:00:00Z")
	l.see("2026-03-05T10:00:00Z", w)
	store.err = errors.New("the disk is full")
	ended := until(w, "2026-03-05T10:30:00Z")
	if err := l.Observe(t.Context(), pods.WorkerUsage, at("2026-03-05T10:30:00Z"), []pods.Usage{ended}); !errors.Is(err, store.err) {
		t.Errorf("Observe = %v, want the store's error", err)
	}
	store.err = nil
	l.see("2026-03-05T11:00:00Z", ended)
	l.want("in the end", map[string]float64{"10:00": 1.8})
}

// shared returns the ledger of one of several servers over a store.
func shared(t *testing.T, store billing.Store, reporter, now string) *ledger {
	c := clock.NewManual(at(now))
	return &ledger{billing.NewShared(store, c, reporter), t, store, c}
}

func TestServerDoesNotEndWhatAnotherOneObserves(t *testing.T) {
	store := memory.NewBilling()
	a, b := shared(t, store, "a", "2026-03-05T10:00:00Z"), shared(t, store, "b", "2026-03-05T10:00:00Z")
	ofA, ofB := on("a", "2026-03-05T10:00:00Z"), on("b", "2026-03-05T10:00:00Z")
	for _, now := range []string{"2026-03-05T10:00:00Z", "2026-03-05T10:04:00Z", "2026-03-05T10:08:00Z", "2026-03-05T10:12:00Z"} {
		a.see(now, ofA)
		b.see(now, ofB)
	}
	a.see("2026-03-05T10:13:00Z", until(ofA, "2026-03-05T10:13:00Z"))
	b.see("2026-03-05T10:15:00Z", ofB)
	want := map[string]float64{"10:00": 3.6 * (13 + 15) / 60}
	a.see("2026-03-05T10:15:00Z")
	a.want("at the one", want)
	b.want("at the other", want)

	// b dies, and a ends what it had; another server of the same workers continues them.
	a.see("2026-03-05T10:16:00Z")
	c := shared(t, store, "c", "2026-03-05T10:17:00Z")
	c.see("2026-03-05T10:17:00Z", pods.Usage{ID: "e", Part: "b", From: at("2026-03-05T10:17:00Z"), GPU: 99})
	a.see("2026-03-05T10:18:00Z")
	a.want("after it was continued", map[string]float64{"10:00": 3.6 * (13 + 17) / 60})
	a.see("2026-03-05T10:30:00Z")
	if list, err := store.Open(t.Context(), pods.WorkerUsage); err != nil || len(list) != 0 {
		t.Errorf("%v, %v are open when nobody observes them", list, err)
	}
	a.want("when nobody observes it", map[string]float64{"10:00": 3.6 * (13 + 17) / 60})
}
