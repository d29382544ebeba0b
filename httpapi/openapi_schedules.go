package httpapi

import (
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/serverless/cron"
	"github.com/podyard/podyard/serverless/schedules"
)

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
