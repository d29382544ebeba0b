package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/podyard/podyard/serverless/queue"
)

// A jobAttemptBody is one attempt of a job.
type jobAttemptBody struct {
	Number      int       `json:"number"`
	Status      string    `json:"status"`
	Error       *string   `json:"error"`
	Worker      *string   `json:"worker"`
	StartedAt   *wireTime `json:"startedAt"`
	CompletedAt *wireTime `json:"completedAt"` // null: it runs
	Delay       *int64    `json:"delay"`       // milliseconds until the next one was ready; null: it is the last one
}

func listAttempts(c *call) error {
	list, err := c.Jobs.Attempts(c.r.Context(), c.owner, c.ref())
	if err != nil {
		return err
	}
	bodies := make([]jobAttemptBody, 0, len(list))
	for i := range list {
		bodies = append(bodies, jobAttemptOf(&list[i]))
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Attempts []jobAttemptBody `json:"attempts"`
	}{bodies})
}

func jobAttemptOf(a *queue.JobAttempt) jobAttemptBody {
	b := jobAttemptBody{Number: a.Number, Status: a.Status.String(), Error: orNull(a.Error), Worker: orNull(string(a.Worker))}
	b.StartedAt, b.CompletedAt = instantOrNull(a.Started), instantOrNull(a.Finished)
	if !a.Last {
		ms := a.Delay.Milliseconds()
		b.Delay = &ms
	}
	return b
}

func instantOrNull(i queue.Instant) *wireTime {
	if i == 0 {
		return nil
	}
	t := wireTime(i.Time())
	return &t
}

// A deadLetterBody is a copy of a job that failed for good.
type deadLetterBody struct {
	FailedAt  wireTime        `json:"failedAt"`
	ExpiresAt wireTime        `json:"expiresAt"`
	Job       json.RawMessage `json:"job"`
}

func deadLetterOf(d *queue.DeadLetter) deadLetterBody {
	return deadLetterBody{wireTime(d.Finished.Time()), wireTime(d.Until.Time()), d.AppendJSON(nil, true)}
}

func listDeadLetters(c *call) error {
	list, err := c.Jobs.DeadLetters(c.r.Context(), c.ownerScope(), c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	return writeList(c, "dead", list, func(d queue.DeadLetter) string { return d.Owner }, func(d queue.DeadLetter) deadLetterBody { return deadLetterOf(&d) })
}

func getDeadLetter(c *call) error {
	d, err := c.Jobs.DeadLetter(c.r.Context(), c.owner, c.ref())
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, deadLetterOf(&d))
}

// redriveDeadLetter accepts any body, as cancel and retry do.
func redriveDeadLetter(c *call) error {
	return c.receipt(c.Jobs.Redrive(c.r.Context(), c.owner, c.ref()))
}

func deleteDeadLetter(c *call) error {
	if err := c.Jobs.DropDeadLetter(c.r.Context(), c.owner, c.ref()); err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		ID string `json:"id"`
	}{string(c.ref().ID)})
}
