package disk

import (
	"errors"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
)

// repairedStore repairs a store that does not open, and opens it. Check must report what
// Repair then reports, and a second Repair must find nothing.
func repairedStore(t *testing.T, fs *vfs.MemFS) (*Store, Report) {
	t.Helper()
	before, err := Check(t.Context(), "store", inMemory(fs))
	must(t, err)
	r, err := Repair(t.Context(), "store", inMemory(fs))
	must(t, err)
	if linesOf(&before) != linesOf(&r) {
		t.Errorf("Check says\n%s\nand Repair\n%s", linesOf(&before), linesOf(&r))
	}
	again, err := Repair(t.Context(), "store", inMemory(fs))
	must(t, err)
	if len(again.Faults) > 0 {
		t.Errorf("a second Repair finds %q", again.Faults)
	}
	return openForTest(t, "store", inMemory(fs)), r
}

// linesOf returns a report as lines.
func linesOf(r *Report) string {
	var lines []string
	for _, f := range r.Faults {
		lines = append(lines, f.String())
	}
	return strings.Join(lines, "\n")
}

// withoutManifest returns a store that has lost its manifests.
func withoutManifest(t *testing.T, closed bool) (mem *vfs.MemFS, want string) {
	t.Helper()
	mem, want = furnished(t, closed)
	for _, name := range filesIn(t, mem, manifestPrefix) {
		if !strings.Contains(name, "marker.") {
			must(t, mem.Remove(name))
		}
	}
	return mem, want
}

// A store without its manifest is rebuilt from its tables and logs.
func TestAStoreWithoutManifestIsMadeOfItsTables(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, want := withoutManifest(t, closed)
			s, r := repairedStore(t, mem)
			if len(r.Faults) != 1 || r.Faults[0].Key != "MANIFEST" {
				t.Errorf("Repair names %q, want the manifest alone", r.Faults)
			}
			if diff := diffLines(want, stateText(t, s)); diff != "" {
				t.Errorf("what is in the store (-want +got):\n%s", diff)
			}
			for _, sub := range []string{asideName, rebuiltName} {
				if _, err := mem.Stat("store/" + sub); err == nil {
					t.Errorf("%s is left", sub)
				}
			}
		})
	}
}

// The replacement of the old database by the new one continues after a power failure.
func TestTheExchangeOfADatabaseGoesOnAfterACrash(t *testing.T) {
	suite.SkipUnlessLong(t)
	mem, want := withoutManifest(t, true)
	for moves := range 60 {
		fs := cloned(t, mem)
		left := moves
		_, err := Repair(t.Context(), "store", inMemory(&stoppingFS{FS: fs, left: &left}))
		s, _ := repairedStore(t, cloned(t, fs))
		if diff := diffLines(want, stateText(t, s)); diff != "" {
			t.Errorf("after %d renames: what is in the store (-want +got):\n%s", moves, diff)
		}
		if err == nil {
			return
		}
	}
	t.Error("60 renames were not enough")
}

var errStopped = errors.New("stopped")

// A stoppingFS fails after a number of renames.
type stoppingFS struct {
	vfs.FS
	left *int
}

func (f *stoppingFS) Rename(from, to string) error {
	if *f.left--; *f.left < 0 {
		return errStopped
	}
	return f.FS.Rename(from, to)
}

// theLog returns the name of the commit log of a store.
func theLog(t *testing.T, fs vfs.FS) string {
	t.Helper()
	var log string
	for _, name := range logsIn(t, fs) {
		if strings.HasSuffix(name, ".log") {
			log = name
		}
	}
	return log
}

// Repair drops and reports the damaged part of a log.
func TestADamagedLogIsRepaired(t *testing.T) {
	suite.SkipUnlessLong(t)
	mem, want := furnished(t, false)
	facts, log := factsOf(want), theLog(t, mem)
	rng := rand.New(rand.NewPCG(2, 0))
	for n := range 20 {
		fs := cloned(t, mem)
		b := readFile(t, fs, log)
		at, size := rng.IntN(len(b)*3/4), 1+n%5*100
		for k := range size {
			b[at+k] ^= byte(1 + rng.IntN(255))
		}
		writeFile(t, fs, log, b)
		s, r := repairedStore(t, fs)
		got := settledFacts(t, s)
		missing := 0
		for of := range facts {
			if got[of] == nil {
				missing++
			}
		}
		t.Logf("%d bytes at %d: %d faults, %d records are gone", size, at, len(r.Faults), missing)
		if missing > 0 && len(r.Faults) == 0 {
			t.Errorf("%d bytes at %d: %d records are gone, and nothing is named", size, at, missing)
		}
	}
}
