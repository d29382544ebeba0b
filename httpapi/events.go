package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/events"
)

func eventOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("jobEvents", "GET /v2/{endpoint}/events", ScopeEndpointRead, jobEvents, rate(ratelimit.Events), added, staysOpen(budget.Streams)),
	)
}

func (b *describer) describeEvents() map[string]description {
	return map[string]description{
		"jobEvents": {summary: "Follow what happens to jobs", text: aboutEvents, params: eventParams(), answers: ok(openapi.Of("string")), media: "text/event-stream"},
	}
}

const aboutEvents = "Server-sent events. data is an object with id, type, time, job and status, and worker for an event of a worker; id is where a reader can go on, in the header " +
	"Last-Event-ID. An event of the type gap says that events are missing."

func eventParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		listInQuery("types", values(events.Types()...), "Only these types, and gap."),
		inQuery("job", openapi.Of("string").NotEmpty(), "Only of this job."),
		{Name: "Last-Event-ID", In: "header", Schema: openapi.Of("string"), Description: "The id of an event: all later ones come. Absent: those to come."},
	}
}

// slowReader is how long a client may take to accept what is written. Then it is cut off.
const slowReader = 30 * time.Second

// An eventBody is an event on the wire (docs/interface.md 6.3).
type eventBody struct {
	ID     string      `json:"id"`
	Type   events.Type `json:"type"`
	Time   wireTime    `json:"time"`
	Job    *string     `json:"job"`
	Status *string     `json:"status"`
	Worker string      `json:"worker,omitempty"`
}

// An eventQuery selects events.
type eventQuery struct {
	after *events.ID // nil: from now on
	types []events.Type
	job   string
	owner string
}

func (q *eventQuery) wants(e *events.Event) bool {
	if e.Type == events.Gap {
		return true
	}
	if e.Worker != "" && (q.owner != serverless.AllOwners || q.job != "") {
		return false // workers are those of the endpoint's owner
	}
	return (q.owner == serverless.AllOwners || q.owner == e.Owner) && (len(q.types) == 0 || slices.Contains(q.types, e.Type)) &&
		(q.job == "" || q.job == string(e.Job))
}

func (c *call) eventQuery() (q eventQuery, err error) {
	q.owner = c.ownerScope()
	if q.types, err = querySome(c, "types", events.Types()...); err != nil {
		return q, err
	}
	if q.job, err = c.queryText("job"); err != nil {
		return q, err
	}
	if last := c.r.Header.Get("Last-Event-ID"); last != "" {
		id, err := events.ParseID(last)
		if err != nil {
			return q, err
		}
		q.after = &id
	}
	return q, nil
}

// jobEvents streams what happens to the jobs and workers of an endpoint, until the endpoint is deleted, the
// client disconnects, or the client is too slow.
func jobEvents(c *call) error {
	q, err := c.eventQuery()
	if err != nil {
		return err
	}
	h := c.w.Header()
	setEventStream(h)
	h.Set("Connection", "keep-alive")
	if c.r.Method == http.MethodHead {
		c.w.WriteHeader(http.StatusOK)
		return nil
	}
	r := c.Jobs.Events().Open(c.r.PathValue("endpoint"), q.after)
	defer r.Close()
	c.w.WriteHeader(http.StatusOK)
	c.sendJobEvents(r, &q)
	return nil
}

func (c *call) sendJobEvents(r *events.Reader, q *eventQuery) {
	p := newPulse()
	defer p.Stop()
	rc := http.NewResponseController(c.w)
	defer func() { _ = rc.SetWriteDeadline(time.Time{}) }() // not every writer has deadlines
	var b []byte
	for {
		list, more, err := r.Read()
		if err != nil {
			return // the client continues after its last event, and gets a gap
		}
		for i := range list {
			if q.wants(&list[i]) {
				b = appendJobEvent(b, &list[i])
			}
		}
		if err := c.writeStream(rc, b); err != nil {
			return
		}
		b = b[:0]
		select {
		case <-more:
		case <-p.C:
			if !c.stillAllowed() {
				return
			}
			if !p.beats() {
				break
			}
			if _, err := c.usable(c.r.PathValue("endpoint")); err != nil {
				return
			}
			b = append(b, ": still here\n\n"...)
		case <-c.r.Context().Done():
			return
		}
	}
}

// writeStream writes a part of a stream. The first part may be empty: the client then sees that
// the stream has begun.
func (c *call) writeStream(rc *http.ResponseController, b []byte) error {
	_ = rc.SetWriteDeadline(time.Now().Add(slowReader)) // not every writer has deadlines
	if _, err := c.w.Write(b); err != nil {
		return err
	}
	if err := rc.Flush(); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	return nil
}

func appendJobEvent(b []byte, e *events.Event) []byte {
	body := eventBody{ID: e.ID.String(), Type: e.Type, Time: wireTime(e.Time), Job: orNull(string(e.Job)), Worker: string(e.Worker)}
	if s, ok := e.Status(); ok {
		body.Status = orNull(s.String())
	}
	data, err := json.Marshal(body)
	if err != nil {
		return b // impossible: it has strings
	}
	return fmt.Appendf(b, "id: %s\ndata: %s\n\n", body.ID, data)
}
