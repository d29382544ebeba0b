package serverlesstest

import "github.com/podyard/podyard/serverless/queue"

// A modelKey is the key of a unique job.
type modelKey struct{ endpoint, owner, key string }

func modelKeyOf(j *queue.Job) modelKey { return modelKey{j.Endpoint, j.Owner, j.Unique.Key} }

// checkKeys returns the error of jobs one of which has a key that another job holds.
func (m *Model) checkKeys(jobs []queue.Job) error {
	mine := map[modelKey]queue.Ref{}
	for i := range jobs {
		j := &jobs[i]
		if j.Unique.Key == "" {
			continue
		}
		if ref, ok := mine[modelKeyOf(j)]; ok {
			return &queue.TakenError{Ref: ref}
		}
		mine[modelKeyOf(j)] = j.Ref
		if err := m.holder(j.Submitted, j); err != nil {
			return err
		}
	}
	return nil
}

// holder returns the error of a job whose key another job holds, or nil.
func (m *Model) holder(now queue.Instant, j *queue.Job) error {
	ref := m.unique[modelKeyOf(j)]
	if h := m.jobs[ref]; h != nil && ref != j.Ref && h.HoldsKey(now) {
		return &queue.TakenError{Ref: ref}
	}
	return nil
}

func (m *Model) takeKey(j *queue.Job) {
	if j.Unique.Key == "" {
		return
	}
	if m.unique == nil {
		m.unique = map[modelKey]queue.Ref{}
	}
	m.unique[modelKeyOf(j)] = j.Ref
}

func (m *Model) dropKey(j *queue.Job) {
	if m.unique[modelKeyOf(j)] == j.Ref {
		delete(m.unique, modelKeyOf(j))
	}
}
