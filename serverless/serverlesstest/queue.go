// Package serverlesstest has the rules that job queues and endpoint stores keep, as suites
// that every backend runs, and Model, a queue so plain that it is right at a glance, to
// compare a backend with.
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
	"github.com/podyard/podyard/serverless"
)

// A QueueCase is one rule of serverless.JobQueue.
type QueueCase struct {
	Name string
	Why  string // the rule, printed when it is broken
	Run  func(t *testing.T, q serverless.JobQueue)
}

// TestJobQueue runs every case on a queue of its own, which is empty. Instants are the
// suite's own: a queue reads no clock.
func TestJobQueue(t *testing.T, queue func(t *testing.T) serverless.JobQueue) {
	for _, c := range QueueCases() {
		suite.Run(t, c.Name, c.Why, func(t *testing.T) { c.Run(t, queue(t)) })
	}
}

// QueueCases are the rules.
func QueueCases() []QueueCase {
	return slices.Concat(submitCases(), claimCases(), leaseCases(), tokenCases(), endCases(), lifetimeCases(),
		retryCases(), purgeCases(), streamCases(), readCases(), statsCases(), watchCases(), outboxCases(), raceCases(), damageCases())
}

// rule makes a case of what is written with a kit.
func rule(name, why string, run func(k *kit)) QueueCase {
	return QueueCase{name, why, func(t *testing.T, q serverless.JobQueue) {
		run(&kit{T: t, q: q, now: start})
	}}
}

const (
	start = serverless.Instant(1_780_000_000_000)

	echo  = "echo"  // the endpoint of a case that needs one
	lease = 30_000  // ms
	exec  = 600_000 // ms, the execution timeout
	keep  = 1_800_000
	ttl   = 86_400_000

	lastOp = serverless.OpDamage // the kinds of ops are those from OpClaim to it
)

// A kit is a queue under test at an instant that the case moves on.
type kit struct {
	*testing.T
	q    serverless.JobQueue
	now  serverless.Instant
	made int
}

// wait moves the instant on.
func (k *kit) wait(d time.Duration) { k.now = k.now.Add(d) }

// job makes a job that was submitted now.
func (k *kit) job(change ...func(*serverless.Job)) serverless.Job {
	k.made++
	j := serverless.Job{
		Ref:   serverless.Ref{Endpoint: echo, ID: serverless.JobID(fmt.Sprintf("job-%04d", k.made))},
		Owner: "user-1",
		Input: fmt.Appendf(nil, `{"n":%d}`, k.made),
		State: serverless.State{Submitted: k.now, Queued: k.now, Expires: k.now + ttl, ExecTimeout: exec, Retain: keep},
	}
	for _, f := range change {
		f(&j)
	}
	return j
}

func on(endpoint string) func(*serverless.Job) {
	return func(j *serverless.Job) { j.Endpoint = endpoint }
}

func of(owner string) func(*serverless.Job) {
	return func(j *serverless.Job) { j.Owner = owner }
}

func low(j *serverless.Job) { j.Flags |= serverless.LowPriority }

func hooked(j *serverless.Job) {
	j.Flags |= serverless.HasWebhook
	j.Webhook = "https://example.com/hook"
}

// enqueue submits jobs together and returns them with their Seq.
func (k *kit) enqueue(jobs ...serverless.Job) []serverless.Job {
	k.Helper()
	if err := k.q.Enqueue(k.Context(), jobs); err != nil {
		k.Fatalf("Enqueue of %d jobs = %v, want nil", len(jobs), err)
	}
	return jobs
}

// add submits one job.
func (k *kit) add(change ...func(*serverless.Job)) serverless.Job {
	k.Helper()
	return k.enqueue(k.job(change...))[0]
}

// addN submits n jobs, one after another.
func (k *kit) addN(n int, change ...func(*serverless.Job)) []serverless.Job {
	k.Helper()
	jobs := make([]serverless.Job, n)
	for i := range jobs {
		jobs[i] = k.add(change...)
	}
	return jobs
}

// slot asks for n jobs of the endpoint echo under a lease of the usual length.
func (k *kit) slot(worker serverless.WorkerID, n int) serverless.Slot {
	return serverless.Slot{Endpoint: echo, Worker: worker, N: n, Until: k.now + lease}
}

func (k *kit) claim(slots ...serverless.Slot) []serverless.Job {
	k.Helper()
	jobs, err := k.q.Claim(k.Context(), k.now, slots, nil)
	if err != nil {
		k.Fatalf("Claim = %v, want nil", err)
	}
	return jobs
}

// take claims exactly one job of echo.
func (k *kit) take(worker serverless.WorkerID) serverless.Job {
	k.Helper()
	jobs := k.claim(k.slot(worker, 1))
	if len(jobs) != 1 {
		k.Fatalf("Claim by %q gave %d jobs, want 1", worker, len(jobs))
	}
	return jobs[0]
}

// run submits a job and has worker w take it.
func (k *kit) run(change ...func(*serverless.Job)) serverless.Job {
	k.Helper()
	want := k.add(change...)
	got := k.take("w")
	if got.Ref != want.Ref {
		k.Fatalf("Claim gave %v, want %v, the only one", got.Ref, want.Ref)
	}
	return got
}

// as is an op of the worker that claimed j, under its lease.
func as(j serverless.Job, kind serverless.OpKind, change ...func(*serverless.Op)) serverless.Op {
	op := serverless.Op{Ref: j.Ref, Kind: kind, Worker: j.Worker, Token: j.Token}
	for _, f := range change {
		f(&op)
	}
	return op
}

// user is an op without a worker.
func user(j serverless.Job, kind serverless.OpKind) serverless.Op {
	return serverless.Op{Ref: j.Ref, Kind: kind}
}

func done(j serverless.Job, output string) serverless.Op {
	return as(j, serverless.OpFinish, func(op *serverless.Op) {
		op.Status, op.Payload = serverless.Completed, []byte(output)
	})
}

func failed(j serverless.Job, text string) serverless.Op {
	return as(j, serverless.OpFinish, func(op *serverless.Op) { op.Status, op.Error = serverless.Failed, text })
}

func chunk(j serverless.Job, text string) serverless.Op {
	return as(j, serverless.OpChunk, func(op *serverless.Op) { op.Payload = []byte(text) })
}

func adopting(op serverless.Op) serverless.Op {
	op.Adopt = true
	return op
}

func (k *kit) apply(ops ...serverless.Op) []serverless.Result {
	k.Helper()
	res := make([]serverless.Result, len(ops))
	if err := k.q.Apply(k.Context(), k.now, ops, res); err != nil {
		k.Fatalf("Apply of %d ops = %v, want nil", len(ops), err)
	}
	return res
}

// must applies ops that are allowed and returns the state after the last.
func (k *kit) must(ops ...serverless.Op) serverless.State {
	k.Helper()
	res := k.apply(ops...)
	for i, r := range res {
		if r.Err != nil {
			k.Fatalf("op %d of kind %d on %q = %v, want nil", i, ops[i].Kind, ops[i].ID, r.Err)
		}
	}
	return res[len(res)-1].State
}

// refuse applies an op that is not allowed, and checks that it changes nothing.
func (k *kit) refuse(op serverless.Op, want error) {
	k.Helper()
	before, errBefore := k.q.Get(k.Context(), k.now, op.Ref)
	if r := k.apply(op)[0]; !errors.Is(r.Err, want) {
		k.Errorf("op of kind %d on %q = %v, want %v", op.Kind, op.ID, r.Err, want)
	}
	after, errAfter := k.q.Get(k.Context(), k.now, op.Ref)
	if !errors.Is(errAfter, errBefore) {
		k.Errorf("Get after a refused op = %v, want %v as before", errAfter, errBefore)
	}
	k.equal("the job after a refused op", before, after)
}

// expire sweeps until nothing is due and returns when to come again.
func (k *kit) expire() serverless.Instant {
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

func (k *kit) get(j serverless.Job) serverless.Job {
	k.Helper()
	got, err := k.q.Get(k.Context(), k.now, j.Ref)
	if err != nil {
		k.Fatalf("Get(%q) = %v, want the job", j.ID, err)
	}
	return got
}

// status checks the status of a job and returns the job.
func (k *kit) status(j serverless.Job, want serverless.Status) serverless.Job {
	k.Helper()
	got := k.get(j)
	if got.Status != want {
		k.Errorf("%q is %v, want %v", j.ID, got.Status, want)
	}
	return got
}

// gone checks that nothing finds the job.
func (k *kit) gone(j serverless.Job) {
	k.Helper()
	if got, err := k.q.Get(k.Context(), k.now, j.Ref); !errors.Is(err, serverless.ErrNotFound) {
		k.Errorf("Get(%q) = %v, %v, want ErrNotFound", j.ID, got.Status, err)
	}
	if _, _, err := k.q.Chunks(k.Context(), k.now, j.Ref, 1<<20); !errors.Is(err, serverless.ErrNotFound) {
		k.Errorf("Chunks(%q) = %v, want ErrNotFound", j.ID, err)
	}
	if ids := k.list(serverless.ListQuery{Endpoint: j.Endpoint}); slices.Contains(ids, j.ID) {
		k.Errorf("List has %q, which is gone", j.ID)
	}
}

func (k *kit) list(q serverless.ListQuery) (ids []serverless.JobID) {
	k.Helper()
	for j, err := range k.q.List(k.Context(), k.now, q) {
		if err != nil {
			k.Fatalf("List = %v, want no error", err)
		}
		ids = append(ids, j.ID)
	}
	return ids
}

func (k *kit) stats(endpoint string) serverless.Stats {
	k.Helper()
	s, err := k.q.Stats(k.Context(), k.now, endpoint)
	if err != nil {
		k.Fatalf("Stats = %v, want nil", err)
	}
	return s
}

// chunks are the chunks that nobody drained.
func (k *kit) chunks(j serverless.Job, maxBytes int) ([]string, serverless.State) {
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

// equal compares; a queue need not tell an empty payload from none.
func (k *kit) equal(what string, want, got any) {
	k.Helper()
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty()); diff != "" {
		k.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func ids(jobs []serverless.Job) []serverless.JobID {
	list := make([]serverless.JobID, len(jobs))
	for i := range jobs {
		list[i] = jobs[i].ID
	}
	return list
}
