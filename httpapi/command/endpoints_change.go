package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"strconv"
	"strings"

	"github.com/podyard/podyard/httpapi/client"
)

func endpointChangeCommands() []Command {
	return []Command{
		{
			Name: "endpoints create", Remote: true, Summary: "create an endpoint with a queue",
			Help:    "-file has the body of POST /v2/serverless, and the other flags take precedence.",
			Example: "endpoints create -name captions -image ghcr.io/acme/captions:1.2 -cpu host -max 3", New: changeEndpoint(createEndpoint),
		},
		{
			Name: "endpoints update", Args: "ENDPOINT", Remote: true, Summary: "change an endpoint; a change of its container is a new release",
			Help:    "-file has the body of PATCH /v2/serverless/ENDPOINT, and the other flags take precedence.",
			Example: "endpoints update 4xoz... -image ghcr.io/acme/captions:1.3", New: changeEndpoint(updateEndpoint),
		},
		{
			Name: "queue", Args: "ENDPOINT", Remote: true, Summary: "show the settings of an endpoint's queue, or change those that flags name",
			Help:    "\"none\" takes a limit away. Only the owner of the endpoint or an operator may change them.",
			Example: "queue echo -per-key 1 -per-user 10", New: queueSettings,
		},
	}
}

// An endpointForm has the flags of an endpoint.
type endpointForm struct {
	file, name, image, template, cpu, pools, args string
	vcpu                                          int
	least, most                                   optionalInt
	env                                           map[string]string
}

func (e *endpointForm) flags(f *flag.FlagSet) {
	e.env = map[string]string{}
	f.StringVar(&e.file, "file", "", "`body` of the request: a JSON object, @FILE, or - for standard input")
	f.StringVar(&e.name, "name", "", "`name`")
	f.StringVar(&e.image, "image", "", "container `image` of the workers")
	f.StringVar(&e.template, "template", "", "`id` of a template")
	f.StringVar(&e.cpu, "cpu", "", "CPU `flavor` of a worker")
	f.IntVar(&e.vcpu, "vcpu", 2, "how many vCPUs of the flavor")
	f.StringVar(&e.pools, "gpu", "", "`pools` of GPUs, separated by commas, the first choice first")
	f.StringVar(&e.args, "args", "", "`arguments` of the image")
	f.Var(&e.least, "min", "the fewest `workers`")
	f.Var(&e.most, "max", "the most `workers`")
	envFlag(f, e.env, "a `NAME=VALUE` of the environment of workers; may be repeated")
}

// An optionalInt is a number that may be absent.
type optionalInt struct{ n *int }

func (o *optionalInt) String() string {
	if o.n == nil {
		return ""
	}
	return strconv.Itoa(*o.n)
}

func (o *optionalInt) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil {
		return errors.New("must be a number")
	}
	o.n = &n
	return nil
}

// settings are those of the file, and those of the other flags over them.
func (e *endpointForm) settings(c *Call) (s client.EndpointSettings, err error) {
	if e.file != "" {
		if err := readInto(c, "-file", e.file, &s); err != nil {
			return s, err
		}
	}
	for _, x := range []struct {
		given string
		to    **string
	}{{e.name, &s.Name}, {e.image, &s.Image}, {e.args, &s.Args}} {
		if x.given != "" {
			*x.to = &x.given
		}
	}
	s.TemplateID = cmp.Or(e.template, s.TemplateID)
	if e.pools != "" {
		s.GPU = &client.EndpointGPU{Pools: strings.Split(e.pools, ",")}
	}
	if e.cpu != "" {
		s.CPU = []client.CPU{{ID: e.cpu, VCPU: e.vcpu}}
	}
	if len(e.env) > 0 {
		s.Env = e.env
	}
	if e.least.n != nil || e.most.n != nil {
		w := client.WorkerLimits{}
		if s.Workers != nil {
			w = *s.Workers
		}
		w.Min, w.Max = cmp.Or(e.least.n, w.Min), cmp.Or(e.most.n, w.Max)
		s.Workers = &w
	}
	return s, nil
}

// readInto reads the JSON of a flag.
func readInto(c *Call, flag, text string, to any) error {
	body, err := readJSON(c, flag, text)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(body, to); err != nil {
		return usagef("%s: %w", flag, err)
	}
	return nil
}

func showEndpoint(c *Call, e client.Endpoint) error {
	return show(
		c, e, field{"id", e.ID}, field{"name", e.Name}, field{"owner", e.Owner}, field{"type", e.Type}, field{"image", e.Image},
		field{"allowed workers", workerBounds(&e)}, field{"submit at", e.RequestURLs["run"]},
	)
}

// changeEndpoint sends the settings of the flags, and shows the endpoint that they make.
func changeEndpoint(send func(context.Context, *Call, client.EndpointSettings) (client.Endpoint, error)) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(f *flag.FlagSet) func(context.Context, *Call) error {
		var form endpointForm
		form.flags(f)
		return func(ctx context.Context, c *Call) error {
			s, err := form.settings(c)
			if err != nil {
				return err
			}
			e, err := send(ctx, c, s)
			return then(c, e, err, showEndpoint)
		}
	}
}

func createEndpoint(ctx context.Context, c *Call, s client.EndpointSettings) (client.Endpoint, error) {
	s.Type = cmp.Or(s.Type, "QUEUE")
	s.Scaling = cmp.Or(s.Scaling, &client.Scaling{Type: "QUEUE_DELAY", QueueDelay: 4}) // a job that waits for 4 s starts a worker
	return c.Client.Endpoints.Create(ctx, s)
}

func updateEndpoint(ctx context.Context, c *Call, s client.EndpointSettings) (client.Endpoint, error) {
	return c.Client.Endpoints.Update(ctx, c.Args[0], s)
}

func queueSettings(f *flag.FlagSet) func(context.Context, *Call) error {
	settings := map[string]any{}
	limit := func(name, member, what string) {
		f.Func(name, what, func(s string) error {
			if settings[member] = nil; s == "none" {
				return nil
			}
			n, err := strconv.Atoi(s)
			if settings[member] = n; err != nil {
				return errors.New(`must be a number, or "none"`)
			}
			return nil
		})
	}
	limit("per-key", "perKey", "the `most` running jobs of one key")
	limit("per-user", "perUser", "the `most` running jobs of one user")
	limit("total", "total", "the `most` running jobs")
	rate := func(name, member, what string) {
		f.Func(name, what, func(s string) (err error) {
			settings[member], err = rateSetting(s)
			return err
		})
	}
	rate("rate", "rate", "the `most` starts of jobs, such as 100/1m, or none")
	rate("per-key-rate", "perKeyRate", "the `most` starts of jobs of one key, such as 5/1s, or none")
	rate("per-user-rate", "perUserRate", "the `most` starts of jobs of one user, or none")
	keySettings(f, settings)
	f.BoolFunc("lift-holds", "let the keys go that workers hold", func(s string) (err error) {
		settings["liftHolds"], err = strconv.ParseBool(s)
		return err
	})
	length := func(name, member, what string) {
		f.Func(name, what, func(s string) error {
			d, err := duration(s)
			if settings[member] = d.Milliseconds(); err != nil {
				return errors.New("must be a duration like 90s or 2d")
			}
			return nil
		})
	}
	length("ageing", "ageing", "a job rises by one priority each time it has waited this `long`; 0s: never")
	length("retain", "retain", "how `long` results are kept, also past the ttl, from 1m to 30d")
	length("dead-letter", "deadLetter", "how `long` a job that failed for good is kept; 0s: not at all")
	return func(ctx context.Context, c *Call) error {
		read := func() (client.Queue, error) { return c.Client.Endpoints.Queue(ctx, c.Args[0]) }
		if len(settings) > 0 {
			read = func() (client.Queue, error) { return c.Client.Endpoints.UpdateQueue(ctx, c.Args[0], settings) }
		}
		q, err := read()
		return then(c, q, err, showQueue)
	}
}

// rateSetting reads a rate such as 5/1s, or none.
func rateSetting(s string) (any, error) {
	if s == "none" {
		return nil, nil
	}
	limit, per, ok := strings.Cut(s, "/")
	n, err := strconv.Atoi(limit)
	d, wrong := duration(per)
	if !ok || err != nil || wrong != nil {
		return nil, errors.New(`must be a number and a duration like 5/1s, or "none"`)
	}
	return client.QueueRate{Limit: n, Per: client.Millis(d)}, nil
}

// keySettings adds the flags for the limits of single keys.
func keySettings(f *flag.FlagSet, settings map[string]any) {
	f.Func("limits", "`limits` of a single key: name=2 for running jobs, name=5/1s for starts, name=2,5/1s for both, name=none; can be repeated", func(s string) error {
		name, limits, ok := strings.Cut(s, "=")
		if !ok {
			return errors.New("must be a key and its limits, like name=5/1s")
		}
		keys, _ := settings["keys"].(map[string]any)
		if keys == nil {
			keys = map[string]any{}
			settings["keys"] = keys
		}
		if keys[name] = nil; limits == "none" {
			return nil
		}
		rule := map[string]any{}
		for part := range strings.SplitSeq(limits, ",") {
			if n, err := strconv.Atoi(part); err == nil {
				rule["perKey"] = n
				continue
			}
			r, err := rateSetting(part)
			if rule["rate"] = r; err != nil || r == nil {
				return errors.New(`must be a number, or a number and a duration like 5/1s, or "none"`)
			}
		}
		keys[name] = rule
		return nil
	})
}

// A queueRecord is the settings of a queue with the names of the interface.
type queueRecord struct {
	PerKey     *int             `json:"perKey"`
	PerUser    *int             `json:"perUser"`
	Total      *int             `json:"total"`
	Ageing     client.Millis    `json:"ageing"`
	Retry      *client.JobRetry `json:"retry"`
	DeadLetter client.Millis    `json:"deadLetter"`
	Retain     *client.Millis   `json:"retain"`
	Paused     bool             `json:"paused"`
	Ready      int64            `json:"ready"`
	Delayed    int64            `json:"delayed"`
	Blocked    int64            `json:"blocked"`

	Rate        *client.QueueRate          `json:"rate"`
	PerKeyRate  *client.QueueRate          `json:"perKeyRate"`
	PerUserRate *client.QueueRate          `json:"perUserRate"`
	Keys        map[string]client.QueueKey `json:"keys"`
}

func showQueue(c *Call, q client.Queue) error {
	limit := func(n *int) string {
		if n == nil {
			return "none"
		}
		return strconv.Itoa(*n)
	}
	state := "active"
	if q.Paused {
		state = "paused"
	}
	rate := func(r *client.QueueRate) string {
		if r == nil {
			return "none"
		}
		return strconv.Itoa(r.Limit) + " in " + r.Per.Duration().String()
	}
	attempts := ""
	if q.Retry != nil {
		attempts = strconv.Itoa(q.Retry.Attempts)
	}
	return show(
		c, queueRecord(q),
		field{"state", state}, field{"running jobs of a key", limit(q.PerKey)}, field{"running jobs of a user", limit(q.PerUser)},
		field{"running jobs in all", limit(q.Total)}, field{"starts in all", rate(q.Rate)}, field{"starts of a key", rate(q.PerKeyRate)},
		field{"starts of a user", rate(q.PerUserRate)}, field{"keys with own limits", strconv.Itoa(len(q.Keys))}, field{"ageing", q.Ageing.Duration().String()}, field{"attempts", attempts},
		field{"dead letters kept", q.DeadLetter.Duration().String()},
		field{"jobs", number(q.Ready) + " ready, " + number(q.Delayed) + " delayed, " + number(q.Blocked) + " held by a limit or a rate"},
	)
}
