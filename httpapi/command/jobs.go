package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/internal/terminal"
)

func jobCommands() []Command {
	return []Command{
		{
			Name: "jobs list", Args: "ENDPOINT", Remote: true, Summary: "list your jobs on an endpoint, newest first",
			Example: "jobs list echo -status FAILED,TIMED_OUT", New: listJobs,
		},
		{
			Name: "jobs get", Args: "ENDPOINT JOB", Remote: true, Summary: "show a job with its output",
			Help: "The exit code is 1 if the job has ended without a result.", Example: "jobs get echo 3601...-u1", New: getJob,
		},
		{
			Name: "jobs submit", Args: "ENDPOINT", Remote: true, Summary: "submit a job",
			Help:    "The input is a JSON object: text, @FILE, or - for standard input.",
			Example: `jobs submit echo -input '{"hello":"world"}' -wait`, New: submitJob,
		},
		{Name: "jobs cancel", Args: "ENDPOINT JOB...", Remote: true, Summary: "cancel jobs", Example: "jobs cancel echo 3601...-u1", New: eachJob((*client.Jobs).Cancel)},
		{Name: "jobs retry", Args: "ENDPOINT JOB...", Remote: true, Summary: "run FAILED or TIMED_OUT jobs again", Example: "jobs retry echo 3601...-u1", New: eachJob((*client.Jobs).Retry)},
		{
			Name: "jobs actions", Args: "ENDPOINT ACTION", Remote: true, Summary: "cancel, retry, start or delete many jobs at once",
			Help:    "ACTION is cancel, retry, start or delete. A filter or -all says which jobs; with -preview they are only counted.",
			Example: "jobs actions echo cancel -status IN_QUEUE -before 2h -preview", New: actOnJobs,
		},
		{Name: "jobs stream", Args: "ENDPOINT JOB", Remote: true, Summary: "print what a job streams, a line for each chunk", Example: "jobs stream echo 3601...-u1", New: streamJob},
		{
			Name: "jobs log", Args: "ENDPOINT JOB", Remote: true, Summary: "print what a job has printed",
			Help: "Lines are kept that a worker prints with the id of the job: the newest 64 KB, as long as the job.", Example: "jobs log echo 3601...-u1", New: jobLog,
		},
		{
			Name: "why", Args: "ENDPOINT|POD [JOB]", Remote: true, Summary: "say what a job waits for, why a pod does not run, or what the scaler of an endpoint decided lately",
			Example: "why echo 3601...-u1", New: why,
		},
		{Name: "dead list", Args: "ENDPOINT", Remote: true, Summary: "list the dead letters of an endpoint: jobs that failed for good", Example: "dead list echo", New: listDead},
		{
			Name: "dead redrive", Args: "ENDPOINT [JOB...]", Remote: true, Summary: "submit the jobs of dead letters again, as new jobs",
			Example: "dead redrive echo -all", New: redriveDead,
		},
		{Name: "dead delete", Args: "ENDPOINT JOB...", Remote: true, Summary: "delete dead letters", Example: "dead delete echo 3601...-u1", New: deleteDead},
	}
}

// statuses are those of a flag: "FAILED,TIMED_OUT".
func statuses(text string) (list []client.JobStatus, err error) {
	known := []client.JobStatus{client.InQueue, client.InProgress, client.Completed, client.Failed, client.Cancelled, client.TimedOut}
	for s := range strings.SplitSeq(text, ",") {
		s = strings.ToUpper(strings.TrimSpace(s))
		if s != "" && !slices.Contains(known, client.JobStatus(s)) {
			return nil, usagef("-status %q: want one of %v", s, known)
		}
		if s != "" {
			list = append(list, client.JobStatus(s))
		}
	}
	return list, nil
}

func listJobs(f *flag.FlagSet) func(context.Context, *Call) error {
	status := f.String("status", "", "only jobs with one of these `statuses`, separated by commas")
	limit := f.Int("limit", 100, "at most so many; 0: all")
	return func(ctx context.Context, c *Call) error {
		want, err := statuses(*status)
		if err != nil {
			return err
		}
		var jobs []client.EndpointJob
		for j, err := range c.Client.Endpoints.Jobs(ctx, c.Args[0], want...) {
			if err != nil {
				return err
			}
			if jobs = append(jobs, j); len(jobs) == *limit {
				break
			}
		}
		return listOwned(
			c, jobs, nil, func(j *client.EndpointJob) string { return j.Owner },
			column[client.EndpointJob]{"ID", func(j *client.EndpointJob) string { return j.ID }},
			column[client.EndpointJob]{"STATUS", func(j *client.EndpointJob) string { return string(j.Status) }},
			column[client.EndpointJob]{"CREATED", func(j *client.EndpointJob) string { return at(j.CreatedAt) }},
			column[client.EndpointJob]{"COMPLETED", func(j *client.EndpointJob) string { return atOrNever(j.CompletedAt) }},
			column[client.EndpointJob]{"RAN", func(j *client.EndpointJob) string {
				if j.CompletedAt == nil {
					return ""
				}
				return (time.Duration(j.DurationMs) * time.Millisecond).String()
			}},
		)
	}
}

// showJob shows a job. One without a result is an error, too.
func showJob(c *Call, j client.Job) error {
	fields := []field{{"id", j.ID}, {"status", string(j.Status)}, {"worker", j.WorkerID}}
	if j.Status.Ended() {
		fields = append(fields, field{"waited", j.DelayTime.Duration().String()}, field{"ran", j.ExecutionTime.Duration().String()})
	}
	fields = append(fields, field{"error", j.Error}, field{"output", string(j.Output)})
	if err := show(c, jobJSON(j), fields...); err != nil {
		return err
	}
	return j.Err()
}

// jobJSON is a job without the members that it has not.
func jobJSON(j client.Job) map[string]any {
	out := map[string]any{"id": j.ID, "status": j.Status}
	if j.Status.Ended() {
		out["delayTime"], out["executionTime"] = j.DelayTime, j.ExecutionTime
	}
	for name, text := range map[string]string{"workerId": j.WorkerID, "error": j.Error} {
		if text != "" {
			out[name] = text
		}
	}
	for name, raw := range map[string]json.RawMessage{"output": j.Output, "input": j.Input} {
		if len(raw) > 0 {
			out[name] = raw
		}
	}
	return out
}

func getJob(f *flag.FlagSet) func(context.Context, *Call) error {
	wait := f.Bool("wait", false, "wait until it has ended")
	return func(ctx context.Context, c *Call) error {
		get := c.Client.Jobs(c.Args[0]).Get
		if *wait {
			get = c.Client.Jobs(c.Args[0]).Wait
		}
		j, err := get(ctx, c.Args[1])
		return then(c, j, err, showJob)
	}
}

// A submission has the flags of a job.
type submission struct {
	input, webhook, queueKey, idempotencyKey string
	priority                                 int
	unique                                   client.JobUnique
	uniquePeriod                             time.Duration
	delay, timeout, ttl, retain              time.Duration
}

func submitJob(f *flag.FlagSet) func(context.Context, *Call) error {
	var s submission
	f.StringVar(&s.input, "input", "{}", "`input`: a JSON object, @FILE, or - for standard input")
	wait := f.Bool("wait", false, "wait until it has ended, and show its output")
	f.StringVar(&s.webhook, "webhook", "", "`URL` that gets the job when it has ended")
	f.IntVar(&s.priority, "priority", 5, "0 to 9: 9 goes first")
	f.StringVar(&s.queueKey, "queue-key", "", "jobs with other `keys` take turns with it")
	f.DurationVar(&s.delay, "delay", 0, "how `long` it may not start")
	f.DurationVar(&s.timeout, "timeout", 0, "how `long` it may run (default: the endpoint's)")
	f.DurationVar(&s.ttl, "ttl", 0, "after how `long` it is deleted")
	f.DurationVar(&s.retain, "retain", 0, "how `long` its result is kept, from its end")
	f.StringVar(&s.unique.Key, "unique", "", "no other job with this `key` is made while this one is active")
	f.StringVar(&s.unique.While, "unique-while", "active", "how long its key is held: `queued`, active or period")
	f.DurationVar(&s.uniquePeriod, "unique-period", 0, "how `long` with -unique-while period")
	f.StringVar(&s.unique.OnConflict, "on-conflict", "keep", "keep the job that holds the key, or `replace` its input while it is queued")
	f.StringVar(&s.idempotencyKey, "idempotency-key", "", "for 24 hours, a submit with the same `key` is this job")
	return func(ctx context.Context, c *Call) error {
		r, err := s.request(c)
		if err != nil {
			return err
		}
		jobs := c.Client.Jobs(c.Args[0])
		j, err := jobs.Submit(ctx, r)
		if err == nil && *wait {
			done := c.progress("waiting for job " + j.ID)
			j, err = jobs.Wait(ctx, j.ID)
			done()
		}
		return then(c, j, err, showJob)
	}
}

// request makes the job of the flags.
func (s *submission) request(c *Call) (r client.JobRequest, err error) {
	input, err := readJSON(c, "-input", s.input)
	if err != nil {
		return r, err
	}
	r = client.JobRequest{Input: input, Webhook: s.webhook, IdempotencyKey: s.idempotencyKey}
	if s.timeout != 0 || s.ttl != 0 {
		r.Policy = &client.JobPolicy{ExecutionTimeout: client.Millis(s.timeout), TTL: client.Millis(s.ttl)}
	}
	if s.unique.Key == "" && (c.Given["unique-while"] || c.Given["unique-period"] || c.Given["on-conflict"]) {
		return r, usagef("-unique-while, -unique-period and -on-conflict need -unique")
	}
	if s.unique.Key != "" {
		s.unique.Period = client.Millis(s.uniquePeriod)
		r.Queue = &client.JobQueue{Unique: &s.unique}
	}
	if c.Given["priority"] || c.Given["queue-key"] || s.delay != 0 || s.retain != 0 {
		if r.Queue == nil {
			r.Queue = &client.JobQueue{}
		}
		r.Queue.Key, r.Queue.StartAfter, r.Queue.Retain = s.queueKey, client.Millis(s.delay), client.Millis(s.retain)
		if c.Given["priority"] {
			r.Queue.Priority = &s.priority
		}
	}
	return r, nil
}

// readJSON returns the JSON object that a flag has or names.
func readJSON(c *Call, flagName, text string) (json.RawMessage, error) {
	b := []byte(text)
	var err error
	file, isFile := strings.CutPrefix(text, "@")
	switch {
	case text == "-" && c.Stdin != nil:
		b, err = io.ReadAll(c.Stdin)
	case isFile:
		b, err = os.ReadFile(file)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flagName, err)
	}
	var object map[string]json.RawMessage
	if err := json.Unmarshal(b, &object); err != nil || object == nil {
		return nil, usagef("%s: must be a JSON object: %w", flagName, errorOr(err, "it is null"))
	}
	return b, nil
}

func errorOr(err error, text string) error {
	if err != nil {
		return err
	}
	return errors.New(text)
}

// eachJob runs an operation on each of the jobs that are named.
func eachJob(do func(*client.Jobs, context.Context, string) (client.Job, error)) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(*flag.FlagSet) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			var done []client.Job
			var failed error
			for _, id := range c.Args[1:] {
				j, err := do(c.Client.Jobs(c.Args[0]), ctx, id)
				if failed = about(id, err); err != nil {
					break
				}
				done = append(done, j)
			}
			return listDone(
				c, done, failed,
				column[client.Job]{"ID", func(j *client.Job) string { return j.ID }},
				column[client.Job]{"STATUS", func(j *client.Job) string { return string(j.Status) }},
			)
		}
	}
}

func actOnJobs(f *flag.FlagSet) func(context.Context, *Call) error {
	var filter client.JobFilter
	status := f.String("status", "", "only jobs with one of these `statuses`, separated by commas")
	key := f.String("queue-key", "", "only jobs with this `key`")
	f.StringVar(&filter.Batch, "batch", "", "only the requests of this `batch`")
	f.StringVar(&filter.Prefix, "prefix", "", "only jobs whose ids begin with `text`")
	before := f.String("before", "", "only jobs submitted before this `time`, or longer ago than this: 2h")
	after := f.String("after", "", "only jobs submitted since this `time`, or not longer ago than this: 2h")
	all := f.Bool("all", false, "all jobs of yours on the endpoint")
	preview := f.Bool("preview", false, "only count them")
	return func(ctx context.Context, c *Call) (err error) {
		action := client.Action(c.Args[1])
		if known := []client.Action{client.ActionCancel, client.ActionRetry, client.ActionStart, client.ActionDelete}; !slices.Contains(known, action) {
			return usagef("ACTION %q: want one of %v", action, known)
		}
		if filter.Status, err = statuses(*status); err != nil {
			return err
		}
		if c.Given["queue-key"] {
			filter.Key = key
		}
		if filter.Before, err = timeFlag("-before", *before, -1); err != nil {
			return err
		}
		if filter.After, err = timeFlag("-after", *after, -1); err != nil {
			return err
		}
		some := len(filter.Status) > 0 || filter.Key != nil || filter.Batch != "" || filter.Prefix != "" || filter.Before != nil || filter.After != nil
		if some == *all {
			return usagef("say which jobs: by -status, -queue-key, -batch, -prefix, -before or -after, or all of them with -all")
		}
		selected := &filter
		if *all {
			selected = nil
		}
		done := c.progress(c.Args[1] + " of jobs")
		r, err := c.Client.Jobs(c.Args[0]).Act(ctx, action, selected, *preview)
		done()
		if err != nil && r.Matched == 0 {
			return err
		}
		return errors.Join(err, showActions(c, r, *preview))
	}
}

func showActions(c *Call, r client.ActionResult, preview bool) error {
	if preview {
		return c.say(map[string]any{"matched": r.Matched, "preview": true}, "%s match; without -preview it is done", count(r.Matched, "job"))
	}
	failed := make([]map[string]string, 0, len(r.Failed))
	for _, x := range r.Failed {
		failed = append(failed, map[string]string{"id": x.ID, "error": x.Error})
		put(c.Stderr, "%s: %s\n", x.ID, clean(x.Error))
	}
	err := c.say(map[string]any{"matched": r.Matched, "done": r.Done, "failed": failed}, "%d of %s done", r.Done, count(r.Matched, "job"))
	if err == nil && len(failed) > 0 {
		err = fmt.Errorf("%s failed", count(len(failed), "job"))
	}
	return err
}

// timeFlag reads an instant: in RFC 3339, or as a time before (sign -1) or after now.
func timeFlag(name, text string, sign int) (*time.Time, error) {
	if text == "" {
		return nil, nil
	}
	if t, err := time.Parse(time.RFC3339, text); err == nil {
		return &t, nil
	}
	d, err := duration(text)
	if err != nil {
		return nil, usagef("%s %q: must be a time like 2027-01-01T00:00:00Z, or a duration like 36h or 30d", name, text)
	}
	if sign < 0 {
		d = -d
	}
	t := time.Now().Add(d)
	return &t, nil
}

// duration reads a duration, which may be in days: "30d".
func duration(text string) (time.Duration, error) {
	if days, ok := strings.CutSuffix(text, "d"); ok {
		d, err := time.ParseDuration(days + "h")
		return 24 * d, err
	}
	return time.ParseDuration(text)
}

func streamJob(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		for chunk, err := range c.Client.Jobs(c.Args[0]).Stream(ctx, c.Args[1]) {
			if err != nil {
				return err
			}
			if _, err := fmt.Fprintf(c.Stdout, "%s\n", terminal.EscapeJSON(chunk.Output)); err != nil {
				return err
			}
		}
		return nil
	}
}

func jobLog(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		l, err := c.Client.Jobs(c.Args[0]).Log(ctx, c.Args[1])
		if err != nil {
			return err
		}
		var b strings.Builder
		if l.Dropped > 0 {
			fmt.Fprintf(&b, "(%d older lines are no longer kept)\n", l.Dropped)
		}
		for _, line := range l.Lines {
			fmt.Fprintf(&b, "%s %-5s %s\n", line.Time.Format(time.RFC3339), clean(line.Level), cleanLines(line.Message))
		}
		return c.say(l, "%s", strings.TrimSuffix(b.String(), "\n"))
	}
}

func why(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		if job := c.Arg(1); job != "" {
			text, err := c.Client.Endpoints.Why(ctx, c.Args[0], job)
			if err != nil {
				return err
			}
			return c.say(map[string]string{"why": text}, "%s", clean(text))
		}
		decisions, err := c.Client.Endpoints.Decisions(ctx, c.Args[0])
		switch client.StatusOf(err) {
		case http.StatusNotFound, http.StatusForbidden:
			return c.whyPod(ctx, c.Args[0], err)
		}
		if err != nil {
			return err
		}
		return list(
			c, decisions,
			column[client.Decision]{"AT", func(d *client.Decision) string { return at(d.At) }},
			column[client.Decision]{"WANT", func(d *client.Decision) string { return number(d.Want) }},
			column[client.Decision]{"START", func(d *client.Decision) string { return number(d.Start) }},
			column[client.Decision]{"STOP", func(d *client.Decision) string { return number(len(d.Stop) + len(d.Drain)) }},
			column[client.Decision]{"REASON", func(d *client.Decision) string { return d.Reason }},
		)
	}
}

// whyPod says why a pod does not run. refused is why id was not taken for an endpoint.
func (c *Call) whyPod(ctx context.Context, id string, refused error) error {
	p, err := c.Client.Pods.Why(ctx, id)
	switch status := client.StatusOf(err); {
	case status == http.StatusNotFound && client.StatusOf(refused) == http.StatusNotFound:
		return &Error{ExitNotFound, fmt.Errorf("there is no endpoint and no pod %s, or it is not yours", id)}
	case status == http.StatusNotFound, status == http.StatusForbidden:
		return refused
	case err != nil:
		return err
	}
	y := p.Why
	if c.asJSON() {
		return writeJSON(c.Stdout, y)
	}
	if y.Why == "" {
		return c.say(nil, "it is %s", y.Status)
	}
	tries := ""
	if y.Tries > 0 {
		tries = count(y.Tries, "call") + " failed"
	}
	err = show(
		c, y, field{"status", y.Status}, field{"why", y.Why}, field{"since", atOrNever(y.Since)}, field{"tried", tries},
		field{"next try", atOrNever(y.NextTry)}, field{"its host says", y.Failure},
	)
	if err != nil || len(y.Hosts) == 0 {
		return err
	}
	put(c.Stdout, "\n")
	hosts := make([]field, 0, len(y.Hosts))
	for _, h := range y.Hosts {
		hosts = append(hosts, field{h.Host, h.Why})
	}
	return table(c.Stdout, hosts, []column[field]{
		{"HOST", func(h *field) string { return h.name }}, {"WHY", func(h *field) string { return h.text }},
	})
}

func listDead(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		jobs, err := c.Client.Jobs(c.Args[0]).DeadLetters(ctx)
		if err != nil {
			return err
		}
		letters := make([]deadLetter, 0, len(jobs))
		for _, j := range jobs {
			letters = append(letters, deadLetter{j.FailedAt, j.ExpiresAt, jobJSON(j), j})
		}
		return listOwned(
			c, letters, nil, func(d *deadLetter) string { return d.job.Owner },
			column[deadLetter]{"ID", func(d *deadLetter) string { return d.job.ID }},
			column[deadLetter]{"STATUS", func(d *deadLetter) string { return string(d.job.Status) }},
			column[deadLetter]{"FAILED", func(d *deadLetter) string { return at(d.FailedAt) }},
			column[deadLetter]{"KEPT UNTIL", func(d *deadLetter) string { return at(d.ExpiresAt) }},
			column[deadLetter]{"ERROR", func(d *deadLetter) string { return short(d.job.Error, 60) }},
		)
	}
}

// A deadLetter is one as the interface has it.
type deadLetter struct {
	FailedAt  time.Time      `json:"failedAt"`
	ExpiresAt time.Time      `json:"expiresAt"`
	Job       map[string]any `json:"job"`

	job client.Job
}

func redriveDead(f *flag.FlagSet) func(context.Context, *Call) error {
	all := f.Bool("all", false, "all of the endpoint")
	return func(ctx context.Context, c *Call) error {
		ids := c.Args[1:]
		if *all != (len(ids) == 0) {
			return usagef("name jobs, or all of them with -all")
		}
		jobs := c.Client.Jobs(c.Args[0])
		if *all {
			letters, err := jobs.DeadLetters(ctx)
			if err != nil {
				return err
			}
			for _, j := range letters {
				ids = append(ids, j.ID)
			}
		}
		type made struct {
			Dead string `json:"dead"`
			Job  string `json:"job"`
		}
		var done []made
		var failed error
		for _, id := range ids {
			j, err := jobs.Redrive(ctx, id)
			if failed = about(id, err); err != nil {
				break
			}
			done = append(done, made{id, j.ID})
		}
		return listDone(
			c, done, failed,
			column[made]{"DEAD LETTER", func(m *made) string { return m.Dead }},
			column[made]{"NEW JOB", func(m *made) string { return m.Job }},
		)
	}
}

func deleteDead(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		return c.each(c.Args[1:], "deleted", func(id string) error {
			return c.Client.Jobs(c.Args[0]).DeleteDeadLetter(ctx, id)
		})
	}
}

// ends is a command that ends each record that is named, with a call of the client.
func ends(done string, call func(*Call) func(context.Context, string) error) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(*flag.FlagSet) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			return c.each(c.Args, done, func(id string) error { return call(c)(ctx, id) })
		}
	}
}

// each does something with each record that is named, and says so.
func (c *Call) each(ids []string, done string, do func(id string) error) error {
	for _, id := range ids {
		if err := do(id); err != nil {
			return about(id, err)
		}
		if err := c.say(map[string]string{"id": id, "done": done}, "%s %s", id, done); err != nil {
			return err
		}
	}
	return nil
}
