package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/incidents"
)

func pathEscape(s string) string { return url.PathEscape(s) }

// An overviewBody is what the first page shows. A part that the key may not read is null.
type overviewBody struct {
	Endpoints []overviewEndpoint `json:"endpoints"`
	Listed    bool               `json:"listed"` // false: the key may not list endpoints, so these are from its scopes
	Pods      *overviewPods      `json:"pods"`
	State     json.RawMessage    `json:"state"` // for operators
	Incidents []incidentItem     `json:"incidents"`
	More      bool               `json:"more"` // there are other endpoints
}

// An incidentItem is what the first page shows of an incident.
type incidentItem struct {
	Cause    string   `json:"cause"`
	Severity string   `json:"severity"`
	Kind     string   `json:"kind"`
	ID       string   `json:"id"`
	Name     string   `json:"name"`
	Since    string   `json:"since"`
	Who      []string `json:"who"`
	More     int      `json:"more"`
	Act      string   `json:"act"`
	Detail   string   `json:"detail"`
}

// incidents returns what is wrong for who looks at it, the most severe first.
func (c *Console) incidents(s *session) []incidentItem {
	items := []incidentItem{}
	if c.Incidents == nil {
		return items
	}
	list := c.Incidents()
	if !s.who.Operator() {
		list = incidents.For(list, s.who.User)
	}
	for _, i := range list {
		items = append(items, incidentItem{
			string(i.Cause), string(i.Severity), i.Kind, i.ID, i.Name, i.Since.UTC().Format(time.RFC3339),
			append([]string{}, i.Who...), i.More, i.Act, i.Detail,
		})
	}
	return items
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

// overviewPods are the pods of the user, with what the first page shows of them.
type overviewPods struct {
	Pods []overviewPod `json:"pods"`
	More bool          `json:"more"` // there are others
}

type overviewPod struct {
	ID     string `json:"id"`
	Name   string `json:"name"`
	Status string `json:"status"`
}

func (c *Console) overview(w *httpapi.Answer, r *http.Request, s *session) {
	b := overviewBody{State: json.RawMessage("null")}
	owner := ""
	if s.who.Operator() {
		owner = everybodys
	}
	b.Endpoints, b.More, b.Listed = c.seenEndpoints(w, r, s, owner)
	if s.who.Can(readsPods) {
		b.Pods = c.listPods(w, r, s, owner)
	}
	for i := range b.Endpoints {
		c.measure(w, r, s, &b.Endpoints[i])
	}
	if owner != "" {
		b.State = c.read(w, r, s, "/v2/admin/state").json()
	}
	b.Incidents = c.incidents(s)
	answer(w, b)
}

// A list is read page by page, so that one page is in memory. Of each record only what is shown is kept.
const (
	maxPages   = 10 // of a list
	onePage    = "?limit=1000"
	everybodys = "&owner=*"
)

// seenEndpoints returns the endpoints that the key may list, or those that its scopes name if it may list none.
func (c *Console) seenEndpoints(w *httpapi.Answer, r *http.Request, s *session, owner string) (list []overviewEndpoint, more, listed bool) {
	if s.who.Can(readsEndpoints) {
		if list, more, listed = c.listEndpoints(w, r, s, owner); listed {
			return list, more, true
		}
	}
	list = []overviewEndpoint{}
	for _, p := range s.who.Scopes {
		if p.Area == "endpoint" && p.Endpoint != "*" {
			list = append(list, overviewEndpoint{ID: p.Endpoint, Name: p.Endpoint})
		}
	}
	return list, false, false
}

// listEndpoints returns the endpoints that the key may list. ok is false if it may list none.
func (c *Console) listEndpoints(w *httpapi.Answer, r *http.Request, s *session, owner string) (list []overviewEndpoint, more, ok bool) {
	type item struct {
		ID, Name, Type string
		Workers        struct{ Max *int }
	}
	type page struct {
		Endpoints []struct {
			item

			Owner string
			Item  item
		}
	}
	list = []overviewEndpoint{}
	more, ok = eachPage(c, w, r, s, "/v2/serverless"+onePage+owner, func(got *page) {
		for _, e := range got.Endpoints {
			x := e.item
			if owner != "" {
				x = e.Item
			}
			list = append(list, overviewEndpoint{ID: x.ID, Name: x.Name, Type: x.Type, Owner: e.Owner, MaxWorkers: x.Workers.Max})
		}
	})
	return list, more, ok
}

// listPods returns the pods that the key may list, or nil if it may list none.
func (c *Console) listPods(w *httpapi.Answer, r *http.Request, s *session, owner string) *overviewPods {
	type page struct {
		Pods []struct {
			overviewPod

			Item overviewPod
		}
	}
	b := &overviewPods{Pods: []overviewPod{}}
	var ok bool
	b.More, ok = eachPage(c, w, r, s, "/v2/pods"+onePage+owner, func(got *page) {
		for _, p := range got.Pods {
			x := p.overviewPod
			if owner != "" {
				x = p.Item
			}
			b.Pods = append(b.Pods, x)
		}
	})
	if !ok {
		return nil
	}
	return b
}

// eachPage reads the first pages of a list. more reports whether there are others, and ok whether the
// key may read the list.
func eachPage[T any](c *Console, w *httpapi.Answer, r *http.Request, s *session, target string, use func(*T)) (more, ok bool) {
	for range maxPages {
		var got T
		next, ok := c.readPage(w, r, s, target, &got)
		if !ok {
			return false, false
		}
		use(&got)
		if target = next; target == "" {
			return false, true
		}
	}
	return true, true
}

// measure adds what an endpoint is like now.
func (c *Console) measure(w *httpapi.Answer, r *http.Request, s *session, e *overviewEndpoint) {
	e.Health = c.read(w, r, s, "/v2/"+pathEscape(e.ID)+"/health").json()
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
func (c *Console) waiting(w *httpapi.Answer, r *http.Request, s *session) {
	id := pathEscape(r.PathValue("endpoint"))
	a := c.read(w, r, s, "/v2/"+id+"/health")
	if !a.ok() {
		pass(w, a)
		return
	}
	b := waitingBody{Health: a.json(), Oldest: json.RawMessage("null")}
	if job, n, err := c.oldest(w, r, s, id, a); err != nil {
		pass(w, err)
		return
	} else if b.Waiting = n; job.ID != "" {
		b.Oldest = job.raw
		if s.who.Can(readsEndpoints) {
			b.Why = c.why(w, r, s, id, job.ID)
		}
	}
	c.addSettings(w, r, s, &b)
	answer(w, b)
}

// addSettings adds what the key may read of the settings of an endpoint and of its workers.
func (c *Console) addSettings(w *httpapi.Answer, r *http.Request, s *session, b *waitingBody) {
	b.Endpoint, b.Queue, b.Decisions = json.RawMessage("null"), json.RawMessage("null"), json.RawMessage("null")
	at := "/v2/serverless/" + pathEscape(r.PathValue("endpoint"))
	if s.who.Can(readsEndpoints) {
		b.Endpoint = c.read(w, r, s, at).json()
	}
	if !c.manages(r, s) {
		return
	}
	b.Queue = c.read(w, r, s, at+"/queue").json()
	var of struct{ Workers json.RawMessage }
	if c.readInto(w, r, s, at+"/workers", &of) {
		b.Workers = &workersBody{of.Workers, c.moreOf(r)}
	}
	b.Decisions = c.read(w, r, s, at+"/decisions").json()
}

// What pages read again and again. The console does not ask for what the key may not read: each refusal
// would be a line in the audit log.
var (
	readsEndpoints = httpapi.Permission{Area: "endpoints", Level: httpapi.Read}
	readsPods      = httpapi.Permission{Area: "pods", Level: httpapi.Read}
)

// manages reports whether the key may read the workers and the queue of the endpoint in the path: those
// of a shared one are for operators.
func (c *Console) manages(r *http.Request, s *session) bool {
	return c.managesOne(r, s, r.PathValue("endpoint"))
}

func (c *Console) managesOne(r *http.Request, s *session, endpoint string) bool {
	if !s.who.Can(readsEndpoints) {
		return false
	}
	if c.Jobs == nil || s.who.Operator() {
		return true // or the API refuses it
	}
	e, err := c.Jobs.GetEndpoint(r.Context(), s.who.User, endpoint)
	return err == nil && e.Owner != ""
}

// endpoint says what the page of an endpoint has.
func (c *Console) endpoint(w *httpapi.Answer, r *http.Request, s *session) {
	answer(w, struct {
		Managed bool `json:"managed"`
	}{c.manages(r, s)})
}

func (c *Console) why(w *httpapi.Answer, r *http.Request, s *session, endpoint, job string) string {
	var got struct{ Why string }
	c.readInto(w, r, s, "/v2/serverless/"+endpoint+"/decisions?jobId="+url.QueryEscape(job), &got)
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
func (c *Console) workers(w *httpapi.Answer, r *http.Request, s *session) {
	a := c.read(w, r, s, "/v2/serverless/"+pathEscape(r.PathValue("endpoint"))+"/workers")
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
func (c *Console) oldest(w *httpapi.Answer, r *http.Request, s *session, endpoint string, health *recorded) (job listedJob, n int, refused *recorded) {
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
		a := c.read(w, r, s, "/v2/"+endpoint+"/requests?status=IN_QUEUE&limit=1&offset="+strconv.Itoa(at)+owner)
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
