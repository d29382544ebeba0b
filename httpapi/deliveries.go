package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

func deliveryOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("listWebhooks", "GET /v2/serverless/{id}/deliveries", ScopeEndpointsRead, listWebhooks, byOwners, added, heavy),
		op("listDeliveries", "GET /v2/serverless/{id}/deliveries/{job}", ScopeEndpointsRead, listDeliveries, added),
		op("redeliver", "POST /v2/serverless/{id}/deliveries/{job}/redeliver", ScopeEndpointsWrite, redeliver, added),
	)
}

func (b *describer) describeDeliveries() map[string]description {
	id := fields(map[string]*openapi.Schema{"id": openapi.Of("string")}, "id")
	return map[string]description{
		"listWebhooks": {
			summary: "List the webhooks of the jobs of an endpoint, newest job first", text: "Those of jobs that have ended and are kept. A page may be empty and have a next one.",
			params: webhookParams(), answers: ok(withCursor(b.list("webhooks", openapi.For[webhookBody](&b.Builder), true))), headers: map[string]*openapi.Header{"Link": linkHeader()},
		},
		"listDeliveries": {summary: "List the attempts to send the webhook of a job", answers: ok(b.list("deliveries", openapi.For[attemptBody](&b.Builder), false))},
		"redeliver":      {summary: "Send the webhook of a job again", text: "409 while the job has not ended.", answers: ok(id)},
	}
}

func webhookParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		inQuery("state", values(webhookStates...), "Only with this state."),
		number("limit", 1, serverless.MaxWebhooks, defaultPage, "How many are looked at."),
		cursorParam(),
	}
}

// An attemptBody is one attempt to deliver the webhook of a job.
type attemptBody struct {
	ID     string    `json:"id"` // of the delivery: the same for all its attempts
	At     wireTime  `json:"at"`
	Status *int      `json:"status"` // null: there was no answer
	Error  *string   `json:"error"`
	Next   *wireTime `json:"next"` // null: it was the last one
}

// delivered returns the job of the caller in the path.
func (c *call) delivered() (serverless.Ref, error) {
	e, err := c.endpoint()
	if err != nil {
		return serverless.Ref{}, err
	}
	return serverless.Ref{Endpoint: e.ID, ID: serverless.JobID(c.r.PathValue("job"))}, nil
}

func listDeliveries(c *call) error {
	ref, err := c.delivered()
	if err != nil {
		return err
	}
	log, err := c.Jobs.Deliveries(c.r.Context(), c.owner, ref)
	if err != nil {
		return err
	}
	body := struct {
		Deliveries []attemptBody `json:"deliveries"`
	}{make([]attemptBody, 0, len(log))}
	for i := range log {
		body.Deliveries = append(body.Deliveries, attemptOf(&log[i]))
	}
	return writeJSON(c.w, http.StatusOK, body)
}

func attemptOf(a *serverless.Attempt) attemptBody {
	b := attemptBody{ID: a.DeliveryID, At: wireTime(a.At.Time()), Error: orNull(a.Err)}
	if a.Status != 0 {
		b.Status = &a.Status
	}
	if a.Next != 0 {
		t := wireTime(a.Next.Time())
		b.Next = &t
	}
	return b
}

// A webhookBody is what became of the webhook of a job.
type webhookBody struct {
	Job        string                  `json:"job"`
	JobStatus  string                  `json:"jobStatus"`
	FinishedAt wireTime                `json:"finishedAt"` // of the job
	State      serverless.WebhookState `json:"state"`
	Attempts   int                     `json:"attempts"`
	Last       *attemptBody            `json:"last"` // null: there was no attempt yet
}

func webhookOf(w *serverless.Webhook) webhookBody {
	b := webhookBody{
		Job: string(w.Job.ID), JobStatus: w.Job.Status.String(), FinishedAt: wireTime(w.Job.Finished.Time()),
		State: w.State, Attempts: len(w.Attempts),
	}
	if n := len(w.Attempts); n > 0 {
		last := attemptOf(&w.Attempts[n-1])
		b.Last = &last
	}
	return b
}

var webhookStates = []string{string(serverless.WebhookPending), string(serverless.WebhookDelivered), string(serverless.WebhookFailed)}

// listWebhooks lists the webhooks of jobs of the caller. The owner of the endpoint sees all.
func listWebhooks(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	q, err := c.webhookQuery()
	if err != nil {
		return err
	}
	owner := c.owner
	if e.Owner != "" && e.Owner == c.owner {
		owner = serverless.AllOwners
	}
	list, from, err := c.Jobs.Webhooks(c.r.Context(), owner, e.ID, q)
	if err != nil {
		return err
	}
	next := c.seqCursor(from, c.owner, c.queryFilters())
	if next != nil {
		c.nextLink(*next)
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Webhooks any     `json:"webhooks"`
		Cursor   *string `json:"cursor"`
	}{items(c, list, func(w serverless.Webhook) string { return w.Job.Owner }, func(w serverless.Webhook) webhookBody { return webhookOf(&w) }), next})
}

func (c *call) webhookQuery() (q serverless.WebhookQuery, err error) {
	state, err := c.queryText("state")
	if err != nil {
		return q, err
	}
	if state != "" && !slices.Contains(webhookStates, state) {
		return q, problem.Newf(problem.Invalid, "state must be one of %s", strings.Join(webhookStates, ", "))
	}
	q.State = serverless.WebhookState(state)
	if q.Limit, err = c.queryInt("limit", defaultPage, 1, serverless.MaxWebhooks); err != nil {
		return q, err
	}
	cursor, err := c.queryText("cursor")
	if err != nil || cursor == "" {
		return q, err
	}
	q.From, err = c.seqPosition(cursor, c.owner, c.queryFilters())
	return q, err
}

// redeliver accepts any body, as cancel and retry do.
func redeliver(c *call) error {
	ref, err := c.delivered()
	if err != nil {
		return err
	}
	id, err := c.Jobs.Redeliver(c.r.Context(), c.owner, ref)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		ID string `json:"id"`
	}{id})
}
