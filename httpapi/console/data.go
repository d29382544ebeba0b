package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

func pathEscape(s string) string { return url.PathEscape(s) }

// An overviewBody is what the first page shows. A part that the key may not read is null.
type overviewBody struct {
	Endpoints []overviewEndpoint `json:"endpoints"`
	Listed    bool               `json:"listed"` // false: the key may not list endpoints, so these are from its scopes
	Pods      json.RawMessage    `json:"pods"`
	State     json.RawMessage    `json:"state"`  // for operators
	Outbox    *outboxBody        `json:"outbox"` // for operators
}

type overviewEndpoint struct {
	ID         string          `json:"id"`
	Name       string          `json:"name"`
	Type       string          `json:"type"`
	Owner      string          `json:"owner,omitempty"`
	MaxWorkers *int            `json:"maxWorkers"`
	Health     json.RawMessage `json:"health"`
	FailedHour int64           `json:"failedHour"`
	Oldest     int32           `json:"oldest"` // seconds
	Queued     []int32         `json:"queued"` // of the last hour, one a minute
}

func (c *Console) overview(w http.ResponseWriter, r *http.Request, s *session) {
	b := overviewBody{Pods: json.RawMessage("null"), State: json.RawMessage("null")}
	id, err := c.Auth.Authenticate(r.Context(), s.Key)
	if err != nil {
		c.forget(w, err)
		return
	}
	owner := ""
	if id.Operator() {
		owner = "?owner=*"
		b.State, b.Outbox = c.read(r, s, "/v2/admin/state").json(), c.outbox(r)
	}
	b.Endpoints, b.Listed = c.listEndpoints(r, s, owner)
	if !b.Listed {
		for _, p := range id.Scopes {
			if p.Area == "endpoint" && p.Endpoint != "*" {
				b.Endpoints = append(b.Endpoints, overviewEndpoint{ID: p.Endpoint, Name: p.Endpoint})
			}
		}
	}
	for i := range b.Endpoints {
		c.measure(r, s, &b.Endpoints[i])
	}
	b.Pods = c.read(r, s, "/v2/pods"+owner).json()
	answer(w, b)
}

// listEndpoints returns the endpoints that the key may list. ok is false if it may list none.
func (c *Console) listEndpoints(r *http.Request, s *session, owner string) (list []overviewEndpoint, ok bool) {
	type item struct {
		ID, Name, Type string
		Workers        struct{ Max *int }
	}
	var got struct {
		Endpoints []struct {
			item

			Owner string
			Item  item
		}
	}
	list = []overviewEndpoint{}
	if !c.readInto(r, s, "/v2/serverless"+owner, &got) {
		return list, false
	}
	for _, e := range got.Endpoints {
		x := e.item
		if owner != "" {
			x = e.Item
		}
		list = append(list, overviewEndpoint{ID: x.ID, Name: x.Name, Type: x.Type, Owner: e.Owner, MaxWorkers: x.Workers.Max})
	}
	return list, true
}

// measure adds what an endpoint is like now.
func (c *Console) measure(r *http.Request, s *session, e *overviewEndpoint) {
	e.Health = c.read(r, s, "/v2/"+pathEscape(e.ID)+"/health").json()
	if string(e.Health) == "null" {
		e.Queued = []int32{}
		return
	}
	past := c.history.read(e.ID)
	e.FailedHour = c.history.failedLately(e.ID)
	if n := len(past.Oldest); n > 0 {
		e.Oldest = past.Oldest[n-1]
	}
	e.Queued = []int32{}
	for minute := range slices.Chunk(past.Queued, 12) {
		e.Queued = append(e.Queued, slices.Max(minute))
	}
}

// A waitingBody says why jobs of an endpoint wait.
type waitingBody struct {
	Health    json.RawMessage `json:"health"`
	Waiting   int             `json:"waiting"` // jobs of the user, or of all users for an operator
	Oldest    json.RawMessage `json:"oldest"`  // the job that waits longest, or null
	Why       string          `json:"why"`
	Endpoint  json.RawMessage `json:"endpoint"`
	Queue     json.RawMessage `json:"queue"`
	Workers   *workersBody    `json:"workers"`
	Decisions json.RawMessage `json:"decisions"`
}

// waiting explains the oldest job that waits. Parts that the key may not see are null.
func (c *Console) waiting(w http.ResponseWriter, r *http.Request, s *session) {
	id := pathEscape(r.PathValue("endpoint"))
	a := c.read(r, s, "/v2/"+id+"/health")
	if !a.ok() {
		pass(w, a)
		return
	}
	b := waitingBody{Health: a.json(), Oldest: json.RawMessage("null")}
	if job, n, err := c.oldest(r, s, id, a); err != nil {
		pass(w, err)
		return
	} else if b.Waiting = n; job.ID != "" {
		b.Oldest, b.Why = job.raw, c.why(r, s, id, job.ID)
	}
	b.Endpoint = c.read(r, s, "/v2/serverless/"+id).json()
	b.Queue = c.read(r, s, "/v2/serverless/"+id+"/queue").json()
	var of struct{ Workers json.RawMessage }
	if c.readInto(r, s, "/v2/serverless/"+id+"/workers", &of) {
		b.Workers = &workersBody{of.Workers, c.moreOf(r)}
	}
	b.Decisions = c.read(r, s, "/v2/serverless/"+id+"/decisions").json()
	answer(w, b)
}

func (c *Console) why(r *http.Request, s *session, endpoint, job string) string {
	var got struct{ Why string }
	c.readInto(r, s, "/v2/serverless/"+endpoint+"/decisions?jobId="+url.QueryEscape(job), &got)
	return got.Why
}

// A workersBody is the workers of an endpoint, and what the API does not say of them.
type workersBody struct {
	Workers json.RawMessage       `json:"workers"` // of the API
	More    map[string]workerMore `json:"more"`
}

type workerMore struct {
	Reason string   `json:"reason"` // why it is unhealthy or throttled
	Jobs   []string `json:"jobs"`   // that it has
}

// workers answers the workers of an endpoint to whoever may list them.
func (c *Console) workers(w http.ResponseWriter, r *http.Request, s *session) {
	a := c.read(r, s, "/v2/serverless/"+pathEscape(r.PathValue("endpoint"))+"/workers")
	if !a.ok() {
		pass(w, a)
		return
	}
	var got struct{ Workers json.RawMessage }
	if err := json.Unmarshal(a.body.Bytes(), &got); err != nil {
		refuse(w, err)
		return
	}
	answer(w, workersBody{got.Workers, c.moreOf(r)})
}

// moreOf returns what the service knows of the workers of the endpoint in the path. The API has shown
// them to the user.
func (c *Console) moreOf(r *http.Request) map[string]workerMore {
	more := map[string]workerMore{}
	if c.Jobs == nil {
		return more
	}
	list, err := c.Jobs.WorkerList(r.Context(), r.PathValue("endpoint"))
	if err != nil {
		return more // it was deleted meanwhile
	}
	for _, x := range list {
		m := workerMore{Reason: x.Reason, Jobs: []string{}}
		for _, id := range x.Jobs {
			m.Jobs = append(m.Jobs, string(id))
		}
		more[string(x.ID)] = m
	}
	return more
}

// A listedJob is an item of a list of jobs.
type listedJob struct {
	ID  string
	raw json.RawMessage
}

// oldest returns the job that was submitted first of those that wait, and how many wait. The
// list is newest first, so the last item is looked for where health says that it is; a second
// look is needed where jobs of others wait too. refused is an answer that is no list.
func (c *Console) oldest(r *http.Request, s *session, endpoint string, health *recorded) (job listedJob, n int, refused *recorded) {
	var h struct{ Jobs struct{ InQueue int } }
	_ = json.Unmarshal(health.body.Bytes(), &h) // it is 0 then, and the second look finds the job
	at, owner := max(h.Jobs.InQueue-1, 0), ""
	if r.URL.Query().Get("owner") != "" {
		owner = "&owner=*"
	}
	for range 3 {
		var list struct {
			Requests []json.RawMessage
			Total    int
		}
		a := c.read(r, s, "/v2/"+endpoint+"/requests?status=IN_QUEUE&limit=1&offset="+strconv.Itoa(at)+owner)
		if !a.ok() || json.Unmarshal(a.body.Bytes(), &list) != nil {
			return job, 0, a
		}
		n = list.Total
		if len(list.Requests) == 1 && at == n-1 || n == 0 {
			return firstJob(list.Requests), n, nil
		}
		at = n - 1
	}
	return job, n, nil // jobs come and go so quickly that nothing waits
}

func firstJob(list []json.RawMessage) (j listedJob) {
	if len(list) == 0 {
		return j
	}
	var x struct {
		ID   string
		Item struct{ ID string }
	}
	_ = json.Unmarshal(list[0], &x) // the API has made it
	return listedJob{ID: x.ID + x.Item.ID, raw: list[0]}
}

// maxShown is how much of a payload a page gets. The rest is for a download.
const maxShown = 256 << 10

// contentDisposition names the file of a download after the job.
func contentDisposition(job, part string) string {
	name := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' {
			return r
		}
		return '_'
	}, job)
	return fmt.Sprintf("attachment; filename=%q", name+"-"+part+".json")
}
