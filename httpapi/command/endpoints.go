package command

import (
	"context"
	"flag"
	"fmt"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func endpointCommands() []Command {
	return []Command{
		{Name: "endpoints list", Remote: true, Summary: "list endpoints", Example: "endpoints list", New: listEndpoints},
		{Name: "endpoints get", Args: "ENDPOINT", Remote: true, Summary: "show an endpoint with its jobs and workers counted", Example: "endpoints get echo", New: getEndpoint},
		{Name: "endpoints workers", Args: "ENDPOINT", Remote: true, Summary: "list the workers of an endpoint", Example: "endpoints workers hello", New: listWorkers},
		{Name: "endpoints pause", Args: "ENDPOINT", Remote: true, Summary: "let no job of an endpoint start; jobs are still taken into the queue", Example: "endpoints pause hello", New: pause(true)},
		{Name: "endpoints resume", Args: "ENDPOINT", Remote: true, Summary: "let jobs of an endpoint start again", Example: "endpoints resume hello", New: pause(false)},
		{
			Name: "endpoints delete", Args: "ENDPOINT...", Remote: true, Summary: "delete endpoints: their workers end, their jobs are cancelled", Example: "endpoints delete 4xoz...",
			New: ends("deleted", func(c *Call) func(context.Context, string) error { return c.Client.Endpoints.Delete }),
		},
		{Name: "schedules list", Args: "ENDPOINT", Remote: true, Summary: "list the schedules of an endpoint", Example: "schedules list echo", New: listSchedules},
		{
			Name: "schedules create", Args: "ENDPOINT", Remote: true, Summary: "submit a job at each instant of a cron expression",
			Example: `schedules create echo -cron '0 8 * * 1-5' -time-zone Europe/Berlin -input '{"hello":"world"}'`, New: createSchedule,
		},
		{Name: "schedules get", Args: "ENDPOINT SCHEDULE", Remote: true, Summary: "show a schedule with its last outcomes", Example: "schedules get echo m3k8...", New: getSchedule},
		{Name: "schedules enable", Args: "ENDPOINT SCHEDULE", Remote: true, Summary: "enable a schedule", Example: "schedules enable echo m3k8...", New: enable(true)},
		{Name: "schedules disable", Args: "ENDPOINT SCHEDULE", Remote: true, Summary: "disable a schedule", Example: "schedules disable echo m3k8...", New: enable(false)},
		{Name: "schedules run", Args: "ENDPOINT SCHEDULE", Remote: true, Summary: "submit a job of a schedule now", Example: "schedules run echo m3k8...", New: runSchedule},
		{Name: "schedules delete", Args: "ENDPOINT SCHEDULE...", Remote: true, Summary: "delete schedules; their jobs stay", Example: "schedules delete echo m3k8...", New: deleteSchedules},
	}
}

func listEndpoints(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.Client.Endpoints.List(ctx)
		return listOwned(
			c, all, err, func(e *client.Endpoint) string { return e.Owner },
			column[client.Endpoint]{"ID", func(e *client.Endpoint) string { return e.ID }},
			column[client.Endpoint]{"NAME", func(e *client.Endpoint) string { return short(e.Name, 30) }},
			column[client.Endpoint]{"TYPE", func(e *client.Endpoint) string { return e.Type }},
			column[client.Endpoint]{"IMAGE", func(e *client.Endpoint) string { return short(e.Image, 40) }},
			column[client.Endpoint]{"WORKERS", workerBounds},
		)
	}
}

// workerBounds is how many workers an endpoint may have: "0-3".
func workerBounds(e *client.Endpoint) string {
	if e.Workers.Min == nil || e.Workers.Max == nil {
		return ""
	}
	return fmt.Sprintf("%d-%d", *e.Workers.Min, *e.Workers.Max)
}

func getEndpoint(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		e, err := c.Client.Endpoints.Get(ctx, c.Args[0])
		if err != nil {
			return err
		}
		h, err := c.Client.Jobs(e.ID).Health(ctx)
		if err != nil {
			return err
		}
		return show(
			c, struct {
				client.Endpoint
				Health client.Health `json:"health"`
			}{e, h},
			field{"id", e.ID}, field{"name", e.Name}, field{"owner", e.Owner}, field{"type", e.Type}, field{"image", e.Image},
			field{"allowed workers", workerBounds(&e)}, field{"scaling", e.Scaling.Type}, field{"timeout", e.Timeout.Duration().String()},
			field{"jobs", fmt.Sprintf("%d queued, %d running, %d completed, %d failed", h.Jobs.InQueue, h.Jobs.InProgress, h.Jobs.Completed, h.Jobs.Failed)},
			field{"workers", workersOf(&h)},
		)
	}
}

// workersOf counts workers in words.
func workersOf(h *client.Health) string {
	w := h.Workers
	var parts []string
	for _, x := range []struct {
		n    int
		name string
	}{{w.Running, "running"}, {w.Idle, "idle"}, {w.Initializing, "starting"}, {w.Throttled, "without capacity"}, {w.Unhealthy, "not healthy"}} {
		if x.n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", x.n, x.name))
		}
	}
	if len(parts) == 0 {
		return "none"
	}
	return strings.Join(parts, ", ")
}

func listWorkers(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		workers, err := c.Client.Endpoints.Workers(ctx, c.Args[0])
		if err != nil {
			return err
		}
		return list(
			c, workers,
			column[client.Worker]{"ID", func(w *client.Worker) string { return w.ID }},
			column[client.Worker]{"STATUS", func(w *client.Worker) string { return w.Status }},
			column[client.Worker]{"IMAGE", func(w *client.Worker) string { return short(w.Image, 40) }},
			column[client.Worker]{"GPU", func(w *client.Worker) string { return w.GPUTypeID }},
			column[client.Worker]{"WHERE", func(w *client.Worker) string { return w.DataCenterID }},
			column[client.Worker]{"UP", func(w *client.Worker) string { return (time.Duration(w.UptimeSeconds) * time.Second).String() }},
		)
	}
}

func pause(paused bool) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(*flag.FlagSet) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			q, err := c.Client.Endpoints.UpdateQueue(ctx, c.Args[0], map[string]any{"paused": paused})
			if err != nil {
				return err
			}
			state := "active"
			if q.Paused {
				state = "paused"
			}
			return c.say(map[string]any{"endpoint": c.Args[0], "paused": q.Paused}, "%s is %s: %s ready, %d delayed, %d blocked", c.Args[0], state, count(q.Ready, "job"), q.Delayed, q.Blocked)
		}
	}
}

func (c *Call) schedules() *client.Schedules { return c.Client.Jobs(c.Args[0]).Schedules() }

func listSchedules(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.schedules().List(ctx)
		return listOwned(
			c, all, err, func(s *client.Schedule) string { return s.Owner },
			column[client.Schedule]{"ID", func(s *client.Schedule) string { return s.ID }},
			column[client.Schedule]{"CRON", func(s *client.Schedule) string { return s.Cron }},
			column[client.Schedule]{"TIME ZONE", func(s *client.Schedule) string { return s.TimeZone }},
			column[client.Schedule]{"NEXT", func(s *client.Schedule) string { return atOrNever(s.Next) }},
			column[client.Schedule]{"LAST OUTCOME", lastOutcome},
		)
	}
}

func lastOutcome(s *client.Schedule) string {
	if len(s.Outcomes) == 0 {
		return ""
	}
	return s.Outcomes[0].Outcome + " " + at(s.Outcomes[0].At)
}

func showSchedule(c *Call, s client.Schedule, err error) error {
	if err != nil {
		return err
	}
	enabled := "no"
	if s.Enabled {
		enabled = "yes"
	}
	fields := []field{
		{"id", s.ID}, {"cron", s.Cron}, {"time zone", s.TimeZone}, {"enabled", enabled}, {"next", atOrNever(s.Next)},
		{"overlap", s.Overlap}, {"catch up", s.CatchUp},
	}
	for _, o := range s.Outcomes {
		fields = append(fields, field{at(o.At), strings.TrimSpace(o.Outcome + " " + o.Job + " " + o.Detail)})
	}
	return show(c, s, fields...)
}

func getSchedule(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		s, err := c.schedules().Get(ctx, c.Args[1])
		return showSchedule(c, s, err)
	}
}

func createSchedule(f *flag.FlagSet) func(context.Context, *Call) error {
	var s client.ScheduleSettings
	f.StringVar(&s.Cron, "cron", "", "five `fields`: minute, hour, day, month, day of the week")
	f.StringVar(&s.TimeZone, "time-zone", "", "`name` like Europe/Berlin (default: UTC)")
	f.StringVar(&s.Overlap, "overlap", "", "when the job before has not ended: skip, queue or allow (default: skip)")
	f.StringVar(&s.CatchUp, "catch-up", "", "for instants at which no server ran: none, last or all (default: none)")
	input := f.String("input", "{}", "`input` of its jobs: a JSON object, @FILE, or - for standard input")
	return func(ctx context.Context, c *Call) error {
		object, err := readJSON(c, "-input", *input)
		if err != nil {
			return err
		}
		s.Run = &client.JobRequest{Input: object}
		made, err := c.schedules().Create(ctx, s)
		return showSchedule(c, made, err)
	}
}

func enable(enabled bool) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(*flag.FlagSet) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			s, err := c.schedules().Update(ctx, c.Args[1], client.ScheduleSettings{Enabled: &enabled})
			return showSchedule(c, s, err)
		}
	}
}

func runSchedule(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		j, err := c.schedules().Run(ctx, c.Args[1])
		return then(c, j, err, showJob)
	}
}

func deleteSchedules(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		return c.each(c.Args[1:], "deleted", func(id string) error { return c.schedules().Delete(ctx, id) })
	}
}
