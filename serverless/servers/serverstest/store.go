// Package serverstest is what every servers.Store must do.
package serverstest

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/servers"
)

// start is the present of every rule.
var start = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

// TestStore runs every rule on stores that open returns: two of one new, empty store, as two
// servers have them. They may be the same value.
func TestStore(t *testing.T, open func(t *testing.T) [2]servers.Store) {
	for _, r := range rules {
		suite.Run(t, r.name, r.why, func(t *testing.T) {
			list := open(t)
			r.run(&fixture{T: t, a: list[0], b: list[1]})
		})
	}
}

type rule struct {
	name, why string
	run       func(k *fixture)
}

type fixture struct {
	*testing.T
	a, b servers.Store
}

// after is an instant in seconds from the present.
func after(seconds int) time.Time { return start.Add(time.Duration(seconds) * time.Second) }

func (k *fixture) take(s servers.Store, now int, name, holder string, until int, data ...byte) servers.Lease {
	k.Helper()
	l, err := s.Take(k.Context(), after(now), servers.Lease{Name: name, Holder: holder, Until: after(until), Data: data})
	if err != nil {
		k.Fatalf("Take of %q by %q = %v, want nil", name, holder, err)
	}
	return l
}

func (k *fixture) want(what string, want, got any) {
	k.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateApproxTime(0)); diff != "" {
		k.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func (k *fixture) wantHolder(l servers.Lease, holder string, epoch uint64) {
	k.Helper()
	k.want("holder of "+l.Name, []any{holder, epoch}, []any{l.Holder, l.Epoch})
}

func (k *fixture) names(s servers.Store, now int, prefix string) (names []string) {
	k.Helper()
	list, err := s.Leases(k.Context(), after(now), prefix)
	if err != nil {
		k.Fatalf("Leases = %v, want nil", err)
	}
	for _, l := range list {
		names = append(names, l.Name)
	}
	return names
}

func (k *fixture) reserve(s servers.Store, now int, key string, n, limit int64) int64 {
	k.Helper()
	got, err := s.Reserve(k.Context(), after(now), after(60), key, n, limit)
	if err != nil {
		k.Fatalf("Reserve = %v, want nil", err)
	}
	return got
}

var rules = []rule{
	{"ALeaseHasOneHolder", "while a lease lasts, its holder has it and another one is shown it", func(k *fixture) {
		mine := k.take(k.a, 0, "x", "a", 10, 'd')
		if mine.Epoch == 0 {
			k.Error("the epoch is 0")
		}
		k.want("the lease", servers.Lease{Name: "x", Holder: "a", Epoch: mine.Epoch, Until: after(10), Data: []byte("d")}, mine)
		k.want("what another one is shown", mine, k.take(k.b, 9, "x", "b", 30, 'e'))
		if other := k.take(k.b, 9, "y", "b", 30); other.Holder != "b" {
			k.Errorf("another lease is %+v, want one of b", other)
		}
	}},
	{"ARenewalKeepsTheEpoch", "the holder of a lease extends it and changes its data under the same epoch", func(k *fixture) {
		mine := k.take(k.a, 0, "x", "a", 10)
		again := k.take(k.a, 9, "x", "a", 20, 'n')
		k.wantHolder(again, "a", mine.Epoch)
		k.want("what another one is shown", again, k.take(k.b, 19, "x", "b", 30))
	}},
	{"ALeaseThatIsOverIsTaken", "from its end on a lease goes to whoever takes it, under a greater epoch", func(k *fixture) {
		mine := k.take(k.a, 0, "x", "a", 10)
		other := k.take(k.b, 10, "x", "b", 20)
		if other.Holder != "b" || other.Epoch <= mine.Epoch {
			k.Errorf("the lease after epoch %d is %+v", mine.Epoch, other)
		}
		k.wantHolder(k.take(k.a, 11, "x", "a", 30), "b", other.Epoch)
	}},
	{"ALateRenewalHasANewEpoch", "a holder that comes after the end of its lease has a new one, because it may have been somebody else's", func(k *fixture) {
		mine := k.take(k.a, 0, "x", "a", 10)
		if late := k.take(k.a, 10, "x", "a", 20); late.Epoch <= mine.Epoch {
			k.Errorf("the epoch is %d, want one above %d", late.Epoch, mine.Epoch)
		}
	}},
	{"EpochsGrowOverAllNames", "an epoch is greater than every one before, also after a release", func(k *fixture) {
		last := uint64(0)
		for n := range 10 {
			s := [...]servers.Store{k.a, k.b}[n%2]
			l := k.take(s, 0, fmt.Sprint("x", n%3), fmt.Sprint("h", n), 10)
			if l.Epoch <= last {
				k.Errorf("epoch %d after %d, want a greater one", l.Epoch, last)
			}
			last = l.Epoch
			if err := k.a.Release(k.Context(), l); err != nil {
				k.Fatalf("Release = %v, want nil", err)
			}
		}
	}},
	{"OnlyTheHolderReleases", "a release with another holder or epoch changes nothing", func(k *fixture) {
		l := k.take(k.a, 0, "x", "a", 10)
		for _, other := range []servers.Lease{{Name: "x", Holder: "b", Epoch: l.Epoch}, {Name: "x", Holder: "a", Epoch: l.Epoch + 1}, {Name: "unknown", Holder: "a"}} {
			if err := k.b.Release(k.Context(), other); err != nil {
				k.Fatalf("Release = %v, want nil", err)
			}
		}
		k.want("leases", []string{"x"}, k.names(k.a, 0, ""))
		if err := k.b.Release(k.Context(), l); err != nil {
			k.Fatalf("Release = %v, want nil", err)
		}
		k.want("leases", []string(nil), k.names(k.a, 0, ""))
	}},
	{"LeasesAreListed", "leases that last are listed by prefix, in the order of their names, on any server", func(k *fixture) {
		k.take(k.a, 0, "p/b", "a", 10)
		k.take(k.a, 0, "p/a", "a", 20)
		k.take(k.b, 0, "q/a", "b", 20)
		k.take(k.b, 0, "p%c", "b", 20)
		k.want("all", []string{"p%c", "p/a", "p/b", "q/a"}, k.names(k.b, 0, ""))
		k.want("by prefix", []string{"p/a", "p/b"}, k.names(k.b, 9, "p/"))
		k.want("later", []string{"p/a"}, k.names(k.a, 10, "p/"))
		k.want("a prefix is no pattern", []string(nil), k.names(k.a, 10, "p_"))
	}},
	{"BadLeasesAreRefused", "a lease without name or holder, or too long a one, is refused and changes nothing", func(k *fixture) {
		for _, l := range []servers.Lease{
			{Holder: "a"}, {Name: "x"}, {Name: strings.Repeat("x", servers.MaxName+1), Holder: "a"},
			{Name: "x", Holder: "a", Data: make([]byte, servers.MaxData+1)},
		} {
			l.Until = after(10)
			var p *problem.Error
			if _, err := k.a.Take(k.Context(), start, l); !errors.As(err, &p) || p.Kind != problem.Invalid {
				k.Errorf("Take = %v, want a fault", err)
			}
		}
		k.want("leases", []string(nil), k.names(k.a, 0, ""))
	}},
	{"OneOfManyGetsALease", "of callers that take a lease at once one gets it, and the others see which", func(k *fixture) {
		var all sync.WaitGroup
		var got, others sync.Map
		for i := range 32 {
			all.Go(func() {
				holder := fmt.Sprint("h", i)
				l, err := [...]servers.Store{k.a, k.b}[i%2].Take(k.Context(), start, servers.Lease{Name: "x", Holder: holder, Until: after(10)})
				if err != nil {
					k.Errorf("Take = %v, want nil", err)
				}
				others.Store(l.Holder, true)
				if l.Holder == holder {
					got.Store(holder, true)
				}
			})
		}
		all.Wait()
		k.want("holders, holders that are seen", []int{1, 1}, []int{size(&got), size(&others)})
	}},
	{"ACountHasALimit", "Reserve adds no more than the limit leaves, for all servers together", func(k *fixture) {
		k.want("granted", []int64{6, 4, 0}, []int64{k.reserve(k.a, 0, "c", 6, 10), k.reserve(k.b, 1, "c", 6, 10), k.reserve(k.a, 2, "c", 1, 10)})
		k.want("another count", int64(10), k.reserve(k.b, 0, "d", 10, 10))
		k.want("a higher limit", int64(5), k.reserve(k.b, 0, "c", 9, 15))
		k.want("a lower limit", int64(0), k.reserve(k.b, 0, "c", 1, 5))
	}},
	{"ACountIsGivenBack", "a negative n gives back, down to 0", func(k *fixture) {
		k.reserve(k.a, 0, "c", 6, 10)
		k.want("given back", []int64{-4, -2, 0}, []int64{k.reserve(k.b, 0, "c", -4, 10), k.reserve(k.b, 0, "c", -4, 10), k.reserve(k.b, 0, "c", -4, 10)})
		k.want("granted", int64(10), k.reserve(k.a, 0, "c", 99, 10))
	}},
	{"ACountBeginsAgain", "from its end on a count is 0", func(k *fixture) {
		k.reserve(k.a, 0, "c", 10, 10)
		k.want("before the end", int64(0), k.reserve(k.b, 59, "c", 1, 10))
		got, err := k.b.Reserve(k.Context(), after(60), after(120), "c", 7, 10)
		k.want("after the end", []any{int64(7), nil}, []any{got, err})
	}},
	{"ManyReserveNoMoreThanTheLimit", "callers that reserve at once get the limit in all", func(k *fixture) {
		var all sync.WaitGroup
		var sum atomic.Int64
		for i := range 32 {
			all.Go(func() {
				n, err := [...]servers.Store{k.a, k.b}[i%2].Reserve(k.Context(), start, after(60), "c", 7, 100)
				if err != nil {
					k.Errorf("Reserve = %v, want nil", err)
				}
				sum.Add(n)
			})
		}
		all.Wait()
		k.want("granted", int64(100), sum.Load())
	}},
	{"ASecretIsOne", "all servers get the secret that was stored first, by name", func(k *fixture) {
		get := func(s servers.Store, name, fresh string) string {
			b, err := s.Secret(k.Context(), name, []byte(fresh))
			if err != nil {
				k.Fatalf("Secret = %v, want nil", err)
			}
			return string(b)
		}
		k.want("secrets", []string{"1\x00", "1\x00", "3", "1\x00"}, []string{get(k.a, "w", "1\x00"), get(k.b, "w", "2"), get(k.b, "v", "3"), get(k.a, "w", "4")})
	}},
}

func size(m *sync.Map) (n int) {
	m.Range(func(any, any) bool { n++; return true })
	return n
}
