package disk

import (
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
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

// The names of markers say which manifest is in use. The database removes the tables of a
// directory without markers.
func TestAMarkerThatIsMissingIsPutBack(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, want := furnished(t, closed)
			markers := filesIn(t, mem, "marker.")
			for _, name := range markers {
				fs := cloned(t, mem)
				must(t, fs.Remove(name))
				unchanged(t, fs, want, "without "+name)
			}
			for _, name := range markers {
				must(t, mem.Remove(name))
			}
			unchanged(t, mem, want, "without markers")
		})
	}
}

// A missing log or manifest is restored from its mirror. Options files and mirrors are not
// needed.
func TestALogThatIsMissingIsMadeOfItsMirror(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, want := furnished(t, closed)
			names := logsIn(t, mem)
			for _, name := range append(names, filesIn(t, mem, "OPTIONS-")...) {
				fs := cloned(t, mem)
				must(t, fs.Remove(name))
				unchanged(t, fs, want, "without "+name)
			}
		})
	}
}

// A store whose manifest and mirror are missing is not opened as an empty store.
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

// A missing table is restored from its parity file, or all its records are lost.
func TestATableThatIsMissingIsIsolated(t *testing.T) {
	mem, want := furnished(t, true)
	for _, parity := range []bool{true, false} {
		for _, name := range tablesIn(t, mem, "store") {
			fs := cloned(t, mem)
			must(t, fs.Remove(name))
			if !parity {
				must(t, fs.Remove(name+paritySuffix))
			}
			var sum rotting
			if v := sum.trial(t, fs, factsOf(want)); len(v) > 0 {
				t.Errorf("without %s:\n%s", name, strings.Join(v, "\n"))
			}
		}
	}
}
