package disk

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// starts takes as many jobs under rules as there are at an instant.
func starts(t *testing.T, s *Store, now queue.Instant, rules *queue.Rules) []queue.Job {
	t.Helper()
	jobs, err := s.Jobs().Claim(t.Context(), now, []queue.Slot{{Endpoint: "echo", Worker: "w", N: 1000, Until: now + 3_600_000, Rules: rules}}, nil)
	must(t, err)
	return jobs
}

// The bucket of an endpoint is refilled while the store is closed, and no more than that.
func TestARateCountsTheStartsOfJobsOverARestart(t *testing.T) {
	rules := &queue.Rules{Rate: queue.Rate{Limit: 6, Per: 6 * time.Second}}
	s := memStore(t)
	var jobs []queue.Job
	for i := range 20 {
		jobs = append(jobs, newJob(fmt.Sprint("j", i)))
	}
	must(t, s.Jobs().Enqueue(t.Context(), jobs))
	if n := len(starts(t, s, at, rules)); n != 6 {
		t.Fatalf("%d jobs of a full bucket started, want 6", n)
	}
	now := at
	for _, step := range []struct {
		after time.Duration
		want  int
	}{{0, 0}, {2500 * time.Millisecond, 2}, {500 * time.Millisecond, 1}, {time.Hour, 6}} {
		s = reopen(t, s)
		now = now.Add(step.after)
		if n := len(starts(t, s, now, rules)); n != step.want {
			t.Errorf("%v after the last start and after a restart %d jobs started, want %d", step.after, n, step.want)
		}
	}
}
