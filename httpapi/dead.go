package httpapi

import (
	"encoding/json"
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless/queue"
)

func deadOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("listAttempts", "GET /v2/{endpoint}/attempts/{job}", ScopeEndpointRead, listAttempts, rate(ratelimit.Status), added, record),
		op("listDeadLetters", "GET /v2/{endpoint}/dead", ScopeEndpointRead, listDeadLetters, byOwners, rate(ratelimit.Requests), added, heavy),
		op("getDeadLetter", "GET /v2/{endpoint}/dead/{job}", ScopeEndpointRead, getDeadLetter, ofDeadLetter, rate(ratelimit.Status), added, record),
		op("redriveDeadLetter", "POST /v2/{endpoint}/dead/{job}/redrive", ScopeEndpointRun, redriveDeadLetter, ofDeadLetter, rate(ratelimit.Run), added, ofOperators),
		op("deleteDeadLetter", "DELETE /v2/{endpoint}/dead/{job}", ScopeEndpointRun, deleteDeadLetter, ofDeadLetter, rate(ratelimit.Cancel), added, ofOperators),
	)
}

func (b *describer) describeDead() map[string]description {
	job, receipt := b.jobSchema(), b.receiptSchema()
	return map[string]description{
		"listAttempts":      {summary: "List the attempts and leases of a job", answers: ok(openapi.For[jobPastBody](&b.Builder))},
		"listDeadLetters":   {summary: "List the dead letters, newest first", text: "Without input and output.", answers: ok(b.list("dead", b.deadLetterSchema(job), true))},
		"getDeadLetter":     {summary: "Get a dead letter", answers: ok(b.deadLetterSchema(job))},
		"redriveDeadLetter": {summary: "Submit the job of a dead letter again", text: "The new job has another id, and the dead letter is deleted.", answers: ok(receipt)},
		"deleteDeadLetter":  {summary: "Delete a dead letter", answers: ok(fields(map[string]*openapi.Schema{"id": openapi.Of("string")}, "id"))},
	}
}

func (b *describer) deadLetterSchema(job *openapi.Schema) *openapi.Schema {
	at := func() *openapi.Schema { return openapi.Of("string").Says("RFC 3339.") }
	return b.Component("DeadLetter", fields(map[string]*openapi.Schema{"failedAt": at(), "expiresAt": at(), "job": job}, "expiresAt", "failedAt", "job"))
}

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

// A jobLeaseBody is a lease after which the job was queued again.
type jobLeaseBody struct {
	Run          uint32    `json:"run"` // from 0; a retry of the user begins the next one
	Attempt      int       `json:"attempt"`
	Worker       string    `json:"worker"`
	StartedAt    wireTime  `json:"startedAt"`
	FirstChunkAt *wireTime `json:"firstChunkAt"`
	EndedAt      wireTime  `json:"endedAt"`
	End          string    `json:"end"`
	ReadyAt      wireTime  `json:"readyAt"`
}

// A jobPastBody is what a job has behind it.
type jobPastBody struct {
	Attempts     []jobAttemptBody `json:"attempts"`
	Leases       []jobLeaseBody   `json:"leases"`
	LeaseCount   int              `json:"leaseCount"`   // of all leases that would be in Leases
	FirstChunkAt *wireTime        `json:"firstChunkAt"` // of the present lease
}

func listAttempts(c *call) error {
	list, err := c.Jobs.Attempts(c.r.Context(), c.owner, c.ref())
	if err != nil {
		return err
	}
	leases, s, err := c.Jobs.Leases(c.r.Context(), c.owner, c.ref())
	if err != nil {
		return err
	}
	b := jobPastBody{
		Attempts: make([]jobAttemptBody, 0, len(list)), Leases: make([]jobLeaseBody, 0, len(leases)),
		LeaseCount: int(s.Leases), FirstChunkAt: instantOrNull(s.FirstChunk),
	}
	for i := range list {
		b.Attempts = append(b.Attempts, jobAttemptOf(&list[i]))
	}
	for i := range leases {
		b.Leases = append(b.Leases, jobLeaseOf(&leases[i]))
	}
	return writeJSON(c.w, http.StatusOK, b)
}

func jobLeaseOf(l *queue.JobLease) jobLeaseBody {
	return jobLeaseBody{
		Run: l.Run, Attempt: l.Attempt, Worker: string(l.Worker), StartedAt: wireTime(l.Started.Time()), FirstChunkAt: instantOrNull(l.FirstChunk),
		EndedAt: wireTime(l.Finished.Time()), End: string(l.End), ReadyAt: wireTime(l.Ready.Time()),
	}
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
