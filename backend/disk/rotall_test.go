package disk

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
)

// A directory is damaged at random. Nothing that the store then returns is wrong, the store
// can be repaired, and the repair reports what is lost. Random files of every kind have bits
// flipped, have sectors zeroed, are truncated, or are removed. With PODYARD_LONG there are 2,000
// trials. PODYARD_SEED repeats a run.
//
// One kind of damage looks the same as a write that was interrupted by a power failure: to the last
// records of the log that is in use, or of a manifest. The test does not do that.
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
	name := pick(rng, names)
	if _, ok := isLog(name); ok {
		return rotLog(t, rng, fs, "store/"+name)
	}
	return rotFile(t, rng, fs, "store/"+name)
}

// rotLog damages a log where that is no interrupted write.
func rotLog(t *testing.T, rng *rand.Rand, fs *vfs.MemFS, log string) string {
	t.Helper()
	b, proved := readFile(t, fs, log), int(scanned(t, fs, log).proved)
	if proved == 0 {
		return "nothing"
	}
	did := log
	switch rng.IntN(3) {
	case 0:
		for range 1 + rng.IntN(16) {
			at := rng.IntN(8 * proved)
			b[at/8] ^= 1 << (at % 8)
			did += fmt.Sprintf(" bit %d", at)
		}
	case 1:
		at := rng.IntN(proved) &^ 511
		clear(b[at:min(proved, at+512<<rng.IntN(4))])
		did += fmt.Sprintf(" zeroed at %d", at)
	default:
		at := rng.IntN(proved)
		for k := at; k < min(proved, at+1<<rng.IntN(10)); k++ {
			b[k] ^= byte(1 + rng.IntN(255))
		}
		did += fmt.Sprintf(" changed at %d", at)
	}
	writeFile(t, fs, log, b)
	return did
}

// Directories of earlier versions have one flipped bit, in a file of any kind.
func TestADirectoryOfAnEarlierVersionWithAFlippedBitIsNeverWrong(t *testing.T) {
	trials := 12
	if longTime() > 0 {
		trials = 1000
	}
	for _, dir := range fixtures(t) {
		t.Run(filepath.Base(dir), func(t *testing.T) {
			mem := unpacked(t, dir)
			want := factsOf(stateText(t, openForTest(t, "store", inMemory(cloned(t, mem)))))
			names, err := mem.List("store")
			must(t, err)
			slices.Sort(names)
			var sum rotting
			for n := range trials {
				rng, fs := rand.New(rand.NewPCG(9, uint64(n))), cloned(t, mem)
				name := "store/" + pick(rng, names)
				bits := 8 * len(readFile(t, fs, name))
				if _, ok := isLog(fs.PathBase(name)); ok {
					bits = 8 * int(scanned(t, fs, name).proved)
				}
				if bits == 0 {
					continue
				}
				b, at := readFile(t, fs, name), rng.IntN(bits)
				b[at/8] ^= 1 << (at % 8)
				writeFile(t, fs, name, b)
				if v := sum.trial(t, fs, want); len(v) > 0 {
					t.Errorf("bit %d of %s:\n%s", at, name, strings.Join(v, "\n"))
				}
			}
			t.Logf("%d trials: nothing was lost in %d of them, %d records in the others; %d were refused until the repair", trials, sum.whole, sum.lost, sum.refused)
		})
	}
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
