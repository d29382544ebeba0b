package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/events"
	"github.com/podyard/podyard/serverless/queue"
)

func (b *describer) describeEndpoints() map[string]description {
	endpoint := openapi.For[endpointBody](&b.Builder)
	version := func() *openapi.Schema { return openapi.OrNull(openapi.Of("integer")) }
	workers := fields(map[string]*openapi.Schema{
		"workers": openapi.List(openapi.For[workerBody](&b.Builder)), "summary": openapi.For[workerSummary](&b.Builder), "endpointVersion": version(),
	}, "endpointVersion", "summary", "workers")
	releases := fields(map[string]*openapi.Schema{
		"endpointVersion": version(), "rollout": openapi.For[rolloutBody](&b.Builder), "releases": openapi.List(openapi.For[releaseBody](&b.Builder)),
	}, "endpointVersion", "releases", "rollout")
	return map[string]description{
		"listEndpoints": {summary: "List the caller's endpoints and the shared ones", answers: ok(b.list("endpoints", endpoint, true))},
		"createEndpoint": {
			summary: "Create an endpoint", text: "Exactly one of gpu and cpu must be there.",
			body: b.Component("CreateEndpointRequest", createEndpointBody()), answers: created(endpoint),
		},
		"getEndpoint":          {summary: "Get an endpoint", answers: ok(endpoint)},
		"updateEndpoint":       {summary: "Change an endpoint", body: b.Component("UpdateEndpointRequest", updateEndpointBody()), answers: ok(endpoint)},
		"deleteEndpoint":       {summary: "Delete an endpoint", text: "Its workers end, and its jobs are cancelled.", answers: gone()},
		"listEndpointReleases": {summary: "List the releases of an endpoint, newest first", answers: ok(releases)},
		"listEndpointWorkers":  {summary: "List the workers of an endpoint", answers: ok(workers)},
	}
}

func (b *describer) describeEndpointLogs() map[string]description {
	word := openapi.Of("string")
	why := fields(map[string]*openapi.Schema{"why": word}, "why")
	id := fields(map[string]*openapi.Schema{"id": word}, "id")
	settings := openapi.For[queueBody](&b.Builder)
	return map[string]description{
		"getWorkerLogs": {summary: "Follow the log of a worker", text: aboutLogs, params: logParams(), answers: ok(word), media: "text/event-stream"},
		"stopWorker":    {summary: "End a worker after its jobs", text: "It gets no more jobs. Another one is started if one is needed. 409 for a worker that the service did not start.", answers: gone()},
		"listEndpointJobs": {
			summary: "List the jobs of an endpoint, newest first", params: jobPageParams(), answers: ok(b.jobsPage()),
			headers: map[string]*openapi.Header{"Link": linkHeader()},
		},
		"listDecisions": {
			summary: "List what the scaler decided, or say why a job waits", params: []*openapi.Parameter{query("jobId", openapi.Of("string").NotEmpty(), "A job: the answer says what it waits for.")},
			answers: ok(&openapi.Schema{AnyOf: []*openapi.Schema{b.list("decisions", openapi.For[decisionBody](&b.Builder), false), why}}),
		},
		"listWebhooks": {
			summary: "List the webhooks of the jobs of an endpoint, newest job first", text: "Those of jobs that have ended and are kept. A page may be empty and have a next one.",
			params: webhookParams(), answers: ok(b.webhooksPage()), headers: map[string]*openapi.Header{"Link": linkHeader()},
		},
		"listDeliveries": {summary: "List the attempts to send the webhook of a job", answers: ok(b.list("deliveries", openapi.For[attemptBody](&b.Builder), false))},
		"getEndpointQueue": {
			summary: "Get the settings of an endpoint's queue", text: aboutQueue, answers: ok(settings),
		},
		"updateEndpointQueue": {
			summary: "Change the settings of an endpoint's queue", text: aboutQueue,
			body: b.Component("UpdateQueueRequest", updateQueueBody()), answers: ok(settings),
		},
		"redeliver": {summary: "Send the webhook of a job again", text: "409 while the job has not ended.", answers: ok(id)},
	}
}

// jobSchema is the object that queue.Job.AppendJSON writes.
func (b *describer) jobSchema() *openapi.Schema {
	return b.Component("Job", fields(map[string]*openapi.Schema{
		"id":            openapi.Of("string"),
		"status":        jobStatuses(),
		"delayTime":     openapi.Of("integer").Says("Milliseconds in the queue. Absent while the job is queued."),
		"executionTime": openapi.Of("integer").Says("Milliseconds from start to end. Absent until the job has ended."),
		"workerId":      openapi.Of("string").Says("The worker that has the job, or had it when it ended."),
		"output":        (&openapi.Schema{}).Says("The result, or the last progress of a job that runs. Any JSON."),
		"error":         openapi.Of("string").Says("Why the job is FAILED or TIMED_OUT."),
		"input":         openapi.Of("object").Says("Only in lists that ask for it, and in webhooks."),
	}, "id", "status"))
}

func waitParam(def any) *openapi.Parameter {
	return millisParam("wait", serverless.MinWait, serverless.MaxWait, def, "Milliseconds that the answer may be held.")
}

func (b *describer) describeJobs() map[string]description {
	job, run := b.jobSchema(), b.Component("RunRequest", runBody())
	receipt := b.Component("JobReceipt", fields(map[string]*openapi.Schema{"id": openapi.Of("string"), "status": jobStatuses()}, "id", "status"))
	ids := openapi.List(openapi.Of("string"))
	purged := fields(map[string]*openapi.Schema{"removed": openapi.Of("integer"), "status": openapi.Of("string")}, "removed", "status")
	metrics := fields(map[string]*openapi.Schema{"workers": openapi.For[workerCounts](&b.Builder), "readyWorkers": ids}, "readyWorkers", "workers")
	anything := &openapi.Schema{}
	status := map[string]*openapi.Header{"Job-Status": {Description: "The status of the job.", Schema: jobStatuses()}}
	return map[string]description{
		"run":               {summary: "Submit a job", text: "Does not wait for the result.", body: run, params: traceParams(), answers: ok(receipt)},
		"runSync":           {summary: "Submit a job and wait", text: "When wait is over first, the answer is the job as it is.", body: run, params: append(traceParams(), waitParam(serverless.DefaultWait.Milliseconds())), answers: ok(job)},
		"status":            {summary: "Get a job", params: []*openapi.Parameter{millisParam("ttl", queue.MinStatusTTL, queue.MaxTTL, nil, "Moves the end of the job to so many milliseconds from now. It needs the scope run.")}, answers: ok(job)},
		"statusSync":        {summary: "Wait for a job", params: []*openapi.Parameter{waitParam(serverless.DefaultWait.Milliseconds())}, answers: ok(job)},
		"stream":            {summary: "Read what a job has streamed since the last read", text: aboutStreams, params: streamParams(), answers: ok(b.streamSchema()), headers: status},
		"cancel":            {summary: "Cancel a job", text: "A job that has ended keeps its status.", answers: ok(receipt)},
		"retry":             {summary: "Run a FAILED or TIMED_OUT job again", answers: ok(receipt)},
		"listAttempts":      {summary: "List the attempts of a job", answers: ok(b.list("attempts", openapi.For[jobAttemptBody](&b.Builder), false))},
		"listDeadLetters":   {summary: "List the dead letters, newest first", text: "Without input and output.", answers: ok(b.list("dead", b.deadLetterSchema(job), true))},
		"getDeadLetter":     {summary: "Get a dead letter", answers: ok(b.deadLetterSchema(job))},
		"redriveDeadLetter": {summary: "Submit the job of a dead letter again", text: "The new job has another id, and the dead letter is deleted.", answers: ok(receipt)},
		"deleteDeadLetter":  {summary: "Delete a dead letter", answers: ok(fields(map[string]*openapi.Schema{"id": openapi.Of("string")}, "id"))},
		"purgeQueue":        {summary: "Cancel the queued jobs", answers: ok(purged)},
		"actions":           {summary: "Act on many jobs", text: "The answer has the cursor of the next call, or null.", body: b.Component("ActionsRequest", actionsBody()), answers: ok(openapi.For[actionResult](&b.Builder))},
		"health":            {summary: "Count jobs and workers", answers: ok(openapi.For[healthBody](&b.Builder))},
		"jobEvents":         {summary: "Follow what happens to jobs", text: aboutEvents, params: eventParams(), answers: ok(openapi.Of("string")), media: "text/event-stream"},
		"requests":          {summary: "List jobs, newest first", params: requestParams(), answers: ok(b.requestsSchema(job))},
		"metrics":           {summary: "Count workers", answers: ok(metrics)},
		"openai":            {summary: "Make a request to the worker's OpenAI interface", text: "The route may have slashes. With stream, the answer is an event stream.", body: anything, optional: true, answers: ok(anything)},
	}
}

func (b *describer) deadLetterSchema(job *openapi.Schema) *openapi.Schema {
	at := func() *openapi.Schema { return openapi.Of("string").Says("RFC 3339.") }
	return b.Component("DeadLetter", fields(map[string]*openapi.Schema{"failedAt": at(), "expiresAt": at(), "job": job}, "expiresAt", "failedAt", "job"))
}

// traceParams are the headers of a trace context.
func traceParams() []*openapi.Parameter {
	header := func(name, text string) *openapi.Parameter {
		return &openapi.Parameter{Name: name, In: "header", Schema: openapi.Of("string"), Description: text}
	}
	return addedParams(
		header("traceparent", "W3C trace context. The worker and the receiver of the webhook get it."),
		header("tracestate", "As traceparent."),
	)
}

const aboutEvents = "Server-sent events. data is an object with id, type, time, job and status, and worker for an event of a worker; id is where a reader can go on, in the header " +
	"Last-Event-ID. An event of the type gap says that events are missing."

func eventParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		queryMany("types", values(events.Types()...), "Only these types, and gap."),
		query("job", openapi.Of("string").NotEmpty(), "Only of this job."),
		{Name: "Last-Event-ID", In: "header", Schema: openapi.Of("string"), Description: "The id of an event: all later ones come. Absent: those to come."},
	}
}

const aboutStreams = "Each item is handed out once. The terminal status comes in an empty answer after the last one."

func streamParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		waitParam(serverless.DefaultStreamWait.Milliseconds()),
		query("format", values("array", "envelope"), "A bare array, or an object with the status. Absent: by the client, an array unless it is an SDK that needs the object."),
	}
}

func (b *describer) streamSchema() *openapi.Schema {
	item := fields(map[string]*openapi.Schema{"output": {}, "metrics": openapi.Of("object")}, "output")
	item.AdditionalProperties = &openapi.Schema{} // what the worker puts there
	item = b.Component("StreamItem", item)
	envelope := fields(map[string]*openapi.Schema{"status": jobStatuses(), "stream": openapi.List(item)}, "status", "stream")
	return &openapi.Schema{AnyOf: []*openapi.Schema{openapi.List(item), envelope}}
}

func jobPageParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		queryMany("status", jobStatuses(), "Only with one of these statuses."),
		number("limit", 1, maxJobPage, defaultPage, "How many. A page has fewer where they are large."),
		cursorParam(),
	}
}

func cursorParam() *openapi.Parameter {
	return query("cursor", openapi.Of("string").NotEmpty(), "Where the page begins: from the answer before.")
}

func linkHeader() *openapi.Header {
	return &openapi.Header{Description: `The next page: <...>; rel="next". Absent at the end.`, Schema: openapi.Of("string")}
}

func (b *describer) jobsPage() *openapi.Schema {
	s := b.list("jobs", openapi.For[listedJob](&b.Builder), true)
	s.Properties["cursor"] = openapi.OrNull(openapi.Of("string"))
	s.Required = append(s.Required, "cursor")
	return s
}

func webhookParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		query("state", values(webhookStates...), "Only with this state."),
		number("limit", 1, serverless.MaxWebhooks, defaultPage, "How many are looked at."),
		cursorParam(),
	}
}

func (b *describer) webhooksPage() *openapi.Schema {
	s := b.list("webhooks", openapi.For[webhookBody](&b.Builder), true)
	s.Properties["cursor"] = openapi.OrNull(openapi.Of("string"))
	s.Required = append(s.Required, "cursor")
	return s
}

func requestParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		queryMany("status", jobStatuses(), "Only with one of these statuses."),
		query("idPrefix", openapi.Of("string").NotEmpty(), "Only with an id that begins with this."),
		number("offset", 0, 1<<31-1, 0, "How many to leave out."),
		number("limit", 1, maxPage, defaultPage, "How many."),
		flag("full", "With input and output."),
	}
}

func (b *describer) requestsSchema(job *openapi.Schema) *openapi.Schema {
	s := b.list("requests", job, true)
	for _, name := range []string{"total", "offset", "limit"} {
		s.Properties[name] = openapi.Of("integer")
		s.Required = append(s.Required, name)
	}
	s.Properties["hasMore"] = openapi.Of("boolean")
	s.Required = append(s.Required, "hasMore")
	return s
}

func (b *describer) describeWorkers() map[string]description {
	task := b.Component("Task", fields(map[string]*openapi.Schema{
		"id": openapi.Of("string"), "input": openapi.Of("object"), "s3Config": openapi.Of("object"),
		"traceparent": openapi.Of("string"), "tracestate": openapi.Of("string"), "schedule": openapi.Of("object"),
	}, "id", "input"))
	accepted := openapi.For[acceptance](&b.Builder)
	none := func(s *openapi.Schema) answers { return answers{200: s, 204: nil} }
	stops := fields(map[string]*openapi.Schema{"jobsToStop": openapi.List(openapi.Of("string"))}, "jobsToStop")
	anything := &openapi.Schema{}
	chunk := fields(map[string]*openapi.Schema{"output": anything, "metrics": (&openapi.Schema{}).Says("An object; anything else is dropped.")}, "output")
	result := fields(map[string]*openapi.Schema{
		"output": anything, "error": anything, "status": openapi.Of("string").Says("IN_PROGRESS: the output is progress."),
		"stopPod": openapi.Of("boolean").Says("The worker is replaced."),
	})
	text := openapi.Of("string")
	return map[string]description{
		"jobTake":      {summary: "Take a job", text: "204: there was none for 25 s.", answers: none(task)},
		"jobTakeBatch": {summary: "Take jobs", text: "204: there was none for 25 s.", answers: none(openapi.List(task)), params: []*openapi.Parameter{query("batch_size", text, "How many at most. A value out of bounds counts as the nearest one.")}},
		"jobStop":      {summary: "Wait for jobs to stop", text: "204: there was none for 25 s.", answers: none(stops)},
		"ping": {summary: "Keep the jobs of a worker", answers: ok(accepted), params: []*openapi.Parameter{
			query("job_id", text, "The jobs that the worker has, with commas."),
			query("status", text, "unhealthy takes the jobs of the worker away."),
			query("check", text, "What is unhealthy."), query("reason", text, "Why."),
		}},
		"jobDone":   {summary: "Report the result or the progress of a job", body: b.Component("Result", result), answers: ok(accepted)},
		"jobStream": {summary: "Report a part of the output of a job", body: b.Component("Chunk", chunk), answers: ok(accepted)},
	}
}

const aboutQueue = "Limits of running jobs (null: none), ageing, the retry policy of jobs without one, dead letters and the pause; ready, delayed and blocked count the jobs that could start now, that are not ready yet, and that the settings hold."
