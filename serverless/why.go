package serverless

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/unwrap"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// Decisions returns the recent decisions of the scaler for an endpoint, oldest first: at most
// 100, one for each change. At a server that does not decide for it, the last 20. It returns ErrNoEndpoint for an unknown endpoint.
func (s *Service) Decisions(ctx context.Context, endpoint string) ([]fleet.Decision, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	if shown, elsewhere, err := s.shownElsewhere(ctx, endpoint); err != nil {
		return nil, err
	} else if elsewhere {
		return fleet.ReadDecisions(shown)
	}
	return s.scaler.Decisions(endpoint), nil
}

// ColdStarts returns how long the last workers of an endpoint took to start, from the decision of
// the scaler to their first request for a job, oldest first: at most fleet.MaxColdStarts. It
// returns ErrNoEndpoint for an unknown endpoint.
func (s *Service) ColdStarts(ctx context.Context, endpoint string) ([]fleet.ColdStart, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	if shown, elsewhere, err := s.shownElsewhere(ctx, endpoint); err != nil {
		return nil, err
	} else if elsewhere {
		return fleet.ReadColdStarts(shown)
	}
	return s.scaler.ColdStarts(endpoint), nil
}

// Why returns a text for users that says what a job waits for. Errors are those of Get.
func (s *Service) Why(ctx context.Context, owner string, ref Ref) (string, error) {
	j, err := s.Get(ctx, owner, ref)
	if err != nil {
		return "", err
	}
	switch {
	case j.Status == InProgress:
		return fmt.Sprintf("it does not wait: worker %s has it", j.Worker), nil
	case j.Status.Terminal():
		return fmt.Sprintf("it does not wait: it is %v", j.Status), nil
	}
	if draft, err := s.drafts().Has(ctx, ref.ID); draft || err != nil {
		return "it is in a batch that was not started", err
	}
	if j.Delayed {
		return "it is not ready before " + j.Queued.Time().Format(time.RFC3339), nil
	}
	e, err := s.endpoints.Get(ctx, ref.Endpoint)
	if err != nil {
		return "", err
	}
	if blocked, err := s.blockedBy(ctx, &j, e); err != nil || blocked != "" {
		return "it may not start yet, and no worker is started for it: " + blocked, err
	}
	why := []string{"it waits for a worker", s.present(ref.Endpoint)}
	if j.Deliveries > 0 {
		why = append(why, lostBy(j.Deliveries))
	}
	if j.Releases >= queue.MaxReleases {
		why = append(why, fmt.Sprintf("workers that ended gave it back %d times, so it waits at the end of its turn", j.Releases))
	}
	if w := j.Barred(); w != "" {
		why = append(why, fmt.Sprintf("until %s it is given to another worker than %s", j.LeaseUntil.Time().Format(time.RFC3339), w))
	}
	if !s.scaler.Manages(e) {
		return strings.Join(append(why, "the service starts none for this endpoint"), "; "), nil
	}
	if j.Flags&queue.LowPriority != 0 {
		why = append(why, "it is of low priority, for which none is started")
	}
	why = append(why, s.scaler.Explain(ref.Endpoint, j.Queued)...)
	held, err := s.roomHeldBy(ctx, ref.Endpoint)
	if held != "" {
		why = append(why, held)
	}
	return strings.Join(why, "; "), err
}

// roomHeldBy says who has the room that workers of an endpoint wait for, or "". It names no endpoint,
// because others may be of other users.
func (s *Service) roomHeldBy(ctx context.Context, endpoint string) (string, error) {
	list, pods, ok, err := s.scaler.Holders(ctx, endpoint)
	if !ok || err != nil {
		return "", err
	}
	others := 0
	for id, n := range list {
		if id != endpoint {
			others += n
		}
	}
	return "the room is held by " + heldText(list[endpoint], others, pods), nil
}

func heldText(own, others, pods int) string {
	return fmt.Sprintf("%s of this endpoint, %s of other endpoints and %s", counted(own, "worker"), counted(others, "worker"), counted(pods, "pod"))
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

// Trouble returns why the workers of an endpoint fail before they have done a job; ok is false while they
// do not.
func (s *Service) Trouble(ctx context.Context, endpoint string) (x fleet.Trouble, ok bool, err error) {
	if shown, elsewhere, err := s.shownElsewhere(ctx, endpoint); err != nil {
		return x, false, err
	} else if elsewhere {
		return fleet.ReadTrouble(shown)
	}
	x, ok = s.scaler.Trouble(endpoint)
	return x, ok, nil
}

// blockedBy says in words what keeps a ready job from a worker, or "".
func (s *Service) blockedBy(ctx context.Context, j *Job, e *Endpoint) (string, error) {
	q := e.QueueSettings()
	if q.Paused {
		return "its endpoint is paused", nil
	}
	r := q.Rules()
	if held, err := s.heldBy(ctx, j, &r); err != nil || held != "" {
		return held, err
	}
	if !r.Limited() {
		return "", nil
	}
	key, user, total := 0, 0, 0
	for o, err := range s.queue.List(ctx, s.now(), queue.ListQuery{Endpoint: e.ID, Status: []Status{InProgress}}) {
		if err != nil {
			return "", err
		}
		total++
		if o.Owner == j.Owner {
			user++
			if o.Key == j.Key {
				key++
			}
		}
	}
	switch {
	case q.Total > 0 && total >= q.Total:
		return fmt.Sprintf("%d jobs of the endpoint run, which is its total", total), nil
	case q.PerUser > 0 && user >= q.PerUser:
		return fmt.Sprintf("%d jobs of its owner run, which is the endpoint's perUser", user), nil
	}
	if limit := r.KeyLimit(j.Key); limit > 0 && key >= limit {
		return fmt.Sprintf("%d jobs of its key run, which is the endpoint's perKey", key), nil
	}
	return "", nil
}

// heldBy says in words which rate, or a worker that holds its key, keeps a ready job from a worker, or "".
func (s *Service) heldBy(ctx context.Context, j *Job, r *queue.Rules) (string, error) {
	h, ok := unwrap.As[queue.RateHolder](s.queue)
	if !ok {
		return "", nil
	}
	held, err := h.HeldBy(ctx, s.now(), j.Endpoint, j.Owner, j.Key, r)
	if err != nil || held.By == "" {
		return "", err
	}
	if held.By == queue.ByHold {
		return "a worker holds its key until " + held.Until.Time().Format(time.RFC3339Nano), nil
	}
	rate := map[string]queue.Rate{"rate": r.Rate, "perUserRate": r.PerUserRate, "perKeyRate": r.PerKeyRate, "keys": r.KeyRate(j.Key)}[held.By]
	return fmt.Sprintf("the endpoint's %s, %d starts in %d ms, has no room before %s",
		held.By, rate.Limit, rate.Per.Milliseconds(), held.Until.Time().Format(time.RFC3339Nano)), nil
}

// present describes the workers of an endpoint in words.
func (s *Service) present(endpoint string) string {
	list := s.workerList(endpoint)
	n := countWorkers(list)
	var parts []string
	add := func(n int, what string) {
		if n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, what))
		}
	}
	add(n.Running, "busy")
	add(n.Idle, "idle")
	add(n.Initializing, "starting")
	add(n.Throttled, "without capacity")
	add(n.Unhealthy, "not healthy")
	if len(parts) == 0 {
		return "there is none"
	}
	return "its workers: " + strings.Join(parts, ", ")
}

// lostBy says how often workers have lost a job.
func lostBy(n uint8) string {
	if n == 1 {
		return "a worker had it and lost it"
	}
	return fmt.Sprintf("%d times a worker had it and lost it", n)
}
