package serverless

import (
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// The ttl of a delayed job counts from the instant at which it is ready, unless the request has
// a ttl. A job that would not be ready before its end is refused.
func TestADelayedJobLivesADayAfterItsStart(t *testing.T) {
	const now = Instant(1_780_000_000_000)
	day, minute := 24*time.Hour, time.Minute
	for _, c := range []struct {
		name  string
		q     QueueOptions
		ttl   *time.Duration
		start Instant
		want  time.Duration
		late  bool
	}{
		{"no delay", QueueOptions{}, nil, now, day, false},
		{"from now", QueueOptions{StartAfter: new(time.Hour)}, nil, now.Add(time.Hour), day + time.Hour, false},
		{"an instant", QueueOptions{StartAt: now.Add(time.Hour).Time()}, nil, now.Add(time.Hour), day + time.Hour, false},
		{"an instant that has passed", QueueOptions{StartAt: now.Add(-time.Hour).Time()}, nil, now, day, false},
		{"beyond seven days", QueueOptions{StartAfter: new(7 * day)}, nil, now.Add(7 * day), 8 * day, false},
		{"the farthest start", QueueOptions{StartAfter: new(MaxStartAfter)}, nil, now.Add(MaxStartAfter), MaxStartAfter + day, false},
		{"within its ttl", QueueOptions{StartAfter: new(minute - 1)}, &minute, now.Add(minute - 1), minute, false},
		{"at the end of its ttl", QueueOptions{StartAfter: new(minute)}, &minute, now.Add(minute), minute, true},
		{"an instant past its ttl", QueueOptions{StartAt: now.Add(day).Time()}, &minute, now.Add(day), minute, true},
	} {
		r := Request{Queue: c.q, Policy: Policy{TTL: c.ttl}}
		ttl, late := r.lifetime(now)
		if start := r.Queue.start(now); start != c.start || ttl != c.want || late != c.late {
			t.Errorf("%s: starts at %d, ttl %v, late %v; want %d, %v, %v", c.name, start-now, ttl, late, c.start-now, c.want, c.late)
		}
		j := r.job(&Endpoint{ID: "e"}, "user", "id", now)
		if j.Queued != c.start || j.Delayed != (c.start > now) || j.Expires != now.Add(c.want) || j.Priority != queue.DefaultPriority {
			t.Errorf("%s: the job is %+v, want it ready at %d", c.name, j.State, c.start)
		}
	}
}
