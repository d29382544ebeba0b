package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/serverless"
)

func endpointJobOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("listEndpointJobs", "GET /v2/serverless/{id}/jobs", ScopeEndpointsRead, listEndpointJobs, byOwners, added, heavy),
	)
}

func (b *describer) describeEndpointJobs() map[string]description {
	return map[string]description{
		"listEndpointJobs": {
			summary: "List the jobs of an endpoint, newest first", params: jobPageParams(),
			answers: ok(withCursor(b.list("jobs", openapi.For[listedJob](&b.Builder), true))), headers: map[string]*openapi.Header{"Link": linkHeader()},
		},
	}
}

func jobPageParams() []*openapi.Parameter {
	return []*openapi.Parameter{
		listInQuery("status", jobStatuses(), "Only with one of these statuses."),
		number("limit", 1, maxJobPage, defaultPage, "How many. A page has fewer where they are large."),
		cursorParam(),
	}
}

// A listedJob is a job as the Terraform provider expects it: payloads are JSON in strings.
type listedJob struct {
	ID          string    `json:"id"`
	Status      string    `json:"status"`
	CreatedAt   wireTime  `json:"createdAt"`
	DurationMs  int64     `json:"durationMs"`
	CompletedAt *wireTime `json:"completedAt"`
	Input       string    `json:"input"`
	Output      string    `json:"output"`
}

func listedJobOf(j *serverless.Job) listedJob {
	b := listedJob{ID: string(j.ID), Status: j.Status.String(), CreatedAt: wireTime(j.Submitted.Time()), Input: string(j.Input)}
	if j.Status.Terminal() {
		end := wireTime(j.Finished.Time())
		b.CompletedAt = &end
		b.DurationMs = j.ExecutionTime().Milliseconds()
	}
	if j.ShowsOutput() {
		b.Output = string(j.Output)
	}
	return b
}

// maxJobPage is the largest page of jobs.
const maxJobPage = 1000

func listEndpointJobs(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	q := serverless.JobsQuery{}
	if q.Status, err = c.queryStatuses(); err != nil {
		return err
	}
	if q.Limit, err = c.queryInt("limit", defaultPage, 1, maxJobPage); err != nil {
		return err
	}
	cursor, err := c.queryText("cursor")
	if err != nil {
		return err
	}
	if cursor != "" {
		if q.From, err = c.seqPosition(cursor, c.owner, c.queryFilters()); err != nil {
			return err
		}
	}
	owner := c.owner
	if e.Owner != "" && e.Owner == c.owner {
		owner = serverless.AllOwners
	}
	page, err := c.Jobs.Jobs(c.r.Context(), owner, e.ID, q)
	if err != nil {
		return err
	}
	next := c.seqCursor(page.Next, c.owner, c.queryFilters())
	if next != nil {
		c.nextLink(*next)
	}
	l := c.list("jobs")
	for i := range page.Jobs {
		j := &page.Jobs[i]
		if l.next(j.Owner); !l.addJSON(listedJobOf(j)) {
			return l.stopped()
		}
		page.Jobs[i] = serverless.Job{} // its payloads were written
	}
	return l.endWith(struct {
		Cursor *string `json:"cursor"`
	}{next})
}
