package console

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
	"github.com/podyard/podyard/serverless/queue"
)

// Bounds of the history: 5 s apart for an hour, of 200 endpoints in which users have equal shares. It takes at
// most 200 * 720 * 36 bytes, or 5 MB, and 2 MB for the latency.
const (
	sampleEvery  = 5 * time.Second
	sampleCount  = 720
	maxEndpoints = 200
	mostLooked   = 50 * maxEndpoints // endpoints among which they are chosen
)

// A sample is what an endpoint was like at an instant.
type sample struct {
	queued, running, workers, idle int32
	completed, failed              int64 // since the endpoint was made
	oldest                         int32 // age of the oldest job that waits, in seconds
}

// A ring has the last samples of an endpoint.
type ring struct {
	last [sampleCount]sample
	n    int       // samples taken
	base int64     // of failed, before the first sample
	at   time.Time // of the newest

	latency latency
}

// history is a ring for each endpoint.
type history struct {
	times func(endpoint string) (ends []int64, waited, ran []uint64) // Options.JobTimes

	mu sync.Mutex
	by map[string]*ring
}

func (h *history) init() { h.by = map[string]*ring{} }

// add keeps a sample of an endpoint that was made at an instant. What has failed before the first sample
// of an endpoint that is younger than the history has failed lately, too.
func (h *history) add(now, made time.Time, endpoint string, s sample) {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.by[endpoint]
	if r == nil {
		if len(h.by) >= maxEndpoints {
			return
		}
		r = new(ring)
		if now.Sub(made) >= sampleCount*sampleEvery {
			r.base = s.failed
		}
		h.by[endpoint] = r
	}
	if r.n%latencyEvery == 0 && h.times != nil {
		if ends, waited, ran := h.times(endpoint); len(ends) > 0 {
			r.latency.add(ends, waited, ran)
		}
	}
	r.last[r.n%sampleCount] = s
	r.n++
	r.at = now
}

// drop forgets endpoints that have had no sample for a while: they are gone.
func (h *history) drop(before time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for id, r := range h.by {
		if r.at.Before(before) {
			delete(h.by, id)
		}
	}
}

// A historyBody has the series of an endpoint, oldest first, every seconds apart.
type historyBody struct {
	Every     int     `json:"every"`
	Queued    []int32 `json:"queued"`
	Running   []int32 `json:"running"`
	Workers   []int32 `json:"workers"`
	Idle      []int32 `json:"idle"`
	Oldest    []int32 `json:"oldest"`
	Completed []int64 `json:"completed"`
	Failed    []int64 `json:"failed"`

	ColdStarts *coldStartsBody `json:"coldStarts"` // null: no worker has started
	Latency    *latencyBody    `json:"latency"`    // null: it is not known
}

// A coldStartsBody sums up the last starts of workers: from the decision to start one until it
// asked for its first job.
type coldStartsBody struct {
	LastHour int     `json:"lastHour"` // of those that are known
	Known    int     `json:"known"`    // at most Most
	Most     int     `json:"most"`
	P50      int64   `json:"p50"` // milliseconds, of those that are known
	P90      int64   `json:"p90"`
	Last     *string `json:"last"`
}

// coldStarts returns nil if none is known.
func (c *Console) coldStarts(ctx context.Context, endpoint string) *coldStartsBody {
	if c.Jobs == nil {
		return nil
	}
	list, err := c.Jobs.ColdStarts(ctx, endpoint)
	if err != nil || len(list) == 0 {
		return nil // it was deleted meanwhile, or has none
	}
	b := &coldStartsBody{Known: len(list), Most: fleet.MaxColdStarts, Last: instant(list[len(list)-1].At)}
	hourAgo := queue.At(c.Clock.Now().Add(-time.Hour))
	took := make([]int64, len(list))
	for i, s := range list {
		took[i] = s.Took.Milliseconds()
		if s.At > hourAgo {
			b.LastHour++
		}
	}
	slices.Sort(took)
	b.P50, b.P90 = took[(len(took)+1)/2-1], took[(9*len(took)+9)/10-1]
	return b
}

func (h *history) read(endpoint string) historyBody {
	h.mu.Lock()
	defer h.mu.Unlock()
	b := historyBody{Every: int(sampleEvery.Seconds()), Queued: []int32{}, Running: []int32{}, Workers: []int32{}, Idle: []int32{}, Oldest: []int32{}, Completed: []int64{}, Failed: []int64{}}
	r := h.by[endpoint]
	if r == nil {
		return b
	}
	for i := max(r.n-sampleCount, 0); i < r.n; i++ {
		s := &r.last[i%sampleCount]
		b.Queued, b.Running = append(b.Queued, s.queued), append(b.Running, s.running)
		b.Workers, b.Idle = append(b.Workers, s.workers), append(b.Idle, s.idle)
		b.Oldest = append(b.Oldest, s.oldest)
		b.Completed, b.Failed = append(b.Completed, s.completed), append(b.Failed, s.failed)
	}
	b.Latency = r.latency.body()
	return b
}

// failedLately returns how many jobs of an endpoint have failed in the last hour, as far as it
// was seen.
func (h *history) failedLately(endpoint string) int64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	r := h.by[endpoint]
	if r == nil {
		return 0
	}
	before := r.base
	if r.n > sampleCount {
		before = r.last[r.n%sampleCount].failed
	}
	return max(r.last[(r.n-1)%sampleCount].failed-before, 0)
}

// Run records what endpoints are like, for the pictures of the last hour, until ctx ends. Then
// it returns nil. Without Options.Jobs there is nothing to record. The console works without
// Run too, and then has no pictures.
func (c *Console) Run(ctx context.Context) error {
	if c.Jobs == nil {
		<-ctx.Done()
		return nil
	}
	t := time.NewTicker(sampleEvery)
	defer t.Stop()
	for {
		if err := c.sample(ctx); err != nil && ctx.Err() == nil {
			c.Logger.WarnContext(ctx, "console: endpoints are not recorded", "err", err)
		}
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

func (c *Console) sample(ctx context.Context) error {
	now := c.Clock.Now()
	var all []*serverless.Endpoint
	for e, err := range c.Jobs.AllEndpoints(ctx) {
		if err != nil {
			return err
		}
		if all = append(all, e); len(all) == mostLooked {
			break
		}
	}
	for _, e := range fairly(all, maxEndpoints) {
		h, err := c.Jobs.Health(ctx, e.ID)
		if errors.Is(err, serverless.ErrNoEndpoint) {
			continue
		}
		if err != nil {
			return err
		}
		c.history.add(now, e.Created, e.ID, sampleOf(now, &h))
	}
	c.history.drop(now.Add(-10 * sampleEvery))
	return nil
}

// fairly chooses at most n endpoints: of each user the first one, then of each the second one, and so on.
func fairly(all []*serverless.Endpoint, n int) []*serverless.Endpoint {
	if len(all) <= n {
		return all
	}
	rank, of := map[*serverless.Endpoint]int{}, map[string]int{}
	for _, e := range all {
		rank[e] = of[e.Owner]
		of[e.Owner]++
	}
	slices.SortStableFunc(all, func(a, b *serverless.Endpoint) int { return rank[a] - rank[b] })
	return all[:n]
}

func sampleOf(now time.Time, h *serverless.Health) sample {
	w := h.Workers
	s := sample{
		queued: int32(h.Jobs.Queued), running: int32(h.Jobs.Running),
		workers: int32(w.Idle + w.Running + w.Initializing), idle: int32(w.Idle),
		completed: h.Jobs.Completed, failed: h.Jobs.Failed,
	}
	if h.Jobs.Oldest != 0 {
		s.oldest = int32(max(now.Sub(h.Jobs.Oldest.Time()), 0) / time.Second)
	}
	return s
}

// showHistory answers who may see the health of the endpoint.
func (c *Console) showHistory(w *httpapi.Answer, r *http.Request, s *session) {
	id := r.PathValue("endpoint")
	if a := c.read(w, r, s, "/v2/"+pathEscape(id)+"/health"); !a.ok() {
		pass(w, a)
		return
	}
	b := c.history.read(id)
	b.ColdStarts = c.coldStarts(r.Context(), id)
	answer(w, b)
}
