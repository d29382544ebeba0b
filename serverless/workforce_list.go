package serverless

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"
)

// A WorkerStatus is how a worker is shown.
type WorkerStatus string

// The statuses of a worker.
const (
	StatusRunning      WorkerStatus = "RUNNING"      // it has a job
	StatusIdle         WorkerStatus = "IDLE"         // it could take one
	StatusInitializing WorkerStatus = "INITIALIZING" // it has not come for one yet
	StatusThrottled    WorkerStatus = "THROTTLED"    // there is no capacity for it
	StatusUnhealthy    WorkerStatus = "UNHEALTHY"    // it ended before it had done a job, or says that it is unwell
)

// A WorkerInfo is a worker, with what is known of it.
type WorkerInfo struct {
	ID         WorkerID
	Endpoint   string
	Status     WorkerStatus
	Fleet      bool // the fleet has it; else it runs in this process, or somebody else started it
	Ready      bool // it waits for a job at this moment
	Release    int  // Endpoint.Version it is made of; 0: not known
	Image      string
	Started    time.Time // zero until it runs, and when it is not the fleet's
	DataCenter string
	GPUType    string
	GPUs       int
	Jobs       []JobID // that it has
	Reason     string  // of StatusUnhealthy and StatusThrottled, for people
}

// WorkerList is the workers of an endpoint, those in this process included, by id. Workers
// that are being ended are not listed.
func (s *Service) WorkerList(ctx context.Context, endpoint string) ([]WorkerInfo, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	return s.workerList(endpoint), nil
}

func (s *Service) workerList(endpoint string) []WorkerInfo {
	views := s.crew.views(endpoint)
	list := make([]WorkerInfo, 0, len(views))
	for _, v := range views {
		list = append(list, v.info(endpoint))
	}
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squads[endpoint]
	if q == nil {
		return list
	}
	for _, h := range q.hands {
		i, known := slices.BinarySearchFunc(list, h.id, func(w WorkerInfo, id WorkerID) int { return cmp.Compare(w.ID, id) })
		switch w, shown := q.info(h); {
		case !known && !shown:
		case !known:
			list = slices.Insert(list, i, w)
		case !shown && len(list[i].Jobs) == 0:
			list = slices.Delete(list, i, i+1)
		default:
			w.Jobs, w.Ready = list[i].Jobs, list[i].Ready
			if w.Status == StatusInitializing {
				w.Status, w.Reason = list[i].Status, list[i].Reason
			}
			list[i] = w
		}
	}
	return list
}

// info is a member as it is shown when the fleet does not have it.
func (v *crewView) info(endpoint string) WorkerInfo {
	w := WorkerInfo{ID: v.ID, Endpoint: endpoint, Status: StatusIdle, Jobs: v.Jobs, Ready: v.Taking && !v.Leaving && v.Sick == ""}
	switch {
	case v.Sick != "":
		w.Status, w.Reason = StatusUnhealthy, v.Sick
	case len(v.Jobs) > 0:
		w.Status = StatusRunning
	}
	return w
}

// info is a worker of the fleet as it is shown as long as the crew does not know it; shown
// is false for one that is on its way out.
func (q *squad) info(h *hand) (w WorkerInfo, shown bool) {
	w = WorkerInfo{
		ID: h.id, Endpoint: h.endpoint, Status: StatusInitializing, Fleet: true,
		Release: h.seen.Release, Image: h.seen.Image, Started: h.seen.Started,
		DataCenter: h.seen.DataCenter, GPUType: h.seen.GPUType, GPUs: h.seen.GPUs,
	}
	switch {
	case h.ended:
		w.Status, w.Reason = StatusUnhealthy, h.seen.Exit
		return w, q.backoff.Fails > 0 && !h.stop
	case h.noRoom:
		w.Status, w.Reason = StatusThrottled, q.backoff.Reason
	}
	return w, !h.stop
}

// countWorkers is the numbers of health and metrics.
func countWorkers(list []WorkerInfo) (n WorkerCounts) {
	for i := range list {
		switch list[i].Status {
		case StatusRunning:
			n.Running++
		case StatusIdle:
			n.Idle++
		case StatusInitializing:
			n.Initializing++
		case StatusThrottled:
			n.Throttled++
		case StatusUnhealthy:
			n.Unhealthy++
		}
		if list[i].Ready {
			n.Ready++
		}
	}
	return n
}

// Decisions is what the scaler decided of an endpoint of late, oldest first: up to a
// hundred times that something changed.
func (s *Service) Decisions(ctx context.Context, endpoint string) ([]Decision, error) {
	if _, err := s.endpoints.Get(ctx, endpoint); err != nil {
		return nil, err
	}
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squads[endpoint]
	if q == nil {
		return nil, nil
	}
	list := slices.Clone(q.log)
	for i := range list {
		list[i].Stop, list[i].Drain = slices.Clone(list[i].Stop), slices.Clone(list[i].Drain)
	}
	return list, nil
}

// Why says in words what a job waits for. Errors are those of Get.
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
	e, err := s.endpoints.Get(ctx, ref.Endpoint)
	if err != nil {
		return "", err
	}
	why := []string{"it waits for a worker", s.present(ref.Endpoint)}
	if j.Deliveries > 0 {
		why = append(why, fmt.Sprintf("%s had it and lost it", workers(int(j.Deliveries))))
	}
	if !s.staffed(e) {
		return strings.Join(append(why, "the service starts none for this endpoint"), "; "), nil
	}
	if j.Flags&LowPriority != 0 {
		why = append(why, "it is of low priority, for which none is started")
	}
	return strings.Join(append(why, s.scalerSays(ref.Endpoint, j.Queued)...), "; "), nil
}

// present counts the workers of an endpoint in words.
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

// scalerSays is the last decision on an endpoint, if it is later than since, and what went
// wrong since then.
func (s *Service) scalerSays(endpoint string, since Instant) (why []string) {
	f := &s.force
	f.mu.Lock()
	defer f.mu.Unlock()
	q := f.squads[endpoint]
	switch {
	case !f.known:
		return []string{"the fleet has not said yet which workers it has"}
	case q == nil || len(q.log) == 0 || q.looked < since:
		return []string{"the scaler is about to look at it"}
	}
	why = append(why, q.log[len(q.log)-1].Reason)
	if q.lastEnd != "" && q.lastEndAt >= since && !strings.Contains(why[0], q.lastEnd) {
		why = append(why, "the last worker that ended by itself: "+q.lastEnd)
	}
	return why
}
