package disk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

func gpuClaim(n int) []pods.Claim {
	return []pods.Claim{{Resource: fmt.Sprint("gpu/", n), Units: 1, Limit: 1}}
}

func gpuReservation(holder string, gpu int) pods.Reservation {
	return pods.Reservation{
		Holder: holder, Image: "img", GPU: &pods.GPU{ID: "type", Count: 1},
		Placement: pods.Placement{Host: "h", DataCenter: "D", Claims: gpuClaim(gpu), Devices: []string{fmt.Sprint(gpu)}},
	}
}

// all returns the claims of all pods and reservations in a store.
func all(t testing.TB, s *Store) map[string]int {
	t.Helper()
	got := map[string]int{}
	for p, err := range s.Pods().List(t.Context(), pods.Filter{}) {
		must(t, err)
		got["pod "+p.ID] = gpuOf(p.Placement)
	}
	for h, err := range s.Pods().Reservations(t.Context()) {
		must(t, err)
		got["hold "+h.Holder] = gpuOf(h.Placement)
	}
	return got
}

func gpuOf(p pods.Placement) (n int) {
	if len(p.Claims) == 1 {
		_, _ = fmt.Sscanf(p.Claims[0].Resource, "gpu/%d", &n)
	}
	return n
}

func TestWhatIsHeldIsThereAfterReopeningAndInABackup(t *testing.T) {
	s := memStore(t)
	ctx := t.Context()
	must(t, s.Pods().Reserve(ctx, gpuReservation("gone", 1)))
	must(t, s.Pods().Reserve(ctx, gpuReservation("w", 2)))
	must(t, s.Pods().Release(ctx, "gone"))
	must(t, s.Backup(ctx, "backup"))
	must(t, Restore(ctx, "backup", "restored", &s.opts))
	for _, s := range []*Store{reopen(t, s), openForTest(t, "restored", &s.opts)} {
		var got []pods.Reservation
		for h, err := range s.Pods().Reservations(ctx) {
			must(t, err)
			got = append(got, h)
		}
		if diff := cmp.Diff([]pods.Reservation{gpuReservation("w", 2)}, got); diff != "" {
			t.Errorf("Holds (-want +got):\n%s", diff)
		}
		if err := s.Pods().Create(ctx, &pods.Pod{ID: "p", Placement: pods.Placement{Claims: gpuClaim(2)}}); !errors.Is(err, pods.ErrNoCapacity) {
			t.Errorf("Create of a pod that wants what is held = %v, want ErrNoRoom", err)
		}
		must(t, s.Pods().Create(ctx, &pods.Pod{ID: "p", Placement: pods.Placement{Claims: gpuClaim(1)}}))
		r, err := s.Check(ctx)
		must(t, err)
		must(t, r.Err())
	}
}

func TestCheckFindsAHoldThatCannotBeRead(t *testing.T) {
	s := memStore(t)
	must(t, s.Pods().Reserve(t.Context(), gpuReservation("w", 1)))
	e, err := s.engine()
	must(t, err)
	must(t, e.commit(func(b *pebble.Batch) { put(b, textKey(keyReservation, "w"), []byte(`{"Holder":1}`)) }, nil))
	r, err := s.Check(t.Context())
	must(t, err)
	if len(r.Faults) != 1 || !errors.Is(r.Err(), ErrDamaged) {
		t.Errorf("Check found %+v, want the hold", r.Faults)
	}
}

// A claimRun creates and deletes pods, and makes and releases reservations, in a file system
// that can lose power before any write. It makes one call at a time. So a crash leaves the
// state from before the current call or the state after it.
type claimRun struct {
	t   *testing.T
	rng *rand.Rand
	fs  *vfs.MemFS

	mu           sync.Mutex
	before, then map[string]int
	ops          int
	points       []claimPoint
}

type claimPoint struct {
	fs           *vfs.MemFS
	before, then map[string]int
}

func (c *claimRun) hook(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ops++
	cfg := vfs.CrashCloneCfg{}
	if c.ops%2 == 0 {
		cfg = vfs.CrashCloneCfg{UnsyncedDataPercent: 1 + c.ops*7%100, RNG: rand.New(rand.NewPCG(1, uint64(c.ops)))}
	}
	c.points = append(c.points, claimPoint{c.fs.CrashClone(cfg), c.before, c.then})
	return nil
}

// step makes one call and compares its result with the model.
func (c *claimRun) step(s *Store) {
	ctx := c.t.Context()
	gpu, n := 1+c.rng.IntN(3), c.rng.IntN(4)
	name := fmt.Sprint([]string{"pod ", "hold "}[n%2], c.rng.IntN(4))
	then := maps.Clone(c.before)
	_, there := then[name]
	taken := false
	for other, g := range then {
		taken = taken || g == gpu && (other != name || n == 0)
	}
	var call func() error
	want := error(nil)
	id := name[len(name)-1:]
	switch {
	case n == 0 && there:
		want = pods.ErrExists
		fallthrough
	case n == 0:
		call = func() error {
			return s.Pods().Create(ctx, &pods.Pod{ID: id, Placement: pods.Placement{Claims: gpuClaim(gpu)}})
		}
	case n == 1:
		call = func() error { return s.Pods().Reserve(ctx, gpuReservation(id, gpu)) }
	case n == 2:
		call = func() error { return s.Pods().Delete(ctx, id, nil) }
		if !there {
			want = pods.ErrNotFound
		}
	default:
		call = func() error { return s.Pods().Release(ctx, id) }
	}
	switch {
	case n < 2 && want == nil && taken:
		want = pods.ErrNoCapacity
	case n < 2 && want == nil:
		then[name] = gpu
	case n >= 2:
		delete(then, name)
	}
	c.mu.Lock()
	c.then = then
	c.mu.Unlock()
	if err := call(); !errors.Is(err, want) {
		c.t.Fatalf("call %d of %q with GPU %d = %v, want %v; there is %v", n, name, gpu, err, want, c.before)
	}
	c.mu.Lock()
	c.before = then
	c.mu.Unlock()
}

func TestNothingIsGivenTwiceOverACrash(t *testing.T) {
	suite.SkipUnlessLong(t)
	for seed := range uint64(4) {
		c := &claimRun{t: t, rng: rand.New(rand.NewPCG(seed, 3)), fs: vfs.NewCrashableMem()}
		s, err := Open(t.Context(), "store", &Options{fs: errorfs.Wrap(c.fs, errorfs.InjectorFunc(c.hook)), Key: testKey, Ballast: -1})
		must(t, err)
		c.before = map[string]int{}
		for range 60 {
			c.step(s)
		}
		must(t, s.Close())
		if len(c.points) < 60 {
			t.Errorf("seed %d: %d crash points, want one for each change at least", seed, len(c.points))
		}
		for i, p := range c.points {
			s, err := Open(t.Context(), "store", inMemory(p.fs))
			must(t, err)
			got := all(t, s)
			if !maps.Equal(got, p.before) && !maps.Equal(got, p.then) {
				t.Fatalf("seed %d, crash %d: there is %v, want %v or %v", seed, i, got, p.before, p.then)
			}
			for gpu := 1; gpu <= 3; gpu++ {
				want := int64(0)
				for _, g := range got {
					if g == gpu {
						want++
					}
				}
				if used, err := s.Pods().Claimed(t.Context(), gpuClaim(gpu)[0].Resource); err != nil || used != want || used > 1 {
					t.Fatalf("seed %d, crash %d: GPU %d is used %d times, %v, want %d of %v", seed, i, gpu, used, err, want, got)
				}
			}
			must(t, s.Close())
		}
	}
}
