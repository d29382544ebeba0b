package serverlesstest

import (
	"errors"
	"testing"

	"github.com/podyard/podyard/serverless/queue"
)

func damageCases() []QueueCase {
	return []QueueCase{
		rule("DamageFailsAQueuedJob",
			"a queued job that is damaged is FAILED, says why, has no input, and its webhook is sent like any other",
			func(k *fixture) {
				j := k.add(withWebhook)
				other := k.add()
				k.mustApply(userOp(j, queue.OpDamage))
				got := k.wantStatus(j, queue.Failed)
				k.wantEqual("Reason, Finished, Input", []any{queue.Damaged, k.now, []byte(nil)}, []any{got.Reason, got.Finished, got.Input})
				if got.ErrorText() == "" {
					k.Errorf("ErrorText is empty, want what happened")
				}
				k.wantEqual("the job of the delivery", got, k.delivery().Job)
				k.wantEqual("Claim", []queue.JobID{other.ID}, ids(k.claim(k.slot("w", 2))))
				k.wantEqual("Failed", int64(1), k.stats(echo).Failed)
			}),
		rule("OnlyQueuedJobsAreDamaged",
			"OpDamage answers ErrStatus for a job that runs or has ended: a worker has had its input",
			func(k *fixture) {
				j := k.run()
				k.mustRefuse(userOp(j, queue.OpDamage), queue.ErrStatus)
				k.mustApply(finishOp(j, "1"))
				k.mustRefuse(userOp(j, queue.OpDamage), queue.ErrStatus)
			}),
		rule("WithoutAnInputNothingIsRunAgain",
			"a damaged job cannot be retried",
			func(k *fixture) {
				j := k.add()
				k.mustApply(userOp(j, queue.OpDamage))
				k.mustRefuse(userOp(j, queue.OpRetry), queue.ErrInputLost)
				k.now += keep
				k.expire()
				k.wantGone(j)
			}),
	}
}

// A Damager is a queue whose payloads a test can damage.
type Damager struct {
	Queue queue.JobQueue // empty
	// Damage makes the input of a job unreadable from now on.
	Damage func(queue.Ref)
}

// TestDamage runs the rules for a queue that finds a damaged input.
func TestDamage(t *testing.T, newDamager func(t *testing.T) Damager) {
	for _, c := range []struct {
		name string
		run  func(k *fixture, damage func(queue.Ref))
	}{
		{"ClaimPassesOverWhatIsDamaged", claimDamaged},
		{"GetEndsWhatIsDamaged", getDamaged},
		{"WhoHasTheInputGoesOn", damagedWhileItRuns},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDamager(t)
			c.run(&fixture{T: t, q: d.Queue, now: start}, d.Damage)
		})
	}
}

// claimDamaged checks that Claim returns as many jobs as without the damaged ones, which it
// fails.
func claimDamaged(k *fixture, damage func(queue.Ref)) {
	jobs := k.addN(6, withWebhook)
	for _, i := range []int{0, 2, 3, 5} {
		damage(jobs[i].Ref)
	}
	k.wantEqual("Claim", []queue.JobID{jobs[1].ID, jobs[4].ID}, ids(k.claim(k.slot("v", 1), k.slot("w", 4))))
	k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 4))))
	for _, i := range []int{0, 2, 3, 5} {
		k.wantEqual("Reason", queue.Damaged, k.wantStatus(jobs[i], queue.Failed).Reason)
	}
	ds := k.deliveries(10)
	k.wantEqual("Deliveries", 4, len(ds))
	for _, d := range ds {
		k.wantEqual("Status, Fault, Input", []any{queue.Failed, "", []byte(nil)}, []any{d.Job.Status, d.Fault, d.Job.Input})
	}
	st := k.stats(echo)
	k.wantEqual("Queued, Running, Failed", []int64{0, 2, 4}, []int64{st.Queued, st.Running, st.Failed})
}

// getDamaged checks that Get fails a damaged job that nobody has claimed.
func getDamaged(k *fixture, damage func(queue.Ref)) {
	jobs := k.addN(2, withWebhook)
	damage(jobs[0].Ref)
	k.wantEqual("Reason", queue.Damaged, k.wantStatus(jobs[0], queue.Failed).Reason)
	k.wantEqual("Deliveries", 1, len(k.deliveries(10)))
	k.wantStatus(jobs[1], queue.InQueue)
	k.wantEqual("Claim", []queue.JobID{jobs[1].ID}, ids(k.claim(k.slot("w", 2))))
}

// damagedWhileItRuns checks that a running job finishes and is read without its input, and
// that a job that returns to the queue fails.
func damagedWhileItRuns(k *fixture, damage func(queue.Ref)) {
	k.addN(2, withWebhook)
	jobs := k.claim(k.slot("w", 2))
	for _, j := range jobs {
		damage(j.Ref)
		if got := k.wantStatus(j, queue.InProgress); got.Input != nil {
			k.Errorf("input of a damaged job = %q, want none", got.Input)
		}
	}
	k.mustApply(finishOp(jobs[0], `"out"`), workerOp(jobs[1], queue.OpRelease))
	got := k.wantStatus(jobs[0], queue.Completed)
	k.wantEqual("Input, Output", []any{[]byte(nil), []byte(`"out"`)}, []any{got.Input, got.Output})
	d := k.delivery()
	k.wantEqual("the job of the delivery", got, d.Job)
	k.record(k.attempt(d, 0))
	k.wantEqual("Claim", 0, len(k.claim(k.slot("w", 1))))
	k.wantStatus(jobs[1], queue.Failed)
	if r := k.apply(userOp(jobs[1], queue.OpRetry))[0]; !errors.Is(r.Err, queue.ErrInputLost) {
		k.Errorf("Retry = %v, want ErrInputLost", r.Err)
	}
}
