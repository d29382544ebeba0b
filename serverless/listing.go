package serverless

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/queue"
)

// A Page is a part of a listing.
type Page struct {
	Jobs  []Job
	Total int // number of jobs that match, on all pages
}

// A RequestsQuery selects jobs of an endpoint for Requests.
type RequestsQuery struct {
	Status        []Status // empty: any status
	Prefix        string   // of the id; empty: any
	Offset, Limit int
	Full          bool // with input and output
}

// Requests lists the jobs of owner, or of AllOwners, newest first. Without q.Full, a job has
// no payloads, except the error of a FAILED job. It returns ErrNoEndpoint for an unknown
// endpoint.
func (s *Service) Requests(ctx context.Context, owner, endpoint string, q RequestsQuery) (p Page, err error) {
	total, jobs, err := s.EachRequest(ctx, owner, endpoint, q)
	if err != nil {
		return Page{}, err
	}
	p.Total = total
	for j, err := range jobs {
		if err != nil {
			return Page{}, err
		}
		p.Jobs = append(p.Jobs, j)
	}
	return p, nil
}

// EachRequest is Requests, but reads the payloads of a job only when jobs yields it. An error
// that jobs yields is the last one.
func (s *Service) EachRequest(ctx context.Context, owner, endpoint string, q RequestsQuery) (total int, jobs iter.Seq2[Job, error], err error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return 0, nil, err
	}
	now := s.now()
	page, err := s.page(ctx, now, queue.ListQuery{Endpoint: endpoint, Owner: ownerFilter(owner), Status: q.Status, Prefix: JobID(q.Prefix)}, &q)
	if err != nil {
		return 0, nil, fmt.Errorf("serverless: list %q: %w", endpoint, err)
	}
	return page.Total, func(yield func(Job, error) bool) {
		for _, j := range page.Jobs {
			j, err := s.request(ctx, now, j, q.Full)
			if errors.Is(err, ErrNotFound) {
				continue // deleted since it was listed
			}
			if !yield(j, err) || err != nil {
				return
			}
		}
	}, nil
}

// request returns a listed job as a list of requests has it.
func (s *Service) request(ctx context.Context, now Instant, listed Job, full bool) (Job, error) {
	if !full && listed.Status != Failed { // the State has all that is shown
		return listed, nil
	}
	j, err := s.queue.Get(ctx, now, listed.Ref)
	switch {
	case errors.Is(err, ErrDamaged):
		j = listed
	case err != nil:
		return Job{}, fmt.Errorf("serverless: list %q: %w", listed.Endpoint, err)
	}
	if !full {
		j = Job{Ref: j.Ref, Owner: j.Owner, State: j.State, Error: j.Error}
	}
	return j, nil
}

// page returns the jobs of a page as they are listed, and the number of all that match. A queue
// that counts is asked for the jobs of the page only.
func (s *Service) page(ctx context.Context, now Instant, l queue.ListQuery, q *RequestsQuery) (p Page, err error) {
	counter, counts := unwrap.As[queue.Counter](s.queue)
	if counts {
		if p.Total, err = counter.Count(ctx, now, l); err != nil || q.Limit <= 0 {
			return p, err
		}
		l.Offset, l.Limit = q.Offset, q.Limit
	}
	n := 0
	for j, err := range s.queue.List(ctx, now, l) {
		if err != nil {
			return Page{}, err
		}
		if counts || n >= q.Offset && len(p.Jobs) < q.Limit {
			p.Jobs = append(p.Jobs, j)
		}
		n++
	}
	if !counts {
		p.Total = n
	}
	return p, nil
}
