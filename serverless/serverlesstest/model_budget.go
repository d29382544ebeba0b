package serverlesstest

import (
	"context"
	"maps"
	"slices"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

var _ budget.Counter = (*Model)(nil)

// Limit implements budget.Counter.
func (m *Model) Limit(s *budget.Set) { m.limits = s }

// Usage implements budget.Counter.
func (m *Model) Usage(_ context.Context, user string) (budget.Usage, error) {
	return m.usage(user), nil
}

// usage counts all that the model has.
func (m *Model) usage(user string) (u budget.Usage) {
	for _, j := range m.jobs {
		if j.Owner == user {
			u.Add(take(&j.Job))
		}
	}
	for _, d := range m.dead {
		if d.Owner == user {
			u[budget.DeadLetters]++
			u[budget.JobBytes] += d.Bytes()
		}
	}
	for _, e := range m.outbox {
		if e.Job.Owner == user {
			u[budget.Deliveries]++
			u[budget.JobBytes] += e.Job.Bytes()
		}
	}
	return u
}

// take is what a job takes.
func take(j *queue.Job) *budget.Usage {
	u := &budget.Usage{budget.Jobs: 1, budget.JobBytes: j.Bytes()}
	if j.Status == queue.InQueue {
		u[budget.QueuedJobs] = 1
	}
	return u
}

// Users implements budget.Counter.
func (m *Model) Users(context.Context) ([]string, error) {
	users := map[string]bool{}
	for _, j := range m.jobs {
		users[j.Owner] = true
	}
	for _, d := range m.dead {
		users[d.Owner] = true
	}
	for _, e := range m.outbox {
		users[e.Job.Owner] = true
	}
	return slices.Collect(maps.Keys(users)), nil
}

// admit refuses jobs whose owner would be over a limit.
func (m *Model) admit(jobs []queue.Job) error {
	for i := range jobs {
		if err := jobs[i].Check(); err != nil {
			return err
		}
	}
	for i := range jobs {
		j := &jobs[i]
		l := m.limits.Of(j.Owner)
		if l == nil || *l == (budget.Limits{}) {
			continue
		}
		used := m.usage(j.Owner)
		var asked budget.Usage
		for k := range jobs {
			if jobs[k].Owner == j.Owner {
				asked.Add(take(&jobs[k]))
			}
		}
		for _, b := range []budget.Budget{budget.Jobs, budget.QueuedJobs, budget.JobBytes} {
			if err := l.Check(b, used[b], asked[b]); err != nil {
				return err
			}
		}
		if err := l.Check(budget.DeadLetters, used[budget.DeadLetters], 1); j.DeadLetter > 0 && err != nil {
			return err
		}
		if err := l.Check(budget.Deliveries, used[budget.Deliveries], 1); j.Flags&queue.HasWebhook != 0 && err != nil {
			return err
		}
	}
	return nil
}

// fits refuses a report that the owner has no room for. j is the job after the move.
func (m *Model) fits(j *modelJob, before *queue.State, e queue.Effect, op *queue.Op) error {
	l := m.limits.Of(j.Owner)
	if l == nil {
		return nil
	}
	after := j.State
	j.State = *before
	used := m.usage(j.Owner)
	j.State = after
	return after.Fits(before, e, op, l, used[budget.JobBytes])
}
