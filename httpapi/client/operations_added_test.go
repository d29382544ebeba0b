package client_test

import (
	"context"

	"github.com/podyard/podyard/httpapi/client"
)

var addedMethods = map[string]method{
	"jobEvents": func(ctx context.Context, w *world) error {
		for e, err := range w.Client.Jobs("q").Events(ctx, "", "1-1", "queued", "cancelled") {
			switch {
			case err != nil:
				return err
			case e.Type == "gap":
				if _, err := w.Client.Jobs("q").Submit(ctx, client.JobRequest{}); err != nil {
					return err
				}
			default:
				return is(func(e client.JobEvent) bool {
					return e.Type == "queued" && e.Job != "" && e.Status == client.InQueue && !e.Time.IsZero()
				}, e, nil)
			}
		}
		return ctx.Err()
	},
	"listSchedules": func(ctx context.Context, w *world) error {
		list, err := w.Client.Jobs("q").Schedules().List(ctx)
		return has(func(s client.Schedule) bool { return s.ID == w.schedule && s.TimeZone == "UTC" }, list, err)
	},
	"createSchedule": func(ctx context.Context, w *world) error {
		s, err := w.Client.Jobs("q").Schedules().Create(ctx, client.ScheduleSettings{
			Cron: "30 6 * * MON-FRI", TimeZone: "Europe/Berlin", Overlap: "allow", CatchUp: "last", Enabled: new(false),
			Run: &client.JobRequest{Input: map[string]any{"a": 1}, Queue: &client.JobQueue{Key: "k"}},
		})
		return is(func(s client.Schedule) bool {
			return s.Next == nil && s.Run.Queue.Key == "k" && s.CatchUp == "last" && !s.CreatedAt.IsZero()
		}, s, err)
	},
	"getSchedule": func(ctx context.Context, w *world) error {
		s, err := w.Client.Jobs("q").Schedules().Get(ctx, w.schedule)
		return is(func(s client.Schedule) bool { return s.Enabled && s.Next.After(w.Now()) }, s, err)
	},
	"updateSchedule": func(ctx context.Context, w *world) error {
		s, err := w.Client.Jobs("q").Schedules().Update(ctx, w.schedule, client.ScheduleSettings{Cron: "5 * * * *"})
		return is(func(s client.Schedule) bool { return s.Cron == "5 * * * *" && s.Next.Minute() == 5 }, s, err)
	},
	"deleteSchedule": func(ctx context.Context, w *world) error {
		return w.Client.Jobs("q").Schedules().Delete(ctx, w.schedule)
	},
	"runSchedule": func(ctx context.Context, w *world) error {
		schedules := w.Client.Jobs("q").Schedules()
		j, err := schedules.Run(ctx, w.schedule)
		if err != nil {
			return err
		}
		s, err := schedules.Get(ctx, w.schedule)
		return is(func(s client.Schedule) bool {
			return len(s.Outcomes) == 1 && s.Outcomes[0].Outcome == "requested" && s.Outcomes[0].Job == j.ID
		}, s, err)
	},
}
