// Package serverlesstest has the test suites of job queues and endpoint stores, which every
// backend runs. It also has Model, the simplest possible queue, to compare a backend with,
// and Ledger, which checks a queue over restarts.
package serverlesstest

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless/queue"
)

// A QueueCase is one rule of queue.JobQueue.
type QueueCase struct {
	Name string
	Why  string // the rule, printed when it is broken
	Run  func(t *testing.T, q queue.JobQueue)
}

// TestJobQueue runs every case on an empty queue of its own. queue returns a new one. The
// suite sets all instants, because a queue reads no clock.
func TestJobQueue(t *testing.T, queue func(t *testing.T) queue.JobQueue) {
	for _, c := range QueueCases() {
		suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, queue(t)) })
	}
}

// QueueCases returns the rules of a job queue.
func QueueCases() []QueueCase {
	return slices.Concat(submitCases(), keyedCases(), claimCases(), orderCases(), limitCases(), rateCases(), holdCases(), leaseCases(), tokenCases(), endCases(), lifetimeCases(),
		retainCases(), uniqueCases(), snoozeCases(), retryCases(), attemptCases(), leaseLogCases(), deadCases(), purgeCases(), streamCases(), readCases(), statsCases(), watchCases(), outboxCases(), raceCases(), damageCases(), budgetCases(), costCases())
}

// rule makes a case from a function over a fixture.
func rule(name, why string, run func(k *fixture)) QueueCase {
	return QueueCase{name, why, func(t *testing.T, q queue.JobQueue) {
		run(&fixture{T: t, q: q, now: start})
	}}
}

const (
	start = queue.Instant(1_780_000_000_000)

	echo  = "echo"  // the endpoint of most cases
	lease = 30_000  // ms
	exec  = 600_000 // ms, the execution timeout
	keep  = 1_800_000
	ttl   = 86_400_000

	lastOp = queue.OpReplace // the last kind of op
)

// A fixture is a queue under test at an instant that the case advances.
type fixture struct {
	*testing.T
	q     queue.JobQueue
	now   queue.Instant
	made  int
	rules *queue.Rules // of the endpoint echo
}

// wait advances the instant.
func (k *fixture) wait(d time.Duration) { k.now = k.now.Add(d) }

// job returns a job that is submitted now.
func (k *fixture) job(change ...func(*queue.Job)) queue.Job {
	k.made++
	j := queue.Job{
		Ref:   queue.Ref{Endpoint: echo, ID: queue.JobID(fmt.Sprintf("job-%04d", k.made))},
		Owner: "user-1",
		Input: fmt.Appendf(nil, `{"n":%d}`, k.made),
		State: queue.State{Submitted: k.now, Queued: k.now, Expires: k.now + ttl, Terms: queue.Terms{ExecTimeout: exec * time.Millisecond, Retain: keep * time.Millisecond}},
	}
	for _, f := range change {
		f(&j)
	}
	return j
}

func onEndpoint(endpoint string) func(*queue.Job) {
	return func(j *queue.Job) { j.Endpoint = endpoint }
}

func ownedBy(owner string) func(*queue.Job) {
	return func(j *queue.Job) { j.Owner = owner }
}

func withKey(key string) func(*queue.Job) {
	return func(j *queue.Job) { j.Key = key }
}

func withPriority(p uint8) func(*queue.Job) {
	return func(j *queue.Job) { j.Priority = p }
}

func lowPriority(j *queue.Job) { j.Flags |= queue.LowPriority }

func withWebhook(j *queue.Job) {
	j.Flags |= queue.HasWebhook
	j.Webhook = "https://example.com/hook"
}

// enqueue submits jobs together and returns them with their Seq.
func (k *fixture) enqueue(jobs ...queue.Job) []queue.Job {
	k.Helper()
	if err := k.q.Enqueue(k.Context(), jobs); err != nil {
		k.Fatalf("Enqueue of %d jobs = %v, want nil", len(jobs), err)
	}
	return jobs
}

// add submits one job.
func (k *fixture) add(change ...func(*queue.Job)) queue.Job {
	k.Helper()
	return k.enqueue(k.job(change...))[0]
}

// addN submits n jobs, one after another.
func (k *fixture) addN(n int, change ...func(*queue.Job)) []queue.Job {
	k.Helper()
	jobs := make([]queue.Job, n)
	for i := range jobs {
		jobs[i] = k.add(change...)
	}
	return jobs
}

// slot asks for n jobs of the endpoint echo with a lease of the usual length.
func (k *fixture) slot(worker queue.WorkerID, n int) queue.Slot {
	return queue.Slot{Endpoint: echo, Worker: worker, N: n, Until: k.now + lease, Rules: k.rules}
}

func (k *fixture) claim(slots ...queue.Slot) []queue.Job {
	k.Helper()
	jobs, err := k.q.Claim(k.Context(), k.now, slots, nil)
	if err != nil {
		k.Fatalf("Claim = %v, want nil", err)
	}
	return jobs
}

// take claims exactly one job of echo.
func (k *fixture) take(worker queue.WorkerID) queue.Job {
	k.Helper()
	jobs := k.claim(k.slot(worker, 1))
	if len(jobs) != 1 {
		k.Fatalf("Claim by %q gave %d jobs, want 1", worker, len(jobs))
	}
	return jobs[0]
}

// run submits a job and claims it for worker w.
func (k *fixture) run(change ...func(*queue.Job)) queue.Job {
	k.Helper()
	want := k.add(change...)
	got := k.take("w")
	if got.Ref != want.Ref {
		k.Fatalf("Claim gave %v, want %v, the only one", got.Ref, want.Ref)
	}
	return got
}

// workerOp returns an op of the worker that claimed j, with its lease.
func workerOp(j queue.Job, kind queue.OpKind, change ...func(*queue.Op)) queue.Op {
	op := queue.Op{Ref: j.Ref, Kind: kind, Worker: j.Worker, Token: j.Token}
	for _, f := range change {
		f(&op)
	}
	return op
}

// userOp returns an op without a worker.
func userOp(j queue.Job, kind queue.OpKind) queue.Op {
	return queue.Op{Ref: j.Ref, Kind: kind}
}

func finishOp(j queue.Job, output string) queue.Op {
	return workerOp(j, queue.OpFinish, func(op *queue.Op) {
		op.Status, op.Payload = queue.Completed, []byte(output)
	})
}

func failOp(j queue.Job, text string) queue.Op {
	return workerOp(j, queue.OpFinish, func(op *queue.Op) { op.Status, op.Error = queue.Failed, text })
}

func chunk(j queue.Job, text string) queue.Op {
	return workerOp(j, queue.OpChunk, func(op *queue.Op) { op.Payload = []byte(text) })
}

func withAdopt(op queue.Op) queue.Op {
	op.Adopt = true
	return op
}

func (k *fixture) apply(ops ...queue.Op) []queue.Result {
	k.Helper()
	res := make([]queue.Result, len(ops))
	if err := k.q.Apply(k.Context(), k.now, ops, res); err != nil {
		k.Fatalf("Apply of %d ops = %v, want nil", len(ops), err)
	}
	return res
}

// mustApply applies ops that are allowed and returns the state after the last one.
func (k *fixture) mustApply(ops ...queue.Op) queue.State {
	k.Helper()
	res := k.apply(ops...)
	for i, r := range res {
		if r.Err != nil {
			k.Fatalf("op %d of kind %d on %q = %v, want nil", i, ops[i].Kind, ops[i].ID, r.Err)
		}
	}
	return res[len(res)-1].State
}

// mustRefuse applies an op that is not allowed and checks that it changes nothing.
func (k *fixture) mustRefuse(op queue.Op, want error) {
	k.Helper()
	before, errBefore := k.q.Get(k.Context(), k.now, op.Ref)
	if r := k.apply(op)[0]; !errors.Is(r.Err, want) {
		k.Errorf("op of kind %d on %q = %v, want %v", op.Kind, op.ID, r.Err, want)
	}
	after, errAfter := k.q.Get(k.Context(), k.now, op.Ref)
	if !errors.Is(errAfter, errBefore) {
		k.Errorf("Get after a refused op = %v, want %v as before", errAfter, errBefore)
	}
	k.wantEqual("the job after a refused op", before, after)
}

// expire sweeps until nothing is due and returns the instant of the next sweep.
func (k *fixture) expire() queue.Instant {
	k.Helper()
	for range 10_000 {
		next, err := k.q.Expire(k.Context(), k.now, 100)
		if err != nil {
			k.Fatalf("Expire = %v, want nil", err)
		}
		if next == 0 || next > k.now {
			return next
		}
	}
	k.Fatalf("Expire says 10000 times that there is more to do at %d", k.now)
	return 0
}

// wantNext checks the instant of the next call, 0 for never. A queue of one process knows it; a
// shared one may be early, and may have a look when there is nothing.
func (k *fixture) wantNext(what string, want, got queue.Instant) {
	k.Helper()
	switch {
	case got == want:
	case !queue.IsShared(k.q), got <= k.now, want != 0 && got > want:
		k.Errorf("%s says to call again at %d, want %d, and it is %d", what, got, want, k.now)
	}
}

func (k *fixture) get(j queue.Job) queue.Job {
	k.Helper()
	got, err := k.q.Get(k.Context(), k.now, j.Ref)
	if err != nil {
		k.Fatalf("Get(%q) = %v, want the job", j.ID, err)
	}
	return got
}

// wantStatus checks the status of a job and returns the job.
func (k *fixture) wantStatus(j queue.Job, want queue.Status) queue.Job {
	k.Helper()
	got := k.get(j)
	if got.Status != want {
		k.Errorf("%q is %v, want %v", j.ID, got.Status, want)
	}
	return got
}

// wantGone checks that nothing finds the job.
func (k *fixture) wantGone(j queue.Job) {
	k.Helper()
	if got, err := k.q.Get(k.Context(), k.now, j.Ref); !errors.Is(err, queue.ErrNotFound) {
		k.Errorf("Get(%q) = %v, %v, want ErrNotFound", j.ID, got.Status, err)
	}
	if _, _, err := k.q.Chunks(k.Context(), k.now, j.Ref, 1<<20); !errors.Is(err, queue.ErrNotFound) {
		k.Errorf("Chunks(%q) = %v, want ErrNotFound", j.ID, err)
	}
	if ids := k.list(queue.ListQuery{Endpoint: j.Endpoint}); slices.Contains(ids, j.ID) {
		k.Errorf("List has %q, which is gone", j.ID)
	}
}

func (k *fixture) list(q queue.ListQuery) (ids []queue.JobID) {
	k.Helper()
	for j, err := range k.q.List(k.Context(), k.now, q) {
		if err != nil {
			k.Fatalf("List = %v, want no error", err)
		}
		ids = append(ids, j.ID)
	}
	return ids
}

func (k *fixture) stats(endpoint string) queue.Stats {
	k.Helper()
	s, err := k.q.Stats(k.Context(), k.now, endpoint, k.rules)
	if err != nil {
		k.Fatalf("Stats = %v, want nil", err)
	}
	return s
}

// chunks returns the chunks that are not drained.
func (k *fixture) chunks(j queue.Job, maxBytes int) ([]string, queue.State) {
	k.Helper()
	bs, s, err := k.q.Chunks(k.Context(), k.now, j.Ref, maxBytes)
	if err != nil {
		k.Fatalf("Chunks(%q) = %v, want nil", j.ID, err)
	}
	list := make([]string, len(bs))
	for i, b := range bs {
		list[i] = string(b)
	}
	return list, s
}

// wantEqual compares two values. A queue may return an empty payload as nil.
func (k *fixture) wantEqual(what string, want, got any) {
	k.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		k.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(jobs []queue.Job) []queue.JobID {
	list := make([]queue.JobID, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].ID
	}
	return list
}
