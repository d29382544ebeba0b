package batches

import (
	"context"
	"errors"

	"github.com/podyard/podyard/serverless/queue"
)

// Drafts tells which jobs are requests of a batch that was not started. It reads each batch once, so
// use one for a call and not longer. It is not for concurrent use.
type Drafts struct {
	service *Service
	known   map[string]bool // by batch
}

// Drafts returns an empty Drafts.
func (s *Service) Drafts() *Drafts { return &Drafts{s, map[string]bool{}} }

// Has reports whether a job is a request of a draft. A nil Drafts has none.
func (d *Drafts) Has(ctx context.Context, job queue.JobID) (bool, error) {
	id, _, ok := parseJobID(job)
	if d == nil || !ok {
		return false, nil
	}
	if draft, ok := d.known[id]; ok {
		return draft, nil
	}
	b, err := d.service.store.Get(ctx, id)
	if err != nil && !errors.Is(err, ErrNotFound) {
		return false, err
	}
	d.known[id] = err == nil && b.Status == Draft
	return d.known[id], nil
}
