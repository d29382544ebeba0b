package memory_test

import (
	"cmp"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/queue"
)

// A market is workers and submitters of one endpoint in simulated time.
type market struct {
	t       *testing.T
	q       *memory.Jobs
	rules   queue.Rules
	now     queue.Instant
	made    int
	idle    []queue.WorkerID
	events  []marketEvent              // by time
	waits   map[string][]time.Duration // by group
	groupOf func(*queue.Job) string
}

// A marketEvent is the end of a job, or a submission that repeats.
type marketEvent struct {
	at     queue.Instant
	end    *queue.Job
	submit *stream
}

// A stream of jobs.
type stream struct {
	change func(*queue.Job)
	every  time.Duration
	takes  time.Duration
}

const opening = queue.Instant(1_780_000_000_000)

func newMarket(t *testing.T, workers int, rules queue.Rules, groupOf func(*queue.Job) string) *market {
	m := &market{t: t, q: memory.NewJobs(), rules: rules, now: opening, waits: map[string][]time.Duration{}, groupOf: groupOf}
	for n := range workers {
		m.idle = append(m.idle, queue.WorkerID(fmt.Sprint("w", n)))
	}
	return m
}

// submit submits n jobs, each of which takes a time.
func (m *market) submit(n int, takes time.Duration, change func(*queue.Job)) {
	jobs := make([]queue.Job, n)
	for i := range jobs {
		m.made++
		jobs[i] = queue.Job{
			Ref: queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint(m.made))}, Owner: "user",
			State: queue.State{
				Submitted: m.now, Queued: m.now, Expires: m.now.Add(24 * time.Hour), Priority: queue.DefaultPriority,
				Terms: queue.Terms{ExecTimeout: takes}, // the simulation reads it
			},
		}
		change(&jobs[i])
	}
	if err := m.q.Enqueue(m.t.Context(), jobs); err != nil {
		m.t.Fatal(err)
	}
}

// repeat submits a job every so often, the first one after some of that time.
func (m *market) repeat(s stream, after time.Duration) {
	m.plan(marketEvent{at: m.now.Add(after), submit: &s})
}

func (m *market) plan(e marketEvent) {
	i, _ := slices.BinarySearchFunc(m.events, e.at+1, func(e marketEvent, at queue.Instant) int { return cmp.Compare(e.at, at) })
	m.events = slices.Insert(m.events, i, e)
}

// run lets the time pass.
func (m *market) run(d time.Duration) {
	for end := m.now.Add(d); ; {
		m.work()
		if len(m.events) == 0 || m.events[0].at > end {
			m.now = end
			return
		}
		e := m.events[0]
		m.events = m.events[1:]
		m.now = e.at
		if s := e.submit; s != nil {
			m.submit(1, s.takes, s.change)
			m.repeat(*s, s.every)
			continue
		}
		m.finish(e.end)
	}
}

func (m *market) finish(j *queue.Job) {
	ops := []queue.Op{{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token}}
	res := make([]queue.Result, 1)
	if err := m.q.Apply(m.t.Context(), m.now, ops, res); err != nil || res[0].Err != nil {
		m.t.Fatal(err, res[0].Err)
	}
	m.idle = append(m.idle, j.Worker)
}

// work gives jobs to the idle workers.
func (m *market) work() {
	for len(m.idle) > 0 {
		w := m.idle[len(m.idle)-1]
		jobs, err := m.q.Claim(m.t.Context(), m.now, []queue.Slot{{Endpoint: "e", Worker: w, N: 1, Until: m.now.Add(time.Hour), Rules: &m.rules}}, nil)
		if err != nil {
			m.t.Fatal(err)
		}
		if len(jobs) == 0 {
			return
		}
		j := &jobs[0]
		m.idle = m.idle[:len(m.idle)-1]
		g := m.groupOf(j)
		m.waits[g] = append(m.waits[g], m.now.Sub(j.Queued))
		m.plan(marketEvent{at: m.now.Add(j.ExecTimeout - time.Millisecond), end: j})
	}
}

// percentile returns the wait that a share of a group's jobs does not exceed.
func (m *market) percentile(group string, share float64) time.Duration {
	ws := slices.Sorted(slices.Values(m.waits[group]))
	if len(ws) == 0 {
		m.t.Fatalf("no job of %q has run", group)
	}
	return ws[int(share*float64(len(ws)-1))]
}

// One who has 100,000 jobs does not make others wait: 99 with one job a second each, on 50 workers.
func TestABacklogOfOneMakesNobodyElseWait(t *testing.T) {
	const takes = 200*time.Millisecond + time.Millisecond
	for _, c := range []struct {
		name   string
		change func(who string) func(*queue.Job)
		who    func(*queue.Job) string
	}{
		{"key", func(who string) func(*queue.Job) { return func(j *queue.Job) { j.Key = who } }, func(j *queue.Job) string { return j.Key }},
		{"owner", func(who string) func(*queue.Job) { return func(j *queue.Job) { j.Owner = who } }, func(j *queue.Job) string { return j.Owner }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			m := newMarket(t, 50, queue.Rules{Ageing: time.Minute}, func(j *queue.Job) string {
				if c.who(j) == "noisy" {
					return "noisy"
				}
				return "quiet"
			})
			m.submit(100_000, takes, c.change("noisy"))
			for n := range 99 {
				m.repeat(stream{change: c.change(fmt.Sprint("quiet", n)), every: time.Second, takes: takes}, time.Duration(n)*10*time.Millisecond)
			}
			m.run(2 * time.Minute)
			p99 := m.percentile("quiet", 0.99)
			t.Logf("%d quiet jobs, p99 %v, most %v; %d noisy ones", len(m.waits["quiet"]), p99, m.percentile("quiet", 1), len(m.waits["noisy"]))
			if p99 >= 400*time.Millisecond || len(m.waits["quiet"]) < 11_000 {
				t.Errorf("p99 of %d quiet jobs is %v, want less than 400ms of more than 11000", len(m.waits["quiet"]), p99)
			}
			if n := len(m.waits["noisy"]); n < 15_000 {
				t.Errorf("%d noisy jobs ran, want those for which there was time", n)
			}
		})
	}
}

// When priority 9 is offered at all capacity for an hour, a job of priority 0 waits for nine times
// Ageing, the wait of the oldest of priority 9, and the end of a running job. It never waits longer.
func TestAJobOfPriority0WaitsNoLongerThanAgeingSays(t *testing.T) {
	const takes, ageing = time.Second, time.Minute
	m := newMarket(t, 10, queue.Rules{Ageing: ageing}, func(j *queue.Job) string { return fmt.Sprint(j.Priority) })
	priority := func(p uint8) func(*queue.Job) { return func(j *queue.Job) { j.Priority = p } }
	m.submit(100, takes, priority(9))
	for n := range 10 {
		m.repeat(stream{change: priority(9), every: takes, takes: takes}, time.Duration(n)*100*time.Millisecond)
	}
	m.repeat(stream{change: priority(0), every: time.Minute, takes: takes}, time.Minute)
	m.run(time.Hour)
	worst, nine := m.percentile("0", 1), m.percentile("9", 1)
	bound := 9*ageing + nine + takes
	t.Logf("%d jobs of priority 0 waited at most %v, those of priority 9 at most %v", len(m.waits["0"]), worst, nine)
	if worst > bound || len(m.waits["0"]) < 48 {
		t.Errorf("the longest wait of %d jobs of priority 0 is %v, want at most %v and more than 47 jobs", len(m.waits["0"]), worst, bound)
	}
	if nine > 2*time.Minute {
		t.Errorf("the longest wait of priority 9 is %v, want what its own backlog takes", nine)
	}
}
