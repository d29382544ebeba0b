package batches

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/podyard/podyard/serverless/queue"
)

// A Summary is a batch as its user and its webhook see it (docs/interface.md 2.21).
type Summary struct {
	Owner             string `json:"-"`
	ID                string `json:"id"`
	EndpointID        string `json:"endpointId"`
	Status            Status `json:"status"`
	RequestTotal      int    `json:"requestTotal"`
	RequestInProgress int    `json:"requestInProgress"`
	RequestCompleted  int    `json:"requestCompleted"`
	RequestFailed     int    `json:"requestFailed"`
	CreatedAt         int64  `json:"createdAt"`      // Unix milliseconds
	Name              string `json:"name,omitempty"` // of a batch that has one
}

// Get returns a batch of owner on an endpoint, or ErrNotFound. Its counts are those of this
// moment.
func (s *Service) Get(ctx context.Context, owner, endpoint, id string) (Summary, error) {
	b, err := s.get(ctx, owner, endpoint, id)
	if err != nil {
		return Summary{}, err
	}
	return s.summary(ctx, &b)
}

// List returns the batches of owner on an endpoint, newest first.
func (s *Service) List(ctx context.Context, owner, endpoint string) ([]Summary, error) {
	list, err := s.listed(ctx, owner, endpoint)
	return s.summaries(ctx, list, err)
}

// All returns the batches of all users on an endpoint, newest first. Only operators may see
// them.
func (s *Service) All(ctx context.Context, endpoint string) ([]Summary, error) {
	list, err := s.store.All(ctx)
	return s.summaries(ctx, s.on(list, endpoint), err)
}

// listed returns the batches of owner on an endpoint, oldest first.
func (s *Service) listed(ctx context.Context, owner, endpoint string) ([]Batch, error) {
	list, err := s.store.List(ctx, owner)
	if err != nil {
		return nil, fmt.Errorf("batches: list: %w", err)
	}
	return s.on(list, endpoint), nil
}

func (s *Service) on(list []Batch, endpoint string) []Batch {
	now := s.now()
	return slices.DeleteFunc(list, func(b Batch) bool { return b.Endpoint != endpoint || b.gone(now) })
}

func (s *Service) summaries(ctx context.Context, list []Batch, err error) ([]Summary, error) {
	if err != nil {
		return nil, err
	}
	slices.Reverse(list)
	all := make([]Summary, 0, len(list))
	for i := range list {
		v, err := s.summary(ctx, &list[i])
		if err != nil {
			return nil, err
		}
		all = append(all, v)
	}
	return all, nil
}

// summary counts the requests of a batch as they are now.
func (s *Service) summary(ctx context.Context, b *Batch) (Summary, error) {
	now, running, err := s.present(ctx, b)
	if err != nil {
		return Summary{}, err
	}
	return now.summary(len(running)), nil
}

func (b *Batch) summary(running int) Summary {
	v := Summary{
		Owner: b.Owner, ID: b.ID, EndpointID: b.Endpoint, Status: b.Status, Name: b.Name, CreatedAt: b.Created.UnixMilli(),
		RequestInProgress: running,
	}
	for n := range b.Outcomes {
		switch b.outcome(n) {
		case Deleted, Reserved:
			continue
		case Completed:
			v.RequestCompleted++
		case Pending:
		default:
			v.RequestFailed++
		}
		v.RequestTotal++
	}
	if b.Status == Cancelled && v.RequestCompleted+v.RequestFailed < v.RequestTotal {
		v.Status = Finalized // until what runs has ended
	}
	return v
}

// present returns the batch with the outcomes of this moment, and the requests that run.
func (s *Service) present(ctx context.Context, b *Batch) (now Batch, running []int, err error) {
	now = b.Clone()
	pending := b.with(Pending)
	states, err := s.states(ctx, b, pending)
	if err != nil {
		return now, nil, err
	}
	for _, n := range pending {
		switch st, there := states[n]; {
		case !there:
			now.note(n, Expired)
		case st.Status.Terminal():
			now.note(n, outcomeOf(st.Status))
		case st.Status == queue.InProgress:
			running = append(running, n)
		}
	}
	return now, running, nil
}

// states returns the states of the jobs of requests, without those that are gone.
func (s *Service) states(ctx context.Context, b *Batch, numbers []int) (map[int]queue.State, error) {
	states := make(map[int]queue.State, len(numbers))
	for part := range slices.Chunk(numbers, moveStep) {
		q := queue.ListQuery{Endpoint: b.Endpoint, Owner: b.Owner}
		for _, n := range part {
			q.IDs = append(q.IDs, b.JobID(n))
		}
		for j, err := range s.queue.List(ctx, queue.At(s.now()), q) {
			if err != nil {
				return nil, fmt.Errorf("batches: list jobs of %q: %w", b.ID, err)
			}
			if _, n, ok := parseJobID(j.ID); ok {
				states[n] = j.State
			}
		}
	}
	return states, nil
}

// A Page is a part of the requests of a batch.
type Page struct {
	Requests []queue.Job // without input; of a job that is gone only id and status
	Total    int         // number of requests, on all pages
}

// maxPageBytes is the size of outputs from which a page is complete.
const maxPageBytes = 16 << 20

// Requests returns requests of a batch of owner: those that have failed come first, then those
// that run, those that wait, and those that are completed. A page with large outputs has fewer
// than limit. It returns ErrNotFound for an unknown batch.
func (s *Service) Requests(ctx context.Context, owner, endpoint, id string, offset, limit int) (p Page, err error) {
	b, err := s.get(ctx, owner, endpoint, id)
	if err != nil {
		return p, err
	}
	now, running, err := s.present(ctx, &b)
	if err != nil {
		return p, err
	}
	waiting := slices.DeleteFunc(now.with(Pending), func(n int) bool { return slices.Contains(running, n) })
	order := slices.Concat(now.with(Faulty, Stopped, TimedOut, Expired), running, waiting, now.with(Completed))
	p.Total = len(order)
	order = order[min(offset, len(order)):]
	size := 0
	for _, n := range order[:min(limit, len(order))] {
		j, err := s.request(ctx, &now, n)
		if err != nil {
			return Page{}, err
		}
		if size += len(j.Output); size > maxPageBytes && len(p.Requests) > 0 {
			break
		}
		p.Requests = append(p.Requests, j)
	}
	return p, nil
}

// request returns the job of a request.
func (s *Service) request(ctx context.Context, b *Batch, n int) (queue.Job, error) {
	j, err := s.queue.Get(ctx, queue.At(s.now()), b.ref(n))
	switch {
	case errors.Is(err, queue.ErrNotFound):
		j = queue.Job{Ref: b.ref(n), State: queue.State{Status: b.outcome(n).status()}}
		if b.outcome(n) == Expired {
			j.Error = "the request expired"
		}
	case err != nil && !errors.Is(err, queue.ErrDamaged):
		return queue.Job{}, fmt.Errorf("batches: read a request of %q: %w", b.ID, err)
	}
	return j, nil
}
