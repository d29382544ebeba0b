package httpapi

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/cron"
	"github.com/podyard/podyard/serverless/schedules"
)

func scheduleOperations() []operation {
	return group(APIJobs, AreaSchedules,
		op("listSchedules", "GET /v2/{endpoint}/schedules", ScopeEndpointRead, listSchedules, byOwners, rate(ratelimit.Schedules), added, heavy),
		op("createSchedule", "POST /v2/{endpoint}/schedules", ScopeEndpointRun, createSchedule, rate(ratelimit.Schedules), ofOperators, added, keyed, record),
		op("getSchedule", "GET /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRead, getSchedule, rate(ratelimit.Schedules), added, record),
		op("updateSchedule", "PATCH /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRun, updateSchedule, rate(ratelimit.Schedules), ofOperators, added, record),
		op("deleteSchedule", "DELETE /v2/{endpoint}/schedules/{schedule}", ScopeEndpointRun, deleteSchedule, rate(ratelimit.Schedules), ofOperators, added),
		op("runSchedule", "POST /v2/{endpoint}/schedules/{schedule}/run", ScopeEndpointRun, runSchedule, rate(ratelimit.Run), ofOperators, added),
	)
}

func (b *describer) describeSchedules() map[string]description {
	schedule := openapi.For[scheduleBody](&b.Builder)
	run := b.Component("ScheduledRun", scheduledRunBody())
	receipt := fields(map[string]*openapi.Schema{"id": openapi.Of("string"), "status": jobStatuses()}, "id", "status")
	return map[string]description{
		"listSchedules": {summary: "List the caller's schedules", answers: ok(b.list("schedules", schedule, true))},
		"createSchedule": {
			summary: "Create a schedule", text: "Its jobs start by the clock.",
			body: b.Component("CreateScheduleRequest", scheduleSettingsBody(run, "cron", "run")), answers: created(schedule),
		},
		"getSchedule": {summary: "Get a schedule", answers: ok(schedule)},
		"updateSchedule": {
			summary: "Change a schedule", text: "Time in which it was disabled, or had another expression, is not caught up.",
			body: b.Component("UpdateScheduleRequest", scheduleSettingsBody(run).NotEmpty()), answers: ok(schedule),
		},
		"deleteSchedule": {summary: "Delete a schedule", text: "Its jobs stay.", answers: gone()},
		"runSchedule":    {summary: "Submit a job of a schedule at once", answers: ok(receipt)},
	}
}

// scheduledRunBody is the body of run without what a schedule decides.
func scheduledRunBody() *openapi.Schema {
	s := runBody()
	delete(s.At("queue").Properties, "startAfter")
	return s
}

func scheduleSettingsBody(run *openapi.Schema, required ...string) *openapi.Schema {
	s := recorded(func(o *object) { _ = o.schedule(&schedules.Settings{}) })
	s.Required = required
	s.At("cron").NotEmpty().MaxLength = cron.MaxLength
	s.At("timeZone").NotEmpty()
	openapi.OneOf(s.At("overlap"), schedules.OverlapSkip, schedules.OverlapQueue, schedules.OverlapAllow)
	openapi.OneOf(s.At("catchUp"), schedules.CatchUpNone, schedules.CatchUpLast, schedules.CatchUpAll)
	s.Properties["run"] = run
	return s
}

// A scheduleBody is a schedule on the wire (docs/interface.md 2.20).
type scheduleBody struct {
	ID        string            `json:"id"`
	Cron      string            `json:"cron"`
	TimeZone  string            `json:"timeZone"`
	Run       json.RawMessage   `json:"run"`
	Overlap   schedules.Overlap `json:"overlap"`
	CatchUp   schedules.CatchUp `json:"catchUp"`
	Enabled   bool              `json:"enabled"`
	Next      *wireTime         `json:"next"`
	Outcomes  []outcomeBody     `json:"outcomes"`
	CreatedAt wireTime          `json:"createdAt"`
}

type outcomeBody struct {
	At      wireTime           `json:"at"`
	Outcome schedules.Decision `json:"outcome"`
	Job     *string            `json:"job"`
	Detail  *string            `json:"detail"`
}

func scheduleOf(s schedules.Schedule) scheduleBody {
	b := scheduleBody{
		ID: s.ID, Cron: s.Cron, TimeZone: s.TimeZone, Run: s.Run, Overlap: s.Overlap, CatchUp: s.CatchUp, Enabled: s.Enabled,
		Outcomes: []outcomeBody{}, CreatedAt: wireTime(s.Created),
	}
	if next := s.Next(); !next.IsZero() {
		b.Next = (*wireTime)(&next)
	}
	for _, o := range s.Outcomes {
		b.Outcomes = append(b.Outcomes, outcomeBody{wireTime(o.At), o.Decision, orNull(string(o.Job)), orNull(o.Detail)})
	}
	return b
}

// schedule returns the ids in the path.
func (c *call) schedule() (endpoint, id string) {
	return c.r.PathValue("endpoint"), c.r.PathValue("schedule")
}

func (c *call) schedules() *schedules.Service { return c.Jobs.Schedules() }

func listSchedules(c *call) error {
	list, err := c.schedulesOf(c.r.PathValue("endpoint"))
	if err != nil {
		return err
	}
	return writeList(c, "schedules", list, func(s schedules.Schedule) string { return s.Owner }, scheduleOf)
}

// schedulesOf returns the schedules of the request's owner, or those of all users.
func (c *call) schedulesOf(endpoint string) ([]schedules.Schedule, error) {
	if c.owner == serverless.AllOwners {
		return c.schedules().All(c.r.Context(), endpoint)
	}
	return c.schedules().List(c.r.Context(), c.owner, endpoint)
}

func createSchedule(c *call) error {
	r, err := c.scheduleSettings()
	if err != nil {
		return err
	}
	endpoint := c.r.PathValue("endpoint")
	r.Idempotency = c.keyed
	s, err := c.schedules().Create(c.r.Context(), c.owner, endpoint, r)
	s, err = onceCreated(c, s, err, func(ctx context.Context, owner, id string) (schedules.Schedule, error) {
		return c.schedules().Get(ctx, owner, endpoint, id)
	})
	return writeMade(c, s, s.ID, err, scheduleOf)
}

func getSchedule(c *call) error {
	endpoint, id := c.schedule()
	s, err := c.schedules().Get(c.r.Context(), c.owner, endpoint, id)
	return writeRecord(c, s, err, scheduleOf)
}

func updateSchedule(c *call) error {
	endpoint, id := c.schedule()
	if _, err := c.schedules().Get(c.r.Context(), c.owner, endpoint, id); err != nil {
		return err // existence comes before the body
	}
	r, err := c.scheduleSettings()
	if err != nil {
		return err
	}
	s, err := c.schedules().Update(c.r.Context(), c.owner, endpoint, id, r)
	return writeRecord(c, s, err, scheduleOf)
}

func deleteSchedule(c *call) error {
	endpoint, id := c.schedule()
	return c.noContent(c.schedules().Delete(c.r.Context(), c.owner, endpoint, id))
}

func runSchedule(c *call) error {
	endpoint, id := c.schedule()
	return c.receipt(c.schedules().RunNow(c.r.Context(), c.owner, endpoint, id))
}

// scheduleSettings reads the body of create and update, which differ only in what they
// require.
func (c *call) scheduleSettings() (r schedules.Settings, err error) {
	body, err := c.body(maxControlBody)
	if err != nil {
		return r, err
	}
	return decodeSchedule(body)
}

// decodeSchedule is strict in all members but run, which is read as run reads its body.
func decodeSchedule(body []byte) (r schedules.Settings, err error) {
	o, err := parse(body, strictEnvelope, &r.Violations)
	if err != nil {
		return r, err
	}
	err = o.schedule(&r)
	return r, err
}

func (o *object) schedule(r *schedules.Settings) (err error) {
	r.Cron, r.TimeZone, r.Enabled = o.str("cron"), o.str("timeZone"), o.boolean("enabled")
	r.Overlap, r.CatchUp = (*schedules.Overlap)(o.str("overlap")), (*schedules.CatchUp)(o.str("catchUp"))
	r.Run, r.Secret, err = o.scheduledRun()
	o.unknown()
	return err
}

// scheduledRun reads the member run, and takes out what only workers see.
func (o *object) scheduledRun() (run, secret []byte, err error) {
	if err := o.checkNames("run"); err != nil {
		return nil, nil, err
	}
	sub := o.object("run")
	m := o.find("run")
	if sub == nil || m == nil {
		return nil, nil, nil
	}
	sub.base = m.at
	if err := sub.checkRunNames(); err != nil {
		return nil, nil, err
	}
	if m := sub.find("s3Config"); m != nil && m.value.Kind() != 'n' {
		secret = slices.Concat([]byte(`{"s3Config":`), m.value, []byte("}"))
	}
	return sub.without("s3Config"), secret, nil
}
