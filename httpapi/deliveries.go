package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/serverless"
)

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
