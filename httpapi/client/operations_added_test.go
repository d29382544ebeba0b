package client_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/podyard/podyard/httpapi/client"
)

func TestEventsOfWorkersNameTheirWorker(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		_, _ = io.WriteString(w, "id: 7-1\ndata: {\"id\":\"7-1\",\"type\":\"worker_joined\",\"time\":\"2000-01-01T00:00:00.000Z\",\"job\":null,\"status\":null,\"worker\":\"w\"}\n\n")
	}))
	defer srv.Close()
	c := must(client.New(&client.Options{URL: srv.URL, Key: "k"}))(t)
	for e, err := range c.Jobs("e").Events(t.Context(), "", "", "worker_joined") {
		if err != nil || e.Type != "worker_joined" || e.Worker != "w" || e.Job != "" || e.Status != "" {
			t.Errorf("the event is %+v, %v", e, err)
		}
		break
	}
}

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
