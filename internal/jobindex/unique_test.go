package jobindex

import (
	"testing"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A store loads jobs before anybody says what time it is. The period of a job that was over when another
// one took the key is over then too.
func TestALoadedJobHasTheKeyThatItTookLast(t *testing.T) {
	const period = 10_000 // in milliseconds
	job := func(seq uint64, submitted, queued queue.Instant, while queue.UniqueWhile) queue.State {
		s := queue.State{Seq: seq, Submitted: submitted, Queued: queued, Expires: 1 << 50}
		s.Unique = queue.Unique{Key: "k", While: while}
		if while == queue.ForPeriod {
			s.Unique.Period = period * time.Millisecond
		}
		return s
	}
	for name, c := range map[string]struct {
		jobs []queue.State // in the order of Seq
		want int           // the job that has the key
	}{
		"the first was requeued after its period":   {[]queue.State{job(2, 50_000, 50_000, queue.WhileQueued), job(3, 1000, 1000, queue.ForPeriod)}, 0},
		"the first was retried after a period":      {[]queue.State{job(2, 50_000, 50_000, queue.ForPeriod), job(3, 1000, 90_000, queue.WhileActive)}, 1},
		"the second came after the period":          {[]queue.State{job(1, 1000, 1000, queue.ForPeriod), job(2, 50_000, 50_000, queue.ForPeriod)}, 1},
		"the second ended and the period goes on":   {[]queue.State{job(1, 1000, 1000, queue.ForPeriod), ended(job(2, 500, 500, queue.WhileActive))}, 0},
		"a delay does not make it later than it is": {[]queue.State{delayed(job(2, 500, 500_000, queue.WhileQueued)), ended(job(3, 400, 400, queue.WhileActive))}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			x := New()
			var added []uint32
			for k := range c.jobs {
				i, _ := x.Add(queue.Ref{Endpoint: "e", ID: queue.JobID(rune('a' + k))}, "user", "", 0)
				x.Load(i, &c.jobs[k])
				added = append(added, i)
			}
			for _, i := range added {
				x.ShowLoaded(i)
			}
			if got := x.KeyHolder("e", "user", "k"); got != added[c.want] {
				t.Errorf("job %q has the key, want %q", x.Ref(got).ID, x.Ref(added[c.want]).ID)
			}
		})
	}
}

func ended(s queue.State) queue.State {
	s.Status = queue.Completed
	return s
}

func delayed(s queue.State) queue.State {
	s.Delayed = true
	return s
}
