package serverlesstest

import (
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

func snoozeOp(j queue.Job, ready queue.Instant) queue.Op {
	return workerOp(j, queue.OpFinish, func(op *queue.Op) { op.Status, op.Ready = queue.InQueue, ready })
}

// snoozeCases are the rules of what a worker says of its job instead of a result.
func snoozeCases() []QueueCase {
	return []QueueCase{
		rule("ASnoozedJobIsReadyAgainLater",
			"a snooze queues the job again until an instant, without output, and spends no attempt and no delivery; any worker gets it then, at the end of the queue",
			func(k *fixture) {
				j := k.run(threeAttempts)
				k.mustApply(workerOp(j, queue.OpProgress, func(op *queue.Op) { op.Payload = []byte("1") }))
				k.mustApply(snoozeOp(j, k.now+60_000))
				got := k.wantStatus(j, queue.InQueue)
				if !got.Delayed || got.Queued != k.now+60_000 || got.Deliveries != 0 || got.Attempt != 0 || got.Output != nil || got.Snoozes != 1 {
					k.Errorf("the job is %+v, want it delayed by a minute, and nothing counted but the snooze", got.State)
				}
				k.wantEqual("Retried", int64(0), k.stats(echo).Retried)
				behind := k.add()
				k.wait(time.Minute)
				k.expire()
				k.wantEqual("the first job", behind.ID, k.take("w").ID)
				again := k.take("w")
				k.wantEqual("the second job", j.ID, again.ID)
				if past, err := k.q.PastLeases(k.Context(), k.now, j.Ref); err != nil || len(past) != 1 || past[0].End != queue.LeaseSnoozed || past[0].Ready != j.Started+60_000 {
					k.Errorf("PastLeases = %+v, %v, want one that was snoozed", past, err)
				}
				k.mustApply(finishOp(again, "2"))
			}),
		rule("ASnoozePastTheTTLFails",
			"a job that would not be ready before its ttl, or was put off too often, is FAILED at once with the reason, whatever its policy",
			func(k *fixture) {
				j := k.run(threeAttempts, func(j *queue.Job) { j.Expires = k.now + 60_000 })
				k.mustApply(snoozeOp(j, k.now+60_000))
				if got := k.wantStatus(j, queue.Failed); got.Reason != queue.SnoozedTooLong || got.ErrorText() == "" {
					k.Errorf("the job is %v %q, want it snoozed too long", got.Reason, got.ErrorText())
				}
				often := k.run()
				for range queue.MaxSnoozes {
					k.mustApply(snoozeOp(often, k.now+1))
					k.now++
					k.expire()
					often = k.take("w")
				}
				k.mustApply(snoozeOp(often, k.now+1))
				k.wantStatus(often, queue.Failed)
			}),
		rule("AWorkerCancelsItsJob",
			"a worker that holds the lease ends the job as CANCELLED, with its webhook and without an output; nobody is told to stop",
			func(k *fixture) {
				j := k.run(withWebhook, threeAttempts)
				cancel := workerOp(j, queue.OpFinish, func(op *queue.Op) { op.Status = queue.Cancelled })
				other := cancel
				other.Token++
				k.mustRefuse(other, queue.ErrLeaseLost)
				if r := k.apply(cancel)[0]; r.Err != nil || r.Effect&(queue.EvStop|queue.PutOutput) != 0 {
					k.Errorf("the worker's cancel = effects %b, %v, want no stop and no output", r.Effect, r.Err)
				}
				k.wantStatus(j, queue.Cancelled)
				if ds, err := k.q.Deliveries(k.Context(), k.now, k.now+1000, 10); err != nil || len(ds) != 1 {
					k.Errorf("Deliveries = %d, %v, want the webhook", len(ds), err)
				}
			}),
	}
}
