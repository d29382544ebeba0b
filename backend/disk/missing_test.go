package disk

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// filesIn returns the files of a store whose names contain part.
func filesIn(t *testing.T, fs vfs.FS, part string) (list []string) {
	t.Helper()
	names, err := fs.List("store")
	must(t, err)
	for _, name := range names {
		if strings.Contains(name, part) {
			list = append(list, "store/"+name)
		}
	}
	if len(list) == 0 {
		t.Fatalf("no file has %q in its name: %q", part, names)
	}
	return list
}

// unchanged opens a store and fails if something is lost.
func unchanged(t *testing.T, mem *vfs.MemFS, want, what string) {
	t.Helper()
	s, err := Open(t.Context(), "store", inMemory(cloned(t, mem)))
	if err != nil {
		t.Errorf("%s: Open = %v", what, err)
		return
	}
	if diff := diffLines(want, stateText(t, s)); diff != "" {
		t.Errorf("%s: what is in the store (-want +got):\n%s", what, diff)
	}
	must(t, s.Close())
}

// Options files are not needed.
func TestMissingOptionsDoNotMatter(t *testing.T) {
	mem, want := furnished(t, true)
	for _, name := range filesIn(t, mem, "OPTIONS-") {
		fs := cloned(t, mem)
		must(t, fs.Remove(name))
		unchanged(t, fs, want, "without "+name)
	}
}

// The name of a marker says which manifest is in use. The database takes a directory without it for
// an empty one, and removes its tables.
func TestAStoreWithoutAMarkerIsRefusedUntilItIsRepaired(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, want := furnished(t, closed)
			for _, name := range filesIn(t, mem, "marker.") {
				fs := cloned(t, mem)
				must(t, fs.Remove(name))
				if strings.Contains(name, formatMarker) {
					unchanged(t, fs, want, "without "+name)
				} else {
					repaired(t, fs, "MANIFEST", "without "+name)
				}
			}
		})
	}
}

// A store whose manifest is missing is not opened as an empty store.
func TestAStoreWithoutManifestIsRefused(t *testing.T) {
	mem, _ := furnished(t, true)
	for _, name := range filesIn(t, mem, manifestPrefix) {
		if !strings.Contains(name, "marker.") {
			must(t, mem.Remove(name))
		}
	}
	_, err := Open(t.Context(), "store", inMemory(mem))
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("Open = %v, want ErrDamaged", err)
	}
	unavailableError(t, "Open", err)
}

// All records of a missing table are lost, and no others.
func TestATableThatIsMissingIsIsolated(t *testing.T) {
	mem, want := furnished(t, true)
	for _, name := range tablesIn(t, mem, "store") {
		fs := cloned(t, mem)
		must(t, fs.Remove(name))
		var sum rotting
		if v := sum.trial(t, fs, factsOf(want)); len(v) > 0 {
			t.Errorf("without %s:\n%s", name, strings.Join(v, "\n"))
		}
	}
}

// repaired fails unless a store is refused as damaged, a check and a repair name what is
// missing, and the store opens after the repair.
func repaired(t *testing.T, fs *vfs.MemFS, log, what string) {
	t.Helper()
	_, err := Open(t.Context(), "store", inMemory(cloned(t, fs)))
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("%s: Open = %v, want ErrDamaged", what, err)
	}
	unavailableError(t, what, err)
	for _, act := range []func(context.Context, string, *Options) (Report, error){Check, Repair} {
		r, err := act(t.Context(), "store", inMemory(fs))
		if err != nil || !slices.ContainsFunc(r.Faults, func(f Fault) bool { return strings.Contains(f.String(), log) }) {
			t.Errorf("%s: the report is %q, %v, want %s in it", what, r.Faults, err, log)
		}
	}
	s, err := Open(t.Context(), "store", inMemory(fs))
	if err != nil {
		t.Errorf("%s: Open after the repair = %v", what, err)
		return
	}
	must(t, s.Close())
	r, err := Check(t.Context(), "store", inMemory(fs))
	if err != nil || r.Err() != nil {
		t.Errorf("%s: Check after the repair = %v, %v", what, r.Err(), err)
	}
}

// commitLogs returns the logs of commits.
func commitLogs(t *testing.T, fs *vfs.MemFS) []string {
	t.Helper()
	return slices.DeleteFunc(logsIn(t, fs), func(name string) bool { return !strings.HasSuffix(name, ".log") })
}

// On a real disk logs are preallocated and used again.
func TestAHealthyStoreOnADiskIsNotTakenForOneWithoutLogs(t *testing.T) {
	suite.SkipUnlessLong(t)
	dir := filepath.Join(t.TempDir(), "store")
	opts := &Options{Key: testKey, Ballast: -1, memTable: 64 << 10}
	for round := range 5 {
		s := openForTest(t, dir, opts)
		for i := range 40 {
			j := newJob(strconv.Itoa(round) + "-" + strconv.Itoa(i))
			j.Input = append(j.Input, make([]byte, 8000)...)
			must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
		}
		must(t, s.Close())
		r, err := Check(t.Context(), dir, opts)
		if err != nil || r.Err() != nil || r.Records < 40*int64(round+1) {
			t.Errorf("round %d: Check = %d records, %v, %v", round, r.Records, r.Err(), err)
		}
	}
}
