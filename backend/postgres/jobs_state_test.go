package postgres

import (
	"encoding/json"
	"testing"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A field that a later version adds to the state must be stored, too.
func TestEveryFieldOfAStateIsStored(t *testing.T) {
	var s queue.State
	suite.Fill(t, &s)
	got, err := decodeState(encodeState(&s), int64(s.Seq))
	if err != nil || got != s {
		t.Errorf("%+v comes back as %+v, %v", s, got, err)
	}
}

// Servers of a version without leases read the rows of all attempts and leases as attempts, and take
// the first ones.
func TestALeaseDecodesAsAnAttempt(t *testing.T) {
	lease := queue.JobLease{Run: 1, Attempt: 2, Worker: "w", Started: 3, FirstChunk: 4, Finished: 5, End: queue.LeaseLost, Ready: 6}
	b, err := json.Marshal(lease)
	if err != nil {
		t.Fatal(err)
	}
	var a queue.JobAttempt
	if err := json.Unmarshal(b, &a); err != nil || a.Worker != "w" {
		t.Errorf("%s is the attempt %+v, %v", b, a, err)
	}
}

// A job without leases and chunks takes no more bytes than before there were logs of leases.
func TestAStateHasNoZerosBeyondThoseAlwaysStored(t *testing.T) {
	var s queue.State
	plain := len(encodeState(&s))
	if plain != 1+2+plainCount {
		t.Errorf("a state of zeros has %d bytes, want %d", plain, 1+2+plainCount)
	}
	s.Leases = 1
	if n := len(encodeState(&s)); n != plain+1 {
		t.Errorf("with a lease it has %d bytes, want %d", n, plain+1)
	}
}
