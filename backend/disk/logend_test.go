package disk

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// Damage at the end of the log that was in use at a crash, which its mirror has too, looks the
// same as a write that was interrupted. It costs the last commits, and nothing before them.
func TestEqualDamageAtTheEndOfTheLogInUseLosesTheLastCommitsOnly(t *testing.T) {
	mem := vfs.NewMem()
	s := openForTest(t, "store", inMemory(mem))
	for _, id := range []string{"a", "b", "c"} {
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{newJob(id)}))
	}
	crashed := cloned(t, mem)
	must(t, s.Close())
	logs := commitLogs(t, crashed)
	log := logs[len(logs)-1]
	for what, ruin := range map[string]func(b []byte) []byte{
		"changed": func(b []byte) []byte { copy(b[len(b)-20:], bytes.Repeat([]byte{0x5a}, 20)); return b },
		"zeroed":  func(b []byte) []byte { clear(b[len(b)-20:]); return b },
		"missing": func(b []byte) []byte { return b[:len(b)-20] },
	} {
		fs := cloned(t, crashed)
		ruined := ruin(readFile(t, fs, log+mirrorSuffix))
		writeFile(t, fs, log, append(bytes.Clone(ruined), make([]byte, aheadBytes)...))
		writeFile(t, fs, log+mirrorSuffix, ruined)
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
