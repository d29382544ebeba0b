package postgres_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/serverless/queue"
)

// What the service itself tells a worker about its job is no secret, so schedules and batches work
// without a key. A key that comes later, or changes, does not make it unreadable.
func TestWithoutAKeyAStoreKeepsWhatIsNoSecret(t *testing.T) {
	url := postgresql.Database(t)
	one, two := bytes.Repeat([]byte("1"), postgres.KeySize), bytes.Repeat([]byte("2"), postgres.KeySize)
	now := queue.Instant(1_780_000_000_000)
	want := map[queue.JobID]string{
		"a": `{"schedule":{"id":"s","at":"2026-01-01T00:00:00Z"}}`, "b": `{"batchId":"b"}`, "c": `{}`,
	}
	job := func(id queue.JobID, extra string) queue.Job {
		return queue.Job{
			Ref: queue.Ref{Endpoint: "e", ID: id}, Owner: "alice", Input: []byte(`{}`), Extra: []byte(extra),
			State: queue.State{Submitted: now, Queued: now, Expires: now.Add(time.Hour), Terms: queue.Terms{ExecTimeout: time.Minute, Retain: time.Minute}},
		}
	}
	for i, keys := range [][][]byte{nil, nil, {one}, {two, one}} {
		s, err := openWithKeys(t, url, keys...)
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			for id, extra := range want {
				must(t, s.Jobs().Enqueue(t.Context(), []queue.Job{job(id, extra)}))
			}
			if err := s.Jobs().Enqueue(t.Context(), []queue.Job{job("secret", `{"schedule":{},"s3Config":{}}`)}); !errors.Is(err, postgres.ErrNoKey) {
				t.Errorf("Enqueue of a job with s3Config = %v, want ErrNoKey", err)
			}
		}
		for id, extra := range want {
			j, err := s.Jobs().Get(t.Context(), now, queue.Ref{Endpoint: "e", ID: id})
			if err != nil || string(j.Extra) != extra {
				t.Errorf("at opening %d, with %d keys: the Extra of %s is %s, %v, want %s", i, len(keys), id, j.Extra, err, extra)
			}
		}
	}
}
