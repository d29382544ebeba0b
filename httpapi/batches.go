package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/queue"
)

func batchOperations() []operation {
	return group(APIJobs, AreaBatches,
		op("listBatches", "GET /v2/{endpoint}/batch", ScopeEndpointRead, listBatches, byOwners, rate(ratelimit.Batches), record),
		op("createBatch", "POST /v2/{endpoint}/batch", ScopeEndpointRun, createBatch, rate(ratelimit.Batches), ofOperators, keyed),
		op("getBatch", "GET /v2/{endpoint}/batch/{batch}", ScopeEndpointRead, getBatch, rate(ratelimit.Batches), record),
		op("updateBatch", "PUT /v2/{endpoint}/batch/{batch}", ScopeEndpointRun, updateBatch, rate(ratelimit.Batches), ofOperators),
		op("addToBatch", "POST /v2/{endpoint}/batch/{batch}/requests", ScopeEndpointRun, addToBatch, rate(ratelimit.Batches), ofOperators),
		op("listBatchRequests", "GET /v2/{endpoint}/batch/{batch}/requests", ScopeEndpointRead, listBatchRequests, rate(ratelimit.Batches), heavy),
		op("deleteBatchRequest", "DELETE /v2/{endpoint}/batch/{batch}/requests/{request}", ScopeEndpointRun, deleteBatchRequest, rate(ratelimit.Batches), ofOperators),
		op("finalizeBatch", "POST /v2/{endpoint}/batch/{batch}/finalize", ScopeEndpointRun, finalizeBatch, rate(ratelimit.Batches), ofOperators),
		op("cancelBatch", "POST /v2/{endpoint}/batch/{batch}/cancel", ScopeEndpointRun, cancelBatch, rate(ratelimit.Batches), ofOperators),
	)
}

func (b *describer) describeBatches() map[string]description {
	batch := openapi.For[batches.Summary](&b.Builder)
	page := openapi.For[batchedRequests](&b.Builder)
	requests := openapi.List(b.Component("BatchedRun", batchedRunBody()))
	requests.MaxItems = batches.MaxRequests
	added := fields(map[string]*openapi.Schema{"requests": requests}, "requests")
	whole := recorded(func(o *object) { o.newBatch(&serverless.BatchRequest{}) })
	whole.Properties["requests"], whole.Required = requests, []string{"requests"}
	settings := recorded(func(o *object) { o.batchSettings(&batches.Settings{}) })
	for _, s := range []*openapi.Schema{whole, settings} {
		s.At("name").MaxLength = batches.MaxName
	}
	return map[string]description{
		"listBatches": {summary: "List the caller's batches, newest first", answers: ok(b.list("batches", batch, true))},
		"createBatch": {
			summary: "Create a batch", text: "An array makes a draft. With finalize its requests are started at once.",
			body:    &openapi.Schema{AnyOf: []*openapi.Schema{requests, b.Component("CreateBatchRequest", whole)}},
			answers: ok(openapi.For[batchReceipt](&b.Builder)),
		},
		"getBatch":           {summary: "Count the requests of a batch", answers: ok(batch)},
		"updateBatch":        {summary: "Change a batch", body: b.Component("UpdateBatchRequest", settings), answers: ok(batch)},
		"addToBatch":         {summary: "Add requests to a draft", text: "All of them or none.", body: b.Component("AddToBatchRequest", added), answers: ok(batch)},
		"listBatchRequests":  {summary: "List the requests of a batch", text: "Those that failed come first, then those that run, those that wait, and those that are completed.", params: batchPageParams(), answers: ok(page)},
		"deleteBatchRequest": {summary: "Remove a request from a draft", answers: ok(batch)},
		"finalizeBatch":      {summary: "Start the requests of a draft", answers: ok(batch)},
		"cancelBatch":        {summary: "Cancel a batch", text: "What waits ends, what runs goes on.", answers: ok(batch)},
	}
}

// batchedRunBody is the body of run without what a batch decides.
func batchedRunBody() *openapi.Schema {
	s := runBody()
	q := s.At("queue")
	delete(q.Properties, "startAfter")
	q.At("priority").Between(0, queue.MaxPriority).Defaults(batches.DefaultPriority)
	return s
}

func batchPageParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		number("offset", 0, 1<<31-1, 0, "How many to leave out."),
		number("limit", 1, maxPage, defaultBatchPage, "How many."),
	}
}

// A batchReceipt is the answer to the creation of a batch.
type batchReceipt struct {
	ID     string         `json:"id"`
	Status batches.Status `json:"status"`
}

// A batchedRequest is a request of a batch on the wire (docs/interface.md 2.21).
type batchedRequest struct {
	ID          string          `json:"id"`
	Status      string          `json:"status"`
	Output      json.RawMessage `json:"output,omitempty"`
	Error       string          `json:"error,omitempty"`
	StartedAt   *wireTime       `json:"startedAt,omitempty"`
	CompletedAt *wireTime       `json:"completedAt,omitempty"`
}

type batchedRequests struct {
	Requests []batchedRequest `json:"requests"`
	Total    int              `json:"total"`
	Offset   int              `json:"offset"`
	Limit    int              `json:"limit"`
	HasMore  bool             `json:"hasMore"`
}

func batchedRequestOf(j *queue.Job) batchedRequest {
	r := batchedRequest{
		ID: string(j.ID), Status: j.Status.String(), Error: j.ErrorText(),
		StartedAt: instantOrNull(j.Started), CompletedAt: instantOrNull(j.Finished),
	}
	if j.ShowsOutput() {
		r.Output = j.Output
	}
	return r
}

// batch returns the ids in the path.
func (c *call) batch() (endpoint, id string) {
	return c.r.PathValue("endpoint"), c.r.PathValue("batch")
}

func (c *call) batches() *batches.Service { return c.Jobs.Batches() }

func listBatches(c *call) error {
	list, err := c.batchesOf(c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	same := func(b batches.Summary) batches.Summary { return b }
	return writeList(c, "batches", list, func(b batches.Summary) string { return b.Owner }, same)
}

// batchesOf returns the batches of the request's owner, or those of all users.
func (c *call) batchesOf(endpoint string) ([]batches.Summary, error) {
	if c.owner == serverless.AllOwners {
		return c.batches().All(c.r.Context(), endpoint)
	}
	return c.batches().List(c.r.Context(), c.owner, endpoint)
}

func createBatch(c *call) error {
	body, err := c.body(maxRunBody)
	if err != nil {
		return err
	}
	r, err := decodeBatch(body)
	if err != nil {
		return err
	}
	r.Idempotency = c.keyed
	endpoint := c.r.PathValue("endpoint")
	b, err := c.Jobs.CreateBatch(c.r.Context(), c.owner, endpoint, r)
	b, err = onceCreated(c, b, err, func(ctx context.Context, owner, id string) (batches.Summary, error) {
		return c.batches().Get(ctx, owner, endpoint, id)
	})
	if err != nil {
		return err
	}
	c.made = b.ID
	first := batchReceipt{b.ID, batches.Draft} // also when the batch has moved on since
	if r.Finalize {
		first.Status = batches.Finalized
	}
	return writeJSON(c.w, http.StatusOK, first)
}

// summary answers with a batch, or returns err.
func (c *call) summary(b batches.Summary, err error) error {
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, b)
}

func getBatch(c *call) error {
	endpoint, id := c.batch()
	return c.summary(c.batches().Get(c.r.Context(), c.owner, endpoint, id))
}

func updateBatch(c *call) error {
	endpoint, id := c.batch()
	body, err := c.batchBody(maxControlBody)
	if err != nil {
		return err
	}
	r, faults := batches.Settings{}, problem.Violations{}
	o, err := parse(body, strictEnvelope, &faults)
	if err != nil {
		return err
	}
	o.batchSettings(&r)
	return c.summary(c.Jobs.UpdateBatch(c.r.Context(), c.owner, endpoint, id, r, faults))
}

// batchBody reads the body of a request to a batch that exists.
func (c *call) batchBody(limit int64) ([]byte, error) {
	endpoint, id := c.batch()
	if _, err := c.batches().Get(c.r.Context(), c.owner, endpoint, id); err != nil {
		return nil, err
	}
	return c.body(limit)
}

func addToBatch(c *call) error {
	endpoint, id := c.batch()
	body, err := c.batchBody(maxRunBody)
	if err != nil {
		return err
	}
	r := serverless.BatchRequest{}
	o, err := parse(body, strictEnvelope, &r.Violations)
	if err != nil {
		return err
	}
	if err := o.batchRequests(&r); err != nil {
		return err
	}
	return c.summary(c.Jobs.AddToBatch(c.r.Context(), c.owner, endpoint, id, r))
}

func finalizeBatch(c *call) error {
	endpoint, id := c.batch()
	return c.summary(c.batches().Finalize(c.r.Context(), c.owner, endpoint, id))
}

func cancelBatch(c *call) error {
	endpoint, id := c.batch()
	return c.summary(c.batches().Cancel(c.r.Context(), c.owner, endpoint, id))
}

func deleteBatchRequest(c *call) error {
	endpoint, id := c.batch()
	if err := c.batches().DeleteRequest(c.r.Context(), c.owner, endpoint, id, c.r.PathValue("request")); err != nil {
		return err
	}
	return getBatch(c)
}

func listBatchRequests(c *call) error {
	endpoint, id := c.batch()
	offset, err := c.queryInt("offset", 0, 0, 1<<31-1)
	if err != nil {
		return err
	}
	limit, err := c.queryInt("limit", defaultBatchPage, 1, maxPage)
	if err != nil {
		return err
	}
	p, err := c.batches().Requests(c.r.Context(), c.owner, endpoint, id, offset, limit)
	if err != nil {
		return err
	}
	answer := batchedRequests{Requests: []batchedRequest{}, Total: p.Total, Offset: offset, Limit: limit, HasMore: offset+len(p.Requests) < p.Total}
	for i := range p.Requests {
		answer.Requests = append(answer.Requests, batchedRequestOf(&p.Requests[i]))
	}
	return writeJSON(c.w, http.StatusOK, answer)
}

// defaultBatchPage is the limit of a list of requests that has none.
const defaultBatchPage = 50

// decodeBatch reads the body that creates a batch: an array of bodies of run, as the hosted
// service has it, or an object, which is an addition and strict in its own members.
func decodeBatch(body []byte) (r serverless.BatchRequest, err error) {
	body = bytes.TrimLeft(body, " \t\r\n")
	if len(body) > 0 && body[0] == '[' {
		return decodeBatchArray(body)
	}
	o, err := parse(body, strictEnvelope, &r.Violations)
	if err != nil {
		return r, err
	}
	o.newBatch(&r)
	return r, o.batchRequests(&r)
}

func decodeBatchArray(body []byte) (r serverless.BatchRequest, err error) {
	dec := decoder(body, strictEnvelope)
	v, err := dec.ReadValue()
	if err != nil {
		return r, syntaxError(err)
	}
	v = bytes.Clone(v)
	if _, err := dec.ReadToken(); !errors.Is(err, io.EOF) {
		return r, problem.Newf(problem.BadRequest, "the body is not JSON: there is something after its end, at byte %d", dec.InputOffset())
	}
	return r, readRuns(&r, v, 0)
}

// newBatch reads the members of the object but the requests.
func (o *object) newBatch(r *serverless.BatchRequest) {
	r.Name, r.Webhook = o.text("name"), o.webhook()
	if f := o.boolean("finalize"); f != nil {
		r.Finalize = *f
	}
	if m := o.find("requests"); m != nil {
		m.taken = true
	}
	o.unknown()
}

func (o *object) batchSettings(r *batches.Settings) {
	r.Name = o.str("name")
	if o.has("webhook") {
		url := o.webhook()
		r.Webhook = &url
	}
}

// batchRequests reads the member requests, an array of bodies of run.
func (o *object) batchRequests(r *serverless.BatchRequest) error {
	r.Place = "/requests"
	o.require("requests")
	v := o.take("requests", "an array", "[")
	if v == nil {
		return nil
	}
	return readRuns(r, v, o.find("requests").at)
}

// readRuns reads bodies of run from an array, which begins at a byte of the body. It stops after
// one more than a batch can have. A repeated name is an error at once.
func readRuns(r *serverless.BatchRequest, v jsontext.Value, base int64) error {
	dec := decoder(v, strictEnvelope)
	_, _ = dec.ReadToken() // it is known to be valid
	for i := 0; dec.PeekKind() != ']' && i <= batches.MaxRequests; i++ {
		e, err := dec.ReadValue()
		if err != nil {
			return syntaxError(err)
		}
		q := serverless.Request{Checked: true}
		o := &object{path: r.Place + "/" + strconv.Itoa(i), base: base + dec.InputOffset() - int64(len(e)), faults: &r.Violations}
		if e.Kind() != '{' {
			r.Violations.Add(problem.Invalid, o.path, "must be an object")
		} else if err := o.readRun(bytes.Clone(e), &q); err != nil {
			return err
		}
		r.Requests = append(r.Requests, q)
	}
	return nil
}

func (o *object) readRun(body []byte, q *serverless.Request) error {
	if err := o.read(decoder(body, strictEnvelope), body); err != nil {
		return err
	}
	if err := o.checkRunNames(); err != nil {
		return err
	}
	o.run(q)
	return nil
}
