package console

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/podyard/podyard/httpapi"
)

// Bounds of a search.
const (
	maxSearch = 200 // bytes of what is searched for
	foundEach = 20  // records of a kind
	jobPrefix = 4   // characters from which jobs and workers are looked for, by the beginning of their ids
	jobsFound = 5   // of an endpoint
)

// A findBody is what a search has found.
type findBody struct {
	Found []foundItem `json:"found"`
	More  bool        `json:"more"` // there may be others
}

type foundItem struct {
	Kind     string `json:"kind"` // endpoint, pod, cluster, job or worker
	Endpoint string `json:"endpoint"`
	ID       string `json:"id"`
	Name     string `json:"name"`
	Owner    string `json:"owner"`
}

// A search looks for a text in what a user may see: own records, or those of all users for an operator.
type search struct {
	*findBody

	c     *Console
	w     *httpapi.Answer
	r     *http.Request
	s     *session
	text  string // in lower case
	owner string // as the lists of the API take it
}

// find answers the records whose name or id has a text, and the jobs and workers whose id begins with it.
func (c *Console) find(w *httpapi.Answer, r *http.Request, s *session) {
	b := findBody{Found: []foundItem{}}
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	if text == "" || len(text) > maxSearch {
		answer(w, b)
		return
	}
	x := search{findBody: &b, c: c, w: w, r: r, s: s, text: strings.ToLower(text)}
	if s.who.Operator() {
		x.owner = everybodys
	}
	endpoints, more, _ := c.seenEndpoints(w, r, s, x.owner)
	b.More = more
	list := make([]foundItem, len(endpoints))
	for i := range endpoints {
		e := &endpoints[i]
		list[i] = foundItem{Kind: "endpoint", ID: e.ID, Name: e.Name, Owner: e.Owner}
	}
	x.add(list)
	if s.who.Can(readsPods) {
		x.records("pod", "/v2/pods")
		x.records("cluster", "/v2/clusters")
	}
	if len(text) >= jobPrefix {
		x.inEndpoints(endpoints, text)
	}
	answer(w, b)
}

// add adds those of a list that match.
func (x *search) add(list []foundItem) {
	n := 0
	for _, f := range list {
		id, name := strings.ToLower(f.ID), strings.ToLower(f.Name)
		if !strings.Contains(id, x.text) && !strings.Contains(name, x.text) {
			continue
		}
		if n++; n > foundEach {
			x.More = true
			return
		}
		x.Found = append(x.Found, f)
	}
}

// records adds pods or clusters.
func (x *search) records(kind, path string) {
	type record struct{ ID, Name string }
	type item struct {
		record

		Owner string
		Item  record
	}
	type page struct{ Pods, Clusters []item }
	var list []foundItem
	more, _ := eachPage(x.c, x.w, x.r, x.s, path+onePage+x.owner, func(got *page) {
		for _, p := range append(got.Pods, got.Clusters...) {
			f := foundItem{Kind: kind, ID: p.ID, Name: p.Name, Owner: p.Owner}
			if x.owner != "" {
				f.ID, f.Name = p.Item.ID, p.Item.Name
			}
			list = append(list, f)
		}
	})
	x.More = x.More || more
	x.add(list)
}

// inEndpoints adds jobs and workers of the first endpoints.
func (x *search) inEndpoints(list []overviewEndpoint, text string) {
	n := 0
	for i := range list {
		e := &list[i]
		reads := httpapi.Permission{Area: "endpoint", Endpoint: e.ID, Level: httpapi.Read}
		if e.Type == loadBalancer || !x.s.who.Can(reads) {
			continue
		}
		if n++; n > maxJobEndpoints {
			x.More = true
			return
		}
		x.jobs(e, text)
		x.workers(e)
	}
}

func (x *search) jobs(e *overviewEndpoint, text string) {
	var got struct {
		Requests []struct {
			ID    string
			Owner string
			Item  struct{ ID string }
		}
		Total int
	}
	q := url.Values{"limit": {strconv.Itoa(jobsFound)}, "idPrefix": {text}}
	if !x.c.readInto(x.w, x.r, x.s, "/v2/"+pathEscape(e.ID)+"/requests?"+q.Encode()+x.owner, &got) {
		return // it is no beginning of an id
	}
	for _, j := range got.Requests {
		x.Found = append(x.Found, foundItem{Kind: "job", Endpoint: e.ID, ID: j.ID + j.Item.ID, Owner: j.Owner})
	}
	x.More = x.More || got.Total > len(got.Requests)
}

// workers adds those of an endpoint whose workers the user may see.
func (x *search) workers(e *overviewEndpoint) {
	if x.c.Jobs == nil || !x.c.managesOne(x.r, x.s, e.ID) {
		return
	}
	list, err := x.c.Jobs.WorkerList(x.r.Context(), e.ID)
	if err != nil {
		return // it was deleted meanwhile
	}
	for _, w := range list {
		if strings.HasPrefix(strings.ToLower(string(w.ID)), x.text) {
			x.Found = append(x.Found, foundItem{Kind: "worker", Endpoint: e.ID, ID: string(w.ID), Owner: e.Owner})
		}
	}
}
