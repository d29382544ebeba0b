package console

import (
	"cmp"
	"encoding/json"
	"net/http"
	"net/url"
	"slices"
	"strconv"

	"github.com/podyard/podyard/httpapi"
)

// Bounds of the list of webhooks.
const (
	maxWebhookEndpoints = 100 // that are asked
	webhooksEach        = 50  // webhooks of each that are looked at
	maxWebhooks         = 500 // that are shown
)

// A webhooksBody is what the page of webhooks shows.
type webhooksBody struct {
	Webhooks []webhookItem `json:"webhooks"` // newest job first
	More     bool          `json:"more"`     // there are others, or older ones
	Outbox   *outboxBody   `json:"outbox"`   // for operators
}

type webhookItem struct {
	Endpoint   string          `json:"endpoint"`
	Owner      string          `json:"owner,omitempty"`
	Job        string          `json:"job"`
	JobStatus  string          `json:"jobStatus"`
	FinishedAt string          `json:"finishedAt"`
	State      string          `json:"state"`
	Attempts   int             `json:"attempts"`
	Last       json.RawMessage `json:"last"`
}

// An outboxBody is what waits to be sent, of all users.
type outboxBody struct {
	Pending int     `json:"pending"`
	Oldest  *string `json:"oldest"` // since when the oldest is due
}

// webhooks answers the webhooks of the jobs of all endpoints that the user can list.
func (c *Console) webhooks(w *httpapi.Answer, r *http.Request, s *session) {
	b := webhooksBody{Webhooks: []webhookItem{}}
	q := url.Values{"limit": {strconv.Itoa(webhooksEach)}}
	if state := r.URL.Query().Get("state"); state != "" {
		q.Set("state", state)
	}
	owner := ""
	if s.who.Operator() {
		owner = everybodys
		q.Set("owner", "*")
		b.Outbox = c.outbox(r)
	}
	list, more, _ := c.listEndpoints(w, r, s, owner)
	b.More = more
	for i, e := range list {
		if i == maxWebhookEndpoints {
			b.More = true
			break
		}
		if e.Type != loadBalancer {
			b.More = c.addWebhooks(w, r, s, e.ID, q, &b.Webhooks) || b.More
		}
	}
	slices.SortStableFunc(b.Webhooks, func(x, y webhookItem) int { return cmp.Compare(y.FinishedAt, x.FinishedAt) })
	if len(b.Webhooks) > maxWebhooks {
		b.Webhooks, b.More = b.Webhooks[:maxWebhooks], true
	}
	answer(w, b)
}

// addWebhooks adds the newest webhooks of an endpoint, and reports whether there are older ones.
func (c *Console) addWebhooks(w *httpapi.Answer, r *http.Request, s *session, endpoint string, q url.Values, to *[]webhookItem) (more bool) {
	var got struct {
		Webhooks []struct {
			webhookItem

			Item webhookItem
		}
		Cursor *string
	}
	if !c.readInto(w, r, s, "/v2/serverless/"+pathEscape(endpoint)+"/deliveries?"+q.Encode(), &got) {
		return false
	}
	for _, x := range got.Webhooks {
		h := x.webhookItem
		if q.Has("owner") {
			h = x.Item
			h.Owner = x.Owner
		}
		h.Endpoint = endpoint
		*to = append(*to, h)
	}
	return got.Cursor != nil
}

// outbox returns what waits to be sent, if the queue counts it.
func (c *Console) outbox(r *http.Request) *outboxBody {
	if c.Jobs == nil {
		return nil
	}
	l, ok, err := c.Jobs.Load(r.Context())
	if err != nil || !ok {
		return nil
	}
	b := &outboxBody{Pending: l.Deliveries}
	if l.OldestDelivery != 0 {
		b.Oldest = instant(l.OldestDelivery)
	}
	return b
}
