package disk

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// What the service itself tells a worker about its job is no secret, so schedules and batches work
// without a key. A key that comes later does not make it unreadable.
func TestWithoutAKeyAStoreKeepsWhatIsNoSecret(t *testing.T) {
	fs := vfs.NewMem()
	want := map[queue.JobID]string{
		"a": `{"schedule":{"id":"s","at":"2026-01-01T00:00:00Z"}}`, "b": `{"batchId":"b"}`, "c": `{}`,
	}
	opts := inMemory(fs)
	key := opts.Key
	opts.Key = nil
	s := openForTest(t, "store", opts)
	for id, extra := range want {
		j := newJob(string(id))
		j.Extra = []byte(extra)
		must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{j}))
	}
	for _, when := range []string{"at once", "after a start", "after a start with a key", "after another one"} {
		for id, extra := range want {
			j, err := s.Jobs().Get(t.Context(), at, queue.Ref{Endpoint: "echo", ID: id})
			if err != nil || string(j.Extra) != extra {
				t.Errorf("%s: the Extra of %s is %s, %v, want %s", when, id, j.Extra, err, extra)
			}
		}
		must(t, s.Close())
		opts = inMemory(fs)
		if opts.Key = nil; when != "at once" {
			opts.Key = key
		}
		s = openForTest(t, "store", opts)
	}
}
