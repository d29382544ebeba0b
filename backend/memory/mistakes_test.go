package memory_test

import (
	"bytes"
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// A ruleMistake makes the order of claims wrong in one way. It is added around the queue: the
// queue itself has no code for it.
type ruleMistake struct {
	name string
	rule string // of the suite
	// rules changes the rules of a claim. lost is how many jobs of the endpoint were taken from
	// lost workers.
	rules func(r *queue.Rules, lost int)
	jobs  func(*queue.Job) // changes new jobs
	ops   func(*queue.Op)
}

func ruleMistakes() []ruleMistake {
	return []ruleMistake{
		{name: "a lost worker keeps the place of its job in a key", rule: "APlaceIsFreedOnceByLostWorker", rules: func(r *queue.Rules, lost int) {
			if r.PerKey > 0 {
				r.PerKey = max(r.PerKey-lost, 1)
			}
		}},
		{name: "a bucket has room for one more", rule: "ARateIsABucket", rules: func(r *queue.Rules, _ int) {
			for _, rate := range []*queue.Rate{&r.Rate, &r.PerKeyRate, &r.PerUserRate} {
				if rate.Limit > 0 {
					rate.Limit++
				}
			}
		}},
		{name: "a start that nobody got is not given back", rule: "AStartThatNobodyGotIsGivenBack", ops: func(op *queue.Op) { op.Untouched = false }},
		{name: "a key is held for half the time", rule: "AWorkerHoldsItsKey", ops: func(op *queue.Op) { op.Hold -= op.Hold / 2 }},
		{name: "what was held before it was lifted is held", rule: "HoldsAreLifted", rules: func(r *queue.Rules, _ int) { r.HoldsSince = 0 }},
		{name: "ageing lifts no job", rule: "AgeingLifts", rules: func(r *queue.Rules, _ int) { r.Ageing = 0 }},
		{name: "a pause has no effect", rule: "PausedGivesNothing", rules: func(r *queue.Rules, _ int) { r.Paused = false }},
		{name: "the limit of an owner is that of the endpoint", rule: "PerUser", rules: func(r *queue.Rules, _ int) {
			if r.Total == 0 || r.PerUser < r.Total {
				r.Total = r.PerUser
			}
		}},
		{name: "a key is held by nobody", rule: "AKeyIsHeldUntilItsJobHasEnded", jobs: func(j *queue.Job) { j.Unique = queue.Unique{} }},
		{name: "a result goes with its ttl", rule: "AKeptResultOutlivesTheTTL", jobs: func(j *queue.Job) { j.Flags &^= queue.KeepsResult }},
		{name: "a snoozed job is ready at once", rule: "ASnoozedJobIsReadyAgainLater", ops: func(op *queue.Op) { op.Ready = min(op.Ready, 1) }},
		{name: "a replaced job gets no new input", rule: "ReplaceChangesAQueuedJobInItsPlace", ops: func(op *queue.Op) {
			if op.Job != nil {
				with := *op.Job
				with.Input = []byte(`{}`)
				op.Job = &with
			}
		}},
	}
}

// mistakeVariable names the mistake that a test of the suite has.
const mistakeVariable = "PODYARD_TEST_MISTAKE"

// The rule of the suite that a mistake breaks must find it.
func TestTheSuiteFindsMistakesInTheOrderOfClaims(t *testing.T) {
	if os.Getenv(mistakeVariable) != "" {
		t.Skip("this is the process with the mistake")
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range ruleMistakes() {
		t.Run(m.rule, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestMistakenJobs$", "-test.count=1")
			cmd.Env = append(os.Environ(), mistakeVariable+"="+m.name)
			out, err := cmd.CombinedOutput()
			if err == nil || !bytes.Contains(out, []byte("--- FAIL: TestMistakenJobs/"+m.rule)) {
				t.Errorf("the rule has not found that %s: %v\n%s", m.name, err, out)
			}
		})
	}
}

// TestMistakenJobs runs the rule of a mistake, in a process of its own.
func TestMistakenJobs(t *testing.T) {
	for _, m := range ruleMistakes() {
		if m.name != os.Getenv(mistakeVariable) {
			continue
		}
		for _, c := range serverlesstest.QueueCases() {
			if c.Name == m.rule {
				t.Run(c.Name, func(t *testing.T) { c.Run(t, newMistaken(m)) })
			}
		}
	}
}

// The walk finds each mistake too, except one that needs more luck.
func TestTheWalkFindsMistakesInTheOrderOfClaims(t *testing.T) {
	for _, m := range ruleMistakes()[1:] {
		t.Run(m.rule, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(200) {
				w := serverlesstest.Walk{Queue: newMistaken(m), Steps: 300, Draw: rand.New(rand.NewPCG(seed, 0)).IntN}
				if err := w.Run(t.Context()); err != nil {
					return
				}
			}
			t.Errorf("200 walks have not found that %s", m.name)
		})
	}
}

func newMistaken(m ruleMistake) *mistaken {
	return &mistaken{JobQueue: memory.NewJobs(), m: m, lost: map[string]int{}}
}

// A mistaken queue has a mistake.
type mistaken struct {
	queue.JobQueue
	m    ruleMistake
	lost map[string]int
}

func (q *mistaken) Apply(ctx context.Context, now queue.Instant, ops []queue.Op, res []queue.Result) error {
	ops = append([]queue.Op(nil), ops...)
	for i := range ops {
		if q.m.ops != nil {
			q.m.ops(&ops[i])
		}
	}
	err := q.JobQueue.Apply(ctx, now, ops, res)
	for i := range res {
		if res[i].Effect&queue.Requeued != 0 {
			q.lost[ops[i].Endpoint]++
		}
	}
	return err
}

func (q *mistaken) Enqueue(ctx context.Context, jobs []queue.Job) error {
	for i := range jobs {
		if q.m.jobs != nil {
			q.m.jobs(&jobs[i])
		}
	}
	return q.JobQueue.Enqueue(ctx, jobs)
}

func (q *mistaken) Claim(ctx context.Context, now queue.Instant, slots []queue.Slot, out []queue.Job) ([]queue.Job, error) {
	mine := append([]queue.Slot(nil), slots...)
	for i := range mine {
		var rules queue.Rules
		if mine[i].Rules != nil {
			rules = *mine[i].Rules
		}
		if q.m.rules != nil {
			q.m.rules(&rules, q.lost[mine[i].Endpoint])
		}
		mine[i].Rules = &rules
	}
	return q.JobQueue.Claim(ctx, now, mine, out)
}
