package serverlesstest

import (
	"context"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless/queue"
)

// changeLimits changes the budgets of the user x. Half of the time there are none.
func (w *walker) changeLimits(context.Context) error {
	c, ok := w.Queue.(budget.Counter)
	if !ok {
		return nil
	}
	var set *budget.Set
	if w.Draw(2) == 0 {
		l := budget.Limits{}
		for _, limit := range []*int64{&l.Jobs, &l.QueuedJobs, &l.Deliveries, &l.DeadLetters} {
			if w.Draw(2) == 0 {
				*limit = int64(1 + w.Draw(3*w.Batch))
			}
		}
		if w.Draw(2) == 0 {
			l.JobBytes = int64(1 + w.Draw(100*w.Batch))
		}
		set = budget.NewSet(budget.Users{Named: map[string]budget.Limits{"x": l}})
	}
	c.Limit(set)
	w.model.Limit(set)
	w.limited = set != nil
	return nil
}

// compareUsage compares what users have.
func (w *walker) compareUsage(ctx context.Context) error {
	if _, ok := w.Queue.(budget.Counter); !ok {
		return nil
	}
	for _, user := range []string{"", "x", "y", "nobody"} {
		_, _, err := compareBoth(w, "Usage of "+user, func(q queue.JobQueue) (budget.Usage, error) {
			return q.(budget.Counter).Usage(ctx, user)
		})
		if err != nil {
			return err
		}
	}
	return nil
}
