package console

import (
	"encoding/json"
	"net/http"
	"net/url"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// A jobsBody is a part of the list of jobs, and what the API does not say of them.
type jobsBody struct {
	Requests json.RawMessage    `json:"requests"` // of the API
	Total    int                `json:"total"`
	More     map[string]jobMore `json:"more"`
}

type jobMore struct {
	Submitted  *string `json:"submitted"`
	Queued     *string `json:"queued"` // when it may start
	Delayed    bool    `json:"delayed"`
	Deliveries uint8   `json:"deliveries"`
	Attempt    uint8   `json:"attempt"`  // that have ended
	Attempts   uint8   `json:"attempts"` // that its retry policy allows
}

// jobs answers the list of requests that the API answers, with the times of its jobs.
func (c *Console) jobs(w *httpapi.Answer, r *http.Request, s *session) {
	if c.Jobs == nil {
		refuse(w, errNotHere)
		return
	}
	endpoint := r.PathValue("endpoint")
	q, _ := url.ParseQuery(r.URL.RawQuery)
	q.Del("full") // this list has no payloads
	a := c.read(w, r, s, "/v2/"+pathEscape(endpoint)+"/requests?"+q.Encode())
	if !a.ok() {
		pass(w, a)
		return
	}
	var b jobsBody
	if err := json.Unmarshal(a.body.Bytes(), &b); err != nil {
		refuse(w, err)
		return
	}
	jobs, err := c.Jobs.JobsByID(r.Context(), serverless.AllOwners, endpoint, idsOf(b.Requests))
	if err != nil {
		refuse(w, err)
		return
	}
	b.More = make(map[string]jobMore, len(jobs))
	for i := range jobs {
		j := &jobs[i]
		b.More[string(j.ID)] = jobMore{
			Submitted: instant(j.Submitted), Queued: instant(j.Queued), Delayed: j.Delayed,
			Deliveries: j.Deliveries, Attempt: j.Attempt, Attempts: j.Retry.Attempts,
		}
	}
	answer(w, b)
}

// idsOf returns the ids of a list of the API, with owners or without.
func idsOf(list json.RawMessage) (ids []serverless.JobID) {
	var items []struct {
		ID   serverless.JobID
		Item struct{ ID serverless.JobID }
	}
	_ = json.Unmarshal(list, &items) // the API has made it
	for _, x := range items {
		ids = append(ids, x.ID+x.Item.ID)
	}
	return ids
}
