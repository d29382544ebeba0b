package disk

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/internal/suite"
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

// logsIn returns the logs of a store and their mirrors.
func logsIn(t *testing.T, fs vfs.FS) (logs []string) {
	t.Helper()
	names, err := fs.List("store")
	must(t, err)
	for _, name := range names {
		if _, ok := isLog(strings.TrimSuffix(name, mirrorSuffix)); ok {
			logs = append(logs, "store/"+name)
		}
	}
	return logs
}

// Every log has a mirror. So nothing is lost if one byte of a log or of a mirror is damaged,
// in the middle or at the end.
func TestALogIsRestoredFromItsMirror(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, closed := range map[string]bool{"killed": false, "closed": true} {
		t.Run(name, func(t *testing.T) {
			mem, want := furnished(t, closed)
			flips := 0
			for _, name := range logsIn(t, mem) {
				rotSome(t, mem, name, 25, func(at int) {
					flips++
					s := openForTest(t, "store", inMemory(cloned(t, mem)))
					if diff := diffLines(want, stateText(t, s)); diff != "" {
						t.Errorf("%s with byte %d changed: what is in the store (-want +got):\n%s", name, at, diff)
					}
					must(t, s.Close())
				})
			}
			if flips < 80 {
				t.Errorf("%d bytes were changed, want those of two logs and two mirrors", flips)
			}
		})
	}
}

func TestALogThatWasCutOffIsRestored(t *testing.T) {
	mem, want := furnished(t, false)
	for _, name := range logsIn(t, mem) {
		whole := readFile(t, mem, name)
		for _, n := range []int{0, 1, len(whole) / 2, len(whole) - 1} {
			writeFile(t, mem, name, whole[:n])
			s := openForTest(t, "store", inMemory(cloned(t, mem)))
			if diff := diffLines(want, stateText(t, s)); diff != "" {
				t.Errorf("%s cut off at byte %d: what is in the store (-want +got):\n%s", name, n, diff)
			}
			must(t, s.Close())
		}
		writeFile(t, mem, name, whole)
	}
}

// A store does not open if more than a bit of a log is damaged and its mirror is missing or
// has the same damage. Otherwise the content of the log would be lost silently. Only at the
// end of a log, damage looks the same as an incomplete write.
func TestALogThatCannotBeRestoredIsRefused(t *testing.T) {
	mem, _ := furnished(t, false)
	written := map[string]int{} // without the zeros behind
	for _, name := range logsIn(t, mem) {
		if log, ok := strings.CutSuffix(name, mirrorSuffix); ok {
			written[log] = len(readFile(t, mem, name))
			must(t, mem.Remove(name))
		}
	}
	for _, name := range logsIn(t, mem) {
		whole := readFile(t, mem, name)
		if !inUse(mem, "store", strings.TrimPrefix(name, "store/")) {
			continue
		}
		for at := 0; at < written[name]/2; at += 1 + written[name]/40 {
			rotten := bytes.Clone(whole)
			rotten[at] ^= 0x5a
			rotten[at+1] ^= 0xa5
			writeFile(t, mem, name, rotten)
			_, err := Open(t.Context(), "store", inMemory(cloned(t, mem)))
			if !errors.Is(err, ErrDamaged) {
				t.Errorf("Open with byte %d of %s changed = %v, want ErrDamaged", at, name, err)
			}
			unavailableError(t, "Open", err)
		}
		writeFile(t, mem, name, whole)
	}
}

// A mirror is created and removed with its log.
func TestALogThatIsGoneHasNoMirror(t *testing.T) {
	mem := vfs.NewMem()
	opts := inMemory(mem)
	opts.memTable = 64 << 10
	s := openForTest(t, "store", opts)
	for i := range 60 {
		j := newJob(string(rune('a'+i%26)) + string(rune('a'+i/26)))
		j.Input = append(j.Input, make([]byte, 8000)...)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	}
	for range 3 {
		s = reopen(t, s)
	}
	must(t, s.Close()) // an open database removes old logs all the time, each before its mirror
	logs := logsIn(t, mem)
	for _, name := range logs {
		if log, ok := strings.CutSuffix(name, mirrorSuffix); ok {
			if _, err := mem.Stat(log); err != nil {
				t.Errorf("%s is the mirror of no log: %v", name, err)
			}
		}
	}
	if len(logs) < 4 || len(logs) > 12 {
		t.Errorf("there are %d logs and mirrors: %v", len(logs), logs)
	}
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
