package console

import (
	"cmp"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// Bounds of the list of jobs of all endpoints.
const (
	maxJobEndpoints = 30  // that are asked
	jobsEach        = 50  // jobs of each that are looked at
	maxAllJobs      = 200 // that are shown
)

// An allJobsBody is what the page of the jobs of all endpoints shows.
type allJobsBody struct {
	Jobs      []jobItem `json:"jobs"` // newest first
	More      bool      `json:"more"` // there are others
	Counts    jobCounts `json:"counts"`
	Endpoints int       `json:"endpoints"` // that were asked
}

// jobCounts are the jobs of the endpoints that were asked, of all their users.
type jobCounts struct {
	InQueue    int64 `json:"inQueue"`
	InProgress int64 `json:"inProgress"`
	Completed  int64 `json:"completed"`
	Failed     int64 `json:"failed"`
}

func (n *jobCounts) add(m jobCounts) {
	n.InQueue += m.InQueue
	n.InProgress += m.InProgress
	n.Completed += m.Completed
	n.Failed += m.Failed
}

type jobItem struct {
	Endpoint      string  `json:"endpoint"`
	Name          string  `json:"name"`
	Owner         string  `json:"owner,omitempty"`
	ID            string  `json:"id"`
	Status        string  `json:"status"`
	Submitted     *string `json:"submitted"`
	DelayTime     *int64  `json:"delayTime"`
	ExecutionTime *int64  `json:"executionTime"`
}

// allJobs answers the newest jobs of all endpoints that the user sees: own jobs, or those of all users for
// an operator. Each endpoint is asked for one page, so that it costs little.
func (c *Console) allJobs(w *httpapi.Answer, r *http.Request, s *session) {
	if c.Jobs == nil {
		refuse(w, errNotHere)
		return
	}
	b := allJobsBody{Jobs: []jobItem{}}
	q := url.Values{"limit": {strconv.Itoa(jobsEach)}}
	if status := r.URL.Query().Get("status"); status != "" {
		q.Set("status", status)
	}
	owner := ""
	if s.who.Operator() {
		owner = everybodys
		q.Set("owner", "*")
	}
	list, more, _ := c.seenEndpoints(w, r, s, owner)
	b.More = more
	for _, e := range list {
		reads := httpapi.Permission{Area: "endpoint", Endpoint: e.ID, Level: httpapi.Read}
		if e.Type == loadBalancer || !s.who.Can(reads) {
			continue
		}
		if b.Endpoints == maxJobEndpoints {
			b.More = true
			break
		}
		b.Endpoints++
		b.More = c.addJobs(w, r, s, e, q, &b) || b.More
	}
	slices.SortStableFunc(b.Jobs, func(x, y jobItem) int { return cmp.Compare(textOf(y.Submitted), textOf(x.Submitted)) })
	if len(b.Jobs) > maxAllJobs {
		b.Jobs, b.More = b.Jobs[:maxAllJobs], true
	}
	answer(w, b)
}

const loadBalancer = "LOAD_BALANCER"

func textOf(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// addJobs adds the newest jobs of an endpoint, and reports whether there are others.
func (c *Console) addJobs(w *httpapi.Answer, r *http.Request, s *session, e overviewEndpoint, q url.Values, b *allJobsBody) (more bool) {
	var health struct{ Jobs jobCounts }
	if c.readInto(w, r, s, "/v2/"+pathEscape(e.ID)+"/health", &health) {
		b.Counts.add(health.Jobs)
	}
	var got struct {
		Requests []struct {
			jobItem

			Item jobItem
		}
		Total int
	}
	if !c.readInto(w, r, s, "/v2/"+pathEscape(e.ID)+"/requests?"+q.Encode(), &got) {
		return true // it may be asked again soon: see docs/interface.md 8.3
	}
	first := len(b.Jobs)
	for _, x := range got.Requests {
		j := x.jobItem
		if q.Has("owner") {
			j = x.Item
			j.Owner = x.Owner
		}
		j.Endpoint, j.Name = e.ID, cmp.Or(e.Name, e.ID)
		b.Jobs = append(b.Jobs, j)
	}
	c.addTimes(r, e.ID, b.Jobs[first:])
	return got.Total > len(got.Requests)
}

// addTimes adds when jobs of an endpoint were submitted.
func (c *Console) addTimes(r *http.Request, endpoint string, list []jobItem) {
	ids := make([]serverless.JobID, len(list))
	for i := range list {
		ids[i] = serverless.JobID(list[i].ID)
	}
	jobs, err := c.Jobs.JobsByID(r.Context(), serverless.AllOwners, endpoint, ids)
	if err != nil {
		return // the list says less
	}
	at := make(map[string]*string, len(jobs))
	for i := range jobs {
		at[string(jobs[i].ID)] = instant(jobs[i].Submitted)
	}
	for i := range list {
		list[i].Submitted = at[list[i].ID]
	}
}
