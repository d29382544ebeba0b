package disk

import (
	"bytes"
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

// repaired fails unless a store is refused as damaged, a check and a repair name what is
// missing, and the store opens after the repair.
func repaired(t *testing.T, fs *vfs.MemFS, log, what string) {
	t.Helper()
	_, err := Open(t.Context(), "store", inMemory(cloned(t, fs)))
	if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), log) {
		t.Errorf("%s: Open = %v, want ErrDamaged, and %s", what, err, log)
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
	return slices.DeleteFunc(logsIn(t, fs), func(name string) bool { return !hasEnd(fs.PathBase(name)) })
}

func TestALogThatIsMissingWithItsMirrorIsNoticed(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, _ := furnished(t, closed)
			for _, log := range commitLogs(t, mem) {
				fs := cloned(t, mem)
				must(t, errors.Join(fs.Remove(log), fs.Remove(log+mirrorSuffix)))
				repaired(t, fs, fs.PathBase(log), "without "+log)
			}
		})
	}
}

func TestDamageAtTheEndOfAClosedLogAndItsMirrorIsNoticed(t *testing.T) {
	mem, want := furnished(t, true)
	for _, log := range commitLogs(t, mem) {
		b := readFile(t, mem, log+mirrorSuffix)
		for what, ruin := range map[string]func(b []byte) []byte{
			"a changed end": func(b []byte) []byte { copy(b[len(b)-40:], bytes.Repeat([]byte{0x5a}, 20)); return b },
			"a zeroed end":  func(b []byte) []byte { clear(b[len(b)-40:]); return b },
			"a missing end": func(b []byte) []byte { return b[:len(b)-40] },
			"no content":    func([]byte) []byte { return nil },
		} {
			fs := cloned(t, mem)
			ruined := ruin(bytes.Clone(b))
			writeFile(t, fs, log, append(bytes.Clone(ruined), make([]byte, aheadBytes)...))
			writeFile(t, fs, log+mirrorSuffix, ruined)
			repaired(t, fs, fs.PathBase(log), what)
		}
		for what, text := range map[string]string{"empty": "", "cut off": "12", "of another format": "123456789 00000000\n"} {
			fs := cloned(t, mem)
			writeFile(t, fs, log+endSuffix, []byte(text))
			unchanged(t, fs, want, "with an end file that is "+what)
		}
		must(t, mem.Remove(log+endSuffix))
		unchanged(t, mem, want, "without an end file")
	}
}

func TestEndFilesGoWithTheirLogs(t *testing.T) {
	mem, want := furnished(t, true)
	for range 3 {
		unchanged(t, mem, want, "again")
		s, err := Open(t.Context(), "store", inMemory(mem))
		must(t, err)
		must(t, s.Close())
		if logs, ends := commitLogs(t, mem), filesIn(t, mem, endSuffix); len(logs) != len(ends) {
			t.Errorf("there are the logs %q, and the end files %q", logs, ends)
		}
	}
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
	ends, err := filepath.Glob(filepath.Join(dir, "*"+endSuffix))
	if err != nil || len(ends) == 0 {
		t.Errorf("there are no end files: %v", err)
	}
}
