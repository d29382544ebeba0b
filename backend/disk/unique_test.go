package disk

import (
	"errors"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/podyard/podyard/serverless/queue"
)

// A crash that loses all that was not synced loses neither a key nor the newest input of its job: what a
// caller was told is so afterwards.
func TestACrashLosesNoKeyAndNoNewestInput(t *testing.T) {
	for name, inputs := range map[string][]string{
		"small": {`{"n":1}`, `{"n":2}`},
		"large": {`{"n":"` + string(make([]byte, 200_000)) + `"}`, `{"n":"` + string(make([]byte, 300_000)) + `"}`},
		"mixed": {`{"n":"` + string(make([]byte, 200_000)) + `"}`, `{"n":3}`},
	} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewCrashableMem()
			open := func(fs *vfs.MemFS) *Store {
				s, err := Open(t.Context(), "/data", &Options{fs: fs, Key: testKey, Ballast: -1})
				must(t, err)
				return s
			}
			s := open(fs)
			const now = queue.Instant(1_780_000_000_000)
			job := func(id, input string) queue.Job {
				return queue.Job{
					Ref: queue.Ref{Endpoint: "e", ID: queue.JobID(id)}, Owner: "alice", Input: []byte(input), Extra: []byte(`{"s3Config":{}}`),
					State: queue.State{Submitted: now, Queued: now, Expires: now + 86_400_000, Terms: queue.Terms{
						ExecTimeout: time.Minute, Retain: time.Hour, Unique: queue.Unique{Key: "k", While: queue.WhileQueued},
					}},
				}
			}
			must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{job("a", inputs[0])}))
			with := job("b", inputs[1])
			with.Extra = []byte(`{"s3Config":{"bucketName":"b"}}`)
			res := make([]queue.Result, 1)
			must(t, s.Jobs().Apply(t.Context(), now, []queue.Op{{Ref: job("a", "").Ref, Kind: queue.OpReplace, Job: &with}}, res))
			must(t, res[0].Err)
			after := fs.CrashClone(vfs.CrashCloneCfg{})
			s.Close()

			s = open(after)
			defer s.Close()
			if err := s.Jobs().Enqueue(t.Context(), []queue.Job{job("c", `{}`)}); !errors.Is(err, &queue.TakenError{Ref: job("a", "").Ref}) {
				t.Errorf("Enqueue after the crash = %v, want that job a holds the key", err)
			}
			j, err := s.Jobs().Get(t.Context(), now, job("a", "").Ref)
			if err != nil || string(j.Input) != inputs[1] || string(j.Extra) != string(with.Extra) {
				t.Errorf("the job after the crash = %d bytes of input, %s, %v, want %d bytes and what came with them", len(j.Input), j.Extra, err, len(inputs[1]))
			}
		})
	}
}
