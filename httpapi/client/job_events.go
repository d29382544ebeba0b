package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// A JobEvent is something that has happened to a job or to a worker (docs/interface.md 6.3).
type JobEvent struct {
	ID     string    `json:"id"`   // where EventOptions.After goes on
	Type   string    `json:"type"` // queued, completed, failed, cancelled, timed_out, deleted, gap, or one of worker_
	Time   time.Time `json:"time"`
	Job    string    `json:"job"`    // empty: gap, or an event of a worker
	Status JobStatus `json:"status"` // empty: deleted, gap, or an event of a worker
	Worker string    `json:"worker"` // of an event of a worker, which only the owner of the endpoint gets
}

// Events follows what happens to the caller's jobs, also over broken connections: to one job,
// or to all if job is empty; later than the event with the id after, or from now on if that is
// empty; only these types, or all. A gap says that events are missing: read the jobs that
// matter. It is an addition. An error ends it.
func (j *Jobs) Events(ctx context.Context, job, after string, types ...string) iter.Seq2[JobEvent, error] {
	q := url.Values{}
	if len(types) > 0 {
		q["types"] = types
	}
	if job != "" {
		q.Set("job", job)
	}
	r := j.to(http.MethodGet, q, "events")
	r.last = after
	return follow(ctx, j.c, r, func(m message) (e JobEvent, err error) {
		err = json.Unmarshal(m.data, &e)
		return e, err
	})
}
