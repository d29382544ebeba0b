package console

import (
	"cmp"
	"net/http"
	"net/url"
	"strconv"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A jobBody is a job with its times, which the API does not show. Times that are not known
// are null.
type jobBody struct {
	ID           string  `json:"id"`
	Owner        string  `json:"owner"`
	Status       string  `json:"status"`
	Key          string  `json:"key"`
	Priority     uint8   `json:"priority"`
	LowPriority  bool    `json:"lowPriority"`
	Delayed      bool    `json:"delayed"`
	Deliveries   uint8   `json:"deliveries"`
	Attempt      uint8   `json:"attempt"`
	Attempts     uint8   `json:"attempts"` // that its retry policy allows
	Restarts     uint8   `json:"restarts"`
	Retries      uint32  `json:"retries"`
	Worker       string  `json:"worker"`
	Lost         string  `json:"lost"`
	Chunks       uint32  `json:"chunks"`
	ChunksRead   uint32  `json:"chunksRead"`
	Webhook      bool    `json:"webhook"`
	Receiver     string  `json:"receiver"` // of the webhook, see receiverOf
	DelayTime    int64   `json:"delayTime"`
	RunTime      int64   `json:"executionTime"`
	Timeout      int64   `json:"executionTimeout"`
	Submitted    *string `json:"submitted"`
	Queued       *string `json:"queued"`
	Started      *string `json:"started"`
	FirstChunk   *string `json:"firstChunk"`
	Renewed      *string `json:"renewed"` // the lease, since it was taken
	LeaseUntil   *string `json:"leaseUntil"`
	RunUntil     *string `json:"runUntil"`
	Finished     *string `json:"finished"`
	Expires      *string `json:"expires"`
	KeptUntil    *string `json:"keptUntil"`
	Error        string  `json:"error"`
	InputBytes   int     `json:"inputBytes"`
	OutputBytes  int     `json:"outputBytes"`
	OutputShown  bool    `json:"outputShown"`
	HidePayloads bool    `json:"hidePayloads"`
	Why          string  `json:"why"` // it waits

	Leases     []leaseBody `json:"leases"`     // the last ones after which it was queued again, oldest first
	LeaseCount uint8       `json:"leaseCount"` // of all of them
}

// A leaseBody is a lease after which the job was queued again.
type leaseBody struct {
	Attempt    int     `json:"attempt"`
	Worker     string  `json:"worker"`
	Started    *string `json:"started"`
	FirstChunk *string `json:"firstChunk"`
	Finished   *string `json:"finished"`
	End        string  `json:"end"`
	Ready      *string `json:"ready"`
}

// job returns the job in the path without its payloads, if the API shows it to the user. Otherwise it
// answers the request and returns nil.
func (c *Console) job(w *httpapi.Answer, r *http.Request, s *session) *serverless.Job {
	if c.Jobs == nil {
		refuse(w, errNotHere)
		return nil
	}
	endpoint, id := r.PathValue("endpoint"), r.PathValue("job")
	target := "/v2/" + pathEscape(endpoint) + "/status/" + pathEscape(id)
	a := c.ask(w, r, s, http.MethodHead, target)
	if !a.ok() {
		pass(w, a)
		return nil
	}
	owner := cmp.Or(a.header.Get("Podyard-Owner"), s.who.User)
	j, err := c.Jobs.GetState(r.Context(), owner, serverless.Ref{Endpoint: endpoint, ID: serverless.JobID(id)})
	if err != nil {
		refuse(w, err)
		return nil
	}
	return &j
}

// whole is job with the payloads, which are read when there is room for them.
func (c *Console) whole(w *httpapi.Answer, r *http.Request, s *session) *serverless.Job {
	j := c.job(w, r, s)
	if j == nil {
		return nil
	}
	err := w.Room(r.Context(), int64(j.InBytes)+int64(j.OutBytes))
	if err == nil {
		*j, err = c.Jobs.Get(r.Context(), j.Owner, j.Ref)
	}
	if err != nil {
		refuse(w, err)
		return nil
	}
	return j
}

func (c *Console) showJob(w *httpapi.Answer, r *http.Request, s *session) {
	j := c.whole(w, r, s)
	if j == nil {
		return
	}
	b := jobBodyOf(j)
	if !c.HidePayloads {
		b.Receiver = receiverOf(j.Webhook, j.Owner == s.who.User)
	}
	b.HidePayloads, b.Renewed = c.HidePayloads, instant(c.Jobs.Renewed(&j.State))
	b.Leases = c.leases(r, j)
	if j.Status == serverless.InQueue {
		b.Why = c.why(w, r, s, pathEscape(j.Endpoint), string(j.ID))
	}
	answer(w, b)
}

// receiverOf is the URL of a webhook without what is a secret in it: credentials and the query. The
// path is for the owner of the job alone. With some services it is the secret, as in
// https://hooks.example/services/T0/B0/SECRET.
func receiverOf(webhook string, own bool) string {
	u, err := url.Parse(webhook)
	if err != nil || u.Host == "" {
		return ""
	}
	shown := url.URL{Scheme: u.Scheme, Host: u.Host}
	if own {
		shown.Path, shown.RawPath = u.Path, u.RawPath
	}
	return shown.String()
}

// leases returns the log of leases of a job. It is shorter if it cannot be read.
func (c *Console) leases(r *http.Request, j *serverless.Job) []leaseBody {
	bodies := []leaseBody{}
	if j.Leases == 0 {
		return bodies
	}
	list, _, err := c.Jobs.Leases(r.Context(), j.Owner, j.Ref)
	if err != nil && r.Context().Err() == nil {
		c.Logger.WarnContext(r.Context(), "console: the leases of a job cannot be read", "endpoint", j.Endpoint, "job", j.ID, "err", err)
	}
	for i := range list {
		l := &list[i]
		bodies = append(bodies, leaseBody{
			Attempt: l.Attempt, Worker: string(l.Worker), End: string(l.End),
			Started: instant(l.Started), FirstChunk: instant(l.FirstChunk), Finished: instant(l.Finished), Ready: instant(l.Ready),
		})
	}
	return bodies
}

func jobBodyOf(j *serverless.Job) jobBody {
	b := jobBody{
		ID: string(j.ID), Owner: j.Owner, Status: j.Status.String(), Key: j.Key,
		Priority: j.Priority, LowPriority: j.Flags&queue.LowPriority != 0, Delayed: j.Delayed,
		Deliveries: j.Deliveries, Attempt: j.Attempt, Attempts: j.Retry.Attempts, Restarts: j.Restarts, Retries: j.Run,
		Worker: string(j.Worker), Lost: string(j.Lost), Chunks: j.Chunks, ChunksRead: j.Drained, Webhook: j.Webhook != "",
		DelayTime: j.DelayTime().Milliseconds(), RunTime: j.ExecutionTime().Milliseconds(), Timeout: j.ExecTimeout.Milliseconds(),
		Submitted: instant(j.Submitted), Queued: instant(j.Queued), Started: instant(j.Started), FirstChunk: instant(j.FirstChunk), Finished: instant(j.Finished),
		Expires: instant(j.Expires), Error: j.ErrorText(),
		InputBytes: len(j.Input), OutputBytes: len(j.Output), OutputShown: j.ShowsOutput(), LeaseCount: j.Leases,
	}
	switch {
	case j.Status == serverless.InProgress:
		b.LeaseUntil, b.RunUntil = instant(j.LeaseUntil), instant(j.RunUntil)
	case j.Status.Terminal():
		b.KeptUntil = instant(min(j.Expires, j.Finished.Add(j.Retain)))
	}
	return b
}

func instant(i queue.Instant) *string {
	if i == 0 {
		return nil
	}
	return timeOf(i.Time())
}

// showPayload answers the input or output of a job, as the bytes came: the first 256 KiB, or
// all of it with download=1. The header Podyard-Size has the length of all of it.
func (c *Console) showPayload(w *httpapi.Answer, r *http.Request, s *session) {
	if c.HidePayloads {
		refuse(w, errHidden)
		return
	}
	part := r.PathValue("part")
	if part != "input" && part != "output" {
		refuse(w, errNoPage)
		return
	}
	j := c.whole(w, r, s)
	if j == nil {
		return
	}
	b := j.Input
	if part == "output" {
		if b = j.Output; !j.ShowsOutput() {
			b = nil
		}
	}
	h := w.Header()
	h.Set("Podyard-Size", strconv.Itoa(len(b)))
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", contentDisposition(string(j.ID), part))
	if q, _ := url.ParseQuery(r.URL.RawQuery); q.Get("download") == "" {
		b = b[:min(len(b), maxShown)]
	}
	h.Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client may be gone
}
