package httpapi

import (
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

func actionOperations() []operation {
	return group(APIJobs, AreaJobs,
		op("actions", "POST /v2/{endpoint}/actions", ScopeEndpointRun, actOnJobs, byOwners, rate(ratelimit.Actions), ofOperators, added),
	)
}

func (b *describer) describeActions() map[string]description {
	return map[string]description{
		"actions": {summary: "Act on many jobs", text: "The answer has the cursor of the next call, or null.", body: b.Component("ActionsRequest", actionsBody()), answers: ok(openapi.For[actionResult](&b.Builder))},
	}
}

func actionsBody() *openapi.Schema {
	s := recorded(func(o *object) { o.actionRequest() })
	s.At("limit").Between(1, serverless.MaxActionJobs).Defaults(serverless.MaxActionJobs)
	s.At("filter/ids").MaxItems = serverless.MaxActionJobs
	s.At("filter/status").Items = jobStatuses()
	s.At("filter").NotEmpty()
	return s
}

// An actionResult is the answer to an action on many jobs.
type actionResult struct {
	Matched int            `json:"matched"`
	Done    int            `json:"done"`
	Failed  []failedAction `json:"failed"`
	Cursor  *string        `json:"cursor"`
}

type failedAction struct {
	ID    string `json:"id"`
	Error string `json:"error"`
}

func actOnJobs(c *call) error {
	body, err := c.body(maxControlBody)
	if err != nil {
		return err
	}
	var faults problem.Violations
	o, err := parse(body, strictThroughout, &faults)
	if err != nil {
		return err
	}
	r, cursor := o.actionRequest()
	if err := faults.Err([]string{"action", "filter", "all", "preview", "limit", "cursor"}); err != nil {
		return err
	}
	filters := []string{c.owner, string(r.Action), fmt.Sprintf("%q", filterText(&r.Filter))}
	if cursor != nil {
		if r.From, err = c.seqPosition(*cursor, filters...); err != nil {
			return err
		}
	}
	res, err := c.Jobs.ActOnJobs(c.r.Context(), c.ownerScope(), c.r.PathValue("endpoint"), r)
	if err != nil {
		return err
	}
	b := actionResult{Matched: res.Matched, Done: res.Done, Failed: []failedAction{}, Cursor: c.seqCursor(res.Next, filters...)}
	for _, f := range res.Failed {
		b.Failed = append(b.Failed, failedAction{string(f.ID), problem.Of(f.Err).Detail})
	}
	return writeJSON(c.w, http.StatusOK, b)
}

// filterText lists what a filter selects.
func filterText(f *serverless.JobFilter) []string {
	list := []string{fmt.Sprint(f.Status), f.Before.String(), f.After.String(), "no key", "batch " + f.Batch, "prefix " + f.Prefix}
	if f.Key != nil {
		list[3] = "key " + *f.Key
	}
	for _, id := range f.IDs {
		list = append(list, string(id))
	}
	return list
}

// actionRequest reads the body of an action on many jobs.
func (o *object) actionRequest() (r serverless.ActionRequest, cursor *string) {
	o.require("action")
	r.Action = serverless.Action(o.oneOf("action", string(serverless.CancelJobs), string(serverless.RetryJobs), string(serverless.StartJobs), string(serverless.DeleteJobs)))
	filter, all := o.object("filter"), o.boolean("all")
	if filter != nil {
		r.Filter = filter.jobFilter()
	}
	switch {
	case all != nil && !*all:
		o.faults.Add(problem.Invalid, o.pointer("all"), "must be true, or absent")
	case (filter == nil) == (all == nil) && !o.faults.Has(o.pointer("filter")) && !o.faults.Has(o.pointer("all")):
		o.faults.Add(problem.BadRequest, o.pointer("filter"), "exactly one of filter and all must be there")
	}
	if b := o.boolean("preview"); b != nil {
		r.Preview = *b
	}
	r.Limit = serverless.MaxActionJobs
	if n := o.integer("limit"); n != nil {
		if r.Limit = *n; *n < 1 || *n > serverless.MaxActionJobs {
			o.faults.Add(problem.Invalid, o.pointer("limit"), "must be from 1 to %d", serverless.MaxActionJobs)
		}
	}
	if !o.isNull("cursor") {
		cursor = o.str("cursor")
	}
	o.unknown()
	return r, cursor
}

// jobFilter reads the filter of an action on many jobs. An empty one is refused, so that it
// is not taken for all jobs by mistake.
func (o *object) jobFilter() (f serverless.JobFilter) {
	if len(o.members) == 0 {
		o.faults.Add(problem.Invalid, o.path, "must have at least 1 member")
	}
	ids := o.strings("ids")
	if ids != nil && (len(ids) < 1 || len(ids) > serverless.MaxActionJobs) {
		o.faults.Add(problem.Invalid, o.pointer("ids"), "must have from 1 to %d entries", serverless.MaxActionJobs)
	}
	for _, id := range ids {
		f.IDs = append(f.IDs, serverless.JobID(id))
	}
	states := o.strings("status")
	if states != nil && len(states) == 0 {
		o.faults.Add(problem.Invalid, o.pointer("status"), "must have at least 1 entry")
	}
	for _, s := range states {
		st, ok := queue.ParseStatus(s)
		if !ok {
			o.faults.Add(problem.Invalid, o.pointer("status"), "must be a list of some of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT")
			break
		}
		f.Status = append(f.Status, st)
	}
	slices.Sort(f.Status)
	f.Key = o.str("key")
	if batch := o.str("batch"); batch != nil {
		if f.Batch = *batch; f.Batch == "" {
			o.faults.Add(problem.Invalid, o.pointer("batch"), "must be the id of a batch")
		}
	}
	if prefix := o.str("idPrefix"); prefix != nil {
		if f.Prefix = *prefix; f.Prefix == "" {
			o.faults.Add(problem.Invalid, o.pointer("idPrefix"), "must not be empty")
		}
	}
	f.Before, f.After = o.submitted("before"), o.submitted("after")
	o.unknown()
	return f
}

// submitted reads a time. It returns zero if the member is absent.
func (o *object) submitted(name string) time.Time {
	text := o.str(name)
	if text == nil {
		return time.Time{}
	}
	t, fault := instantOf(*text, "must be a time as in RFC 3339")
	if fault != "" {
		o.faults.Add(problem.Invalid, o.pointer(name), "%s", fault)
	}
	return t
}
