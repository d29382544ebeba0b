package disk

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// furnished returns a store with records of all kinds, as a process leaves it that was killed
// or that closed it, and a list of its content.
func furnished(t *testing.T, closed bool) (mem *vfs.MemFS, want string) {
	t.Helper()
	mem = vfs.NewMem()
	m := &maker{t: t, s: openForTest(t, "store", inMemory(mem)), now: at}
	m.everything(mem)
	if closed {
		must(t, m.s.Close())
	}
	mem = cloned(t, mem)
	return mem, stateText(t, openForTest(t, "store", inMemory(cloned(t, mem))))
}

// cloned returns a copy of the directory "store".
func cloned(t testing.TB, fs *vfs.MemFS) *vfs.MemFS {
	t.Helper()
	c := vfs.NewMem()
	_, err := vfs.Clone(fs, c, "store", "store", vfs.CloneSync)
	must(t, err)
	must(t, c.RemoveAll("store/"+lockName))
	return c
}

// logsIn returns the logs of a store that the database reads.
func logsIn(t *testing.T, fs vfs.FS) (logs []string) {
	t.Helper()
	names, err := fs.List("store")
	must(t, err)
	for _, name := range names {
		if _, ok := isLog(name); ok && inUse(fs, "store", name) {
			logs = append(logs, "store/"+name)
		}
	}
	return logs
}

// scanned reads a log.
func scanned(t *testing.T, fs vfs.FS, name string) *logScan {
	t.Helper()
	number, _ := isLog(fs.PathBase(name))
	scan, err := scanLog(fs, name, number, nil)
	must(t, err)
	return scan
}

// Otherwise the content of the log behind the damage would be lost silently. Only at the end of the
// log that was in use at a crash, damage looks the same as an incomplete write.
func TestALogThatIsDamagedBeforeItsEndIsRefusedUntilItIsRepaired(t *testing.T) {
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, _ := furnished(t, closed)
			for _, name := range logsIn(t, mem) {
				whole, proved := readFile(t, mem, name), int(scanned(t, mem, name).proved)
				if proved < len(whole)/4 && !strings.HasSuffix(name, ".log") {
					t.Errorf("%d of %d bytes of %s can be damaged", proved, len(whole), name)
				}
				for at := 0; at < proved; at += 1 + proved/12 {
					rotten := bytes.Clone(whole)
					rotten[at] ^= 0x10
					fs := cloned(t, mem)
					writeFile(t, fs, name, rotten)
					what := "MANIFEST"
					if strings.HasSuffix(name, ".log") {
						what = fs.PathBase(name)
					}
					repaired(t, fs, what, fmt.Sprintf("%s with byte %d changed", name, at))
				}
			}
		})
	}
}

// A store that was closed has a mark behind the last commit.
func TestDamageToTheLastCommitOfAClosedLogIsNoticed(t *testing.T) {
	mem, _ := furnished(t, true)
	for _, log := range commitLogs(t, mem) {
		b, scan := readFile(t, mem, log), scanned(t, mem, log)
		if !scan.closed {
			t.Fatalf("%s has no mark at its end", log)
		}
		for what, ruin := range map[string]func(b []byte){
			"changed": func(b []byte) { b[len(b)-10] ^= 1 },
			"zeroed":  func(b []byte) { clear(b[len(b)-20:]) },
		} {
			fs := cloned(t, mem)
			ruined := bytes.Clone(b)
			ruin(ruined[:scan.end-syncHeader])
			writeFile(t, fs, log, ruined)
			repaired(t, fs, fs.PathBase(log), what)
		}
	}
}

// A log is closed before the next one is begun.
func TestTheEndThatALogHasLostBeforeTheNextOneIsNoticed(t *testing.T) {
	mem, _ := furnished(t, false)
	log := theLog(t, mem)
	writeFile(t, mem, "store/000999.log", nil)
	writeFile(t, mem, log, readFile(t, mem, log)[:scanned(t, mem, log).end-10])
	repaired(t, mem, mem.PathBase(log), "without its end")
}

// Damage at the end of the log that was in use at a crash looks the same as a write that was
// interrupted. It costs the last commits, and nothing before them.
func TestDamageAtTheEndOfTheLogInUseLosesTheLastCommitsOnly(t *testing.T) {
	mem := vfs.NewMem()
	s := openForTest(t, "store", inMemory(mem))
	for _, id := range []string{"a", "b", "c"} {
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(id)}))
	}
	crashed := cloned(t, mem)
	must(t, s.Close())
	logs := commitLogs(t, crashed)
	log := logs[len(logs)-1]
	end := scanned(t, crashed, log).end
	for what, ruin := range map[string]func(b []byte) []byte{
		"changed": func(b []byte) []byte { copy(b[len(b)-20:], bytes.Repeat([]byte{0x5a}, 20)); return b },
		"zeroed":  func(b []byte) []byte { clear(b[len(b)-20:]); return b },
		"missing": func(b []byte) []byte { return b[:len(b)-20] },
	} {
		fs := cloned(t, crashed)
		writeFile(t, fs, log, append(ruin(readFile(t, fs, log)[:end]), make([]byte, aheadBytes)...))
		s, err := Open(t.Context(), "store", inMemory(fs))
		if err != nil {
			t.Errorf("%s: Open = %v", what, err)
			continue
		}
		var kept []string
		for j, err := range s.Jobs().List(t.Context(), at, queue.ListQuery{Endpoint: newJob("a").Endpoint}) {
			must(t, err)
			kept = append(kept, string(j.ID))
		}
		slices.Sort(kept)
		if got := strings.Join(kept, " "); got != "a b" {
			t.Errorf("%s: the jobs are %q, want those before the damage", what, got)
		}
		must(t, s.Close())
	}
}

// Earlier versions had files from which tables and logs were restored.
func TestAnOpeningRemovesTheFilesThatRestoredOthers(t *testing.T) {
	for _, dir := range fixtures(t) {
		mem := unpacked(t, dir)
		had := len(protections(t, mem))
		if had == 0 && strings.Contains(dir, "v0.2.0") {
			t.Errorf("%s has no such files", dir)
		}
		s := openForTest(t, "store", inMemory(mem))
		if left := protections(t, mem); len(left) > 0 {
			t.Errorf("%s: after the opening %q are left of %d", dir, left, had)
		}
		must(t, s.Close())
	}
}

// protections returns the names of such files.
func protections(t *testing.T, fs vfs.FS) []string {
	t.Helper()
	names, err := fs.List("store")
	must(t, err)
	return slices.DeleteFunc(names, func(name string) bool { return withoutProtection(name) == name })
}

// Damaged options files of the database do not matter.
func TestDamagedOptionsDoNotMatter(t *testing.T) {
	mem, want := furnished(t, true)
	names, err := mem.List("store")
	must(t, err)
	seen := 0
	for _, name := range names {
		if !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		rotSome(t, mem, "store/"+name, 20, func(at int) {
			seen++
			s := openForTest(t, "store", inMemory(cloned(t, mem)))
			if diff := diffLines(want, stateText(t, s)); diff != "" {
				t.Errorf("%s with byte %d changed: what is in the store (-want +got):\n%s", name, at, diff)
			}
			must(t, s.Close())
		})
	}
	if seen == 0 {
		t.Error("there are no options")
	}
}
