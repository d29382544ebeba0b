package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
)

// A directory is damaged at random. Nothing that the store then returns is wrong, the store
// can be repaired, and the repair reports what is lost. Random files of every kind have bits
// flipped, have sectors zeroed, are truncated, or are removed. Files are also damaged together
// with their parity files and mirrors. With PODYARD_LONG there are 2,000 trials. PODYARD_SEED
// repeats a run.
//
// One kind of damage looks the same as a write that was interrupted by a power failure: the
// last records of a log that was not closed, and of its mirror, are damaged in the same way.
// The test does not do that.
func TestADirectoryThatRotsIsNeverWrongAndCanBeRepaired(t *testing.T) {
	suite.SkipUnlessLong(t)
	trials, seed := 20, rand.Uint64()
	if longTime() > 0 {
		trials = 2000
	}
	if n, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64); err == nil {
		seed = n
	}
	t.Logf("PODYARD_SEED=%d", seed)
	var stores [2]*vfs.MemFS
	var want [2]facts
	for k := range stores {
		mem, text := furnished(t, k == 0)
		stores[k], want[k] = mem, factsOf(text)
	}
	var sum rotting
	for n := range trials {
		rng := rand.New(rand.NewPCG(seed, uint64(n)))
		fs := cloned(t, stores[n%2])
		did := rot(t, rng, fs)
		if v := sum.trial(t, fs, want[n%2]); len(v) > 0 {
			t.Fatalf("PODYARD_SEED=%d, trial %d, %s:\n%s", seed, n, did, strings.Join(v, "\n"))
		}
	}
	t.Logf("%d trials: nothing was lost in %d of them, %d records in the others; %d were refused until the repair", trials, sum.whole, sum.lost, sum.refused)
}

// rot damages a directory in a random way, and returns what it did.
func rot(t *testing.T, rng *rand.Rand, fs *vfs.MemFS) string {
	t.Helper()
	names, err := fs.List("store")
	must(t, err)
	slices.Sort(names)
	name := "store/" + pick(rng, names)
	of := strings.TrimSuffix(strings.TrimSuffix(name, paritySuffix), mirrorSuffix)
	beside := of + protection(strings.TrimPrefix(of, "store/"))
	switch {
	case beside == of || rng.IntN(3) > 0 || !slices.Contains(names, strings.TrimPrefix(beside, "store/")):
		return rotFile(t, rng, fs, name)
	case rng.IntN(2) == 0:
		return flip(t, rng, fs, of, 1+rng.IntN(3)) + ", " + flip(t, rng, fs, beside, 1+rng.IntN(3))
	case strings.HasSuffix(beside, paritySuffix):
		return rotFile(t, rng, fs, of) + ", " + rotFile(t, rng, fs, beside)
	}
	if hasEnd(fs.PathBase(of)) && rng.IntN(4) == 0 {
		must(t, errors.Join(fs.Remove(of), fs.Remove(beside)))
		return of + " and its mirror removed"
	}
	return rotBoth(t, rng, fs, of, beside)
}

func rotFile(t *testing.T, rng *rand.Rand, fs *vfs.MemFS, name string) string {
	t.Helper()
	b := readFile(t, fs, name)
	what := rng.IntN(4)
	if len(b) == 0 { // an empty file, such as a marker
		what = 3
	}
	switch what {
	case 0:
		return flip(t, rng, fs, name, 1+rng.IntN(16))
	case 1:
		at := rng.IntN(len(b)) &^ 511
		clear(b[at:min(len(b), at+512<<rng.IntN(4))])
		writeFile(t, fs, name, b)
		return fmt.Sprintf("%s zeroed at %d", name, at)
	case 2:
		n := rng.IntN(len(b))
		writeFile(t, fs, name, b[:n])
		return fmt.Sprintf("%s cut off at %d", name, n)
	}
	must(t, fs.Remove(name))
	return name + " removed"
}

// rotBoth damages a log and its mirror in the same place, but not at the end.
func rotBoth(t *testing.T, rng *rand.Rand, fs *vfs.MemFS, log, mirror string) string {
	t.Helper()
	b := readFile(t, fs, log)
	at := rng.IntN(len(b)/2 + 1)
	n := min(len(b)/2-at, 1<<rng.IntN(10))
	for k := range n {
		b[at+k] ^= byte(1 + rng.IntN(255))
	}
	writeFile(t, fs, log, b)
	writeFile(t, fs, mirror, b)
	return fmt.Sprintf("%s and its mirror: %d bytes at %d", log, n, at)
}
