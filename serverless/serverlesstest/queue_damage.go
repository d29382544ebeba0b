package serverlesstest

import (
	"errors"
	"testing"

	"github.com/podyard/podyard/serverless"
)

func damageCases() []QueueCase {
	return []QueueCase{
		rule("DamageFailsAQueuedJob",
			"a queued job that is damaged is FAILED, says why, has no input, and its webhook is sent like any other",
			func(k *kit) {
				j := k.add(hooked)
				other := k.add()
				k.must(user(j, serverless.OpDamage))
				got := k.status(j, serverless.Failed)
				k.equal("Reason, Finished, Input", []any{serverless.Damaged, k.now, []byte(nil)}, []any{got.Reason, got.Finished, got.Input})
				if got.ErrorText() == "" {
					k.Errorf("ErrorText is empty, want what happened")
				}
				k.equal("the job of the delivery", got, k.delivery().Job)
				k.equal("Claim", []serverless.JobID{other.ID}, ids(k.claim(k.slot("w", 2))))
				k.equal("Failed", int64(1), k.stats(echo).Failed)
			}),
		rule("OnlyQueuedJobsAreDamaged",
			"OpDamage answers ErrStatus for a job that runs or has ended: a worker has had its input",
			func(k *kit) {
				j := k.run()
				k.refuse(user(j, serverless.OpDamage), serverless.ErrStatus)
				k.must(done(j, "1"))
				k.refuse(user(j, serverless.OpDamage), serverless.ErrStatus)
			}),
		rule("WithoutAnInputNothingIsRunAgain",
			"a damaged job cannot be retried",
			func(k *kit) {
				j := k.add()
				k.must(user(j, serverless.OpDamage))
				k.refuse(user(j, serverless.OpRetry), serverless.ErrInputLost)
				k.now += keep
				k.expire()
				k.gone(j)
			}),
	}
}

// A Damager is a queue whose payloads can be damaged.
type Damager struct {
	Queue serverless.JobQueue // empty
	// Damage has the input of a job be unreadable from now on.
	Damage func(serverless.Ref)
}

// TestDamage runs the rules of what a queue does when it comes upon a damaged input.
func TestDamage(t *testing.T, queue func(t *testing.T) Damager) {
	for _, c := range []struct {
		name string
		run  func(k *kit, damage func(serverless.Ref))
	}{
		{"ClaimPassesOverWhatIsDamaged", claimDamaged},
		{"GetEndsWhatIsDamaged", getDamaged},
		{"WhoHasTheInputGoesOn", damagedWhileItRuns},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := queue(t)
			c.run(&kit{T: t, q: d.Queue, now: start}, d.Damage)
		})
	}
}

// claimDamaged: a claim gives as many jobs as it would without those that are damaged, which
// have failed by then.
func claimDamaged(k *kit, damage func(serverless.Ref)) {
	jobs := k.addN(6, hooked)
	for _, i := range []int{0, 2, 3, 5} {
		damage(jobs[i].Ref)
	}
	k.equal("Claim", []serverless.JobID{jobs[1].ID, jobs[4].ID}, ids(k.claim(k.slot("v", 1), k.slot("w", 4))))
	k.equal("Claim", 0, len(k.claim(k.slot("w", 4))))
	for _, i := range []int{0, 2, 3, 5} {
		k.equal("Reason", serverless.Damaged, k.status(jobs[i], serverless.Failed).Reason)
	}
	ds := k.deliveries(10)
	k.equal("Deliveries", 4, len(ds))
	for _, d := range ds {
		k.equal("Status, Fault, Input", []any{serverless.Failed, "", []byte(nil)}, []any{d.Job.Status, d.Fault, d.Job.Input})
	}
	st := k.stats(echo)
	k.equal("Queued, Running, Failed", []int64{0, 2, 4}, []int64{st.Queued, st.Running, st.Failed})
}

// getDamaged: a job that nobody claims fails when it is looked at.
func getDamaged(k *kit, damage func(serverless.Ref)) {
	jobs := k.addN(2, hooked)
	damage(jobs[0].Ref)
	k.equal("Reason", serverless.Damaged, k.status(jobs[0], serverless.Failed).Reason)
	k.equal("Deliveries", 1, len(k.deliveries(10)))
	k.status(jobs[1], serverless.InQueue)
	k.equal("Claim", []serverless.JobID{jobs[1].ID}, ids(k.claim(k.slot("w", 2))))
}

// damagedWhileItRuns: a job that was given is finished, and read without its input; one that
// comes back to the queue fails.
func damagedWhileItRuns(k *kit, damage func(serverless.Ref)) {
	k.addN(2, hooked)
	jobs := k.claim(k.slot("w", 2))
	for _, j := range jobs {
		damage(j.Ref)
		if got := k.status(j, serverless.InProgress); got.Input != nil {
			k.Errorf("input of a damaged job = %q, want none", got.Input)
		}
	}
	k.must(done(jobs[0], `"out"`), as(jobs[1], serverless.OpRelease))
	got := k.status(jobs[0], serverless.Completed)
	k.equal("Input, Output", []any{[]byte(nil), []byte(`"out"`)}, []any{got.Input, got.Output})
	d := k.delivery()
	k.equal("the job of the delivery", got, d.Job)
	k.record(k.attempt(d, 0))
	k.equal("Claim", 0, len(k.claim(k.slot("w", 1))))
	k.status(jobs[1], serverless.Failed)
	if r := k.apply(user(jobs[1], serverless.OpRetry))[0]; !errors.Is(r.Err, serverless.ErrInputLost) {
		k.Errorf("Retry = %v, want ErrInputLost", r.Err)
	}
}
