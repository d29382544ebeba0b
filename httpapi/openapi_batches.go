package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/queue"
)

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
		s.At("webhook").Format = "uri"
		s.At("webhook").NotEmpty()
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
