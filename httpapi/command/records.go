package command

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func recordCommands() []Command {
	return []Command{
		{Name: "volumes list", Remote: true, Summary: "list network volumes", Example: "volumes list", New: listVolumes},
		{Name: "volumes create", Remote: true, Summary: "create a network volume", Example: "volumes create -name models -size 50 -data-center local", New: createVolume},
		{Name: "volumes resize", Args: "VOLUME", Remote: true, Summary: "make a network volume larger, or give it another name", Example: "volumes resize x7k2... -size 100", New: resizeVolume},
		{
			Name: "volumes delete", Args: "VOLUME...", Remote: true, Summary: "delete network volumes with what is on them", Example: "volumes delete x7k2...",
			New: ends("deleted", func(c *Call) func(context.Context, string) error { return c.Client.Volumes.Delete }),
		},
		{Name: "templates list", Remote: true, Summary: "list templates", Example: "templates list", New: listTemplates},
		{
			Name: "templates create", Remote: true, Summary: "create a template", Help: "-file has the body of POST /v2/templates.",
			Example: `templates create -file '{"name":"web","image":"nginx"}'`, New: createTemplate,
		},
		{
			Name: "templates delete", Args: "TEMPLATE...", Remote: true, Summary: "delete templates; what was made from them stays", Example: "templates delete x7k2...",
			New: ends("deleted", func(c *Call) func(context.Context, string) error { return c.Client.Templates.Delete }),
		},
		{Name: "registries list", Remote: true, Summary: "list credentials of registries, without their secrets", Example: "registries list", New: listRegistries},
		{
			Name: "registries create", Remote: true, Summary: "store a credential of a registry of images",
			Help:    "The password is the first line of standard input, so that no list of processes shows it.",
			Example: "registries create -name ghcr -username alice", New: createRegistry,
		},
		{
			Name: "registries delete", Args: "REGISTRY...", Remote: true, Summary: "delete credentials of registries", Example: "registries delete x7k2...",
			New: ends("deleted", func(c *Call) func(context.Context, string) error { return c.Client.Registries.Delete }),
		},
		{Name: "batches list", Args: "ENDPOINT", Remote: true, Summary: "list the batches of an endpoint", Example: "batches list echo", New: listBatches},
		{Name: "batches get", Args: "ENDPOINT BATCH", Remote: true, Summary: "show how far a batch is", Example: "batches get echo batch_x7k2...", New: oneBatch((*client.Jobs).GetBatch)},
		{Name: "batches start", Args: "ENDPOINT BATCH", Remote: true, Summary: "start the requests of a draft", Example: "batches start echo batch_x7k2...", New: oneBatch((*client.Jobs).FinalizeBatch)},
		{
			Name: "batches cancel", Args: "ENDPOINT BATCH", Remote: true, Summary: "end the requests of a batch that wait; running ones finish",
			Example: "batches cancel echo batch_x7k2...", New: oneBatch((*client.Jobs).CancelBatch),
		},
		{
			Name: "webhooks list", Args: "ENDPOINT", Remote: true, Summary: "list what became of the webhooks of an endpoint's jobs",
			Example: "webhooks list echo -state failed", New: listWebhooks,
		},
		{Name: "webhooks resend", Args: "ENDPOINT JOB...", Remote: true, Summary: "send the webhooks of jobs again", Example: "webhooks resend echo 5f0e...", New: resendWebhooks},
	}
}

func listVolumes(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.Client.Volumes.List(ctx)
		return listOwned(
			c, all, err, func(v *client.Volume) string { return v.Owner },
			column[client.Volume]{"ID", func(v *client.Volume) string { return v.ID }},
			column[client.Volume]{"NAME", func(v *client.Volume) string { return short(v.Name, 30) }},
			column[client.Volume]{"GB", func(v *client.Volume) string { return number(v.Size) }},
			column[client.Volume]{"WHERE", func(v *client.Volume) string { return v.DataCenter }},
			column[client.Volume]{"TYPE", func(v *client.Volume) string { return v.Type }},
		)
	}
}

func showVolume(c *Call, v client.Volume) error {
	return show(c, v, field{"id", v.ID}, field{"name", v.Name}, field{"size", number(v.Size) + " GB"}, field{"where", v.DataCenter}, field{"type", v.Type})
}

func createVolume(f *flag.FlagSet) func(context.Context, *Call) error {
	var v client.Volume
	f.StringVar(&v.Name, "name", "", "`name`")
	f.IntVar(&v.Size, "size", 10, "`GB`")
	f.StringVar(&v.DataCenter, "data-center", "", "`id` of the data center")
	f.StringVar(&v.Type, "type", "", "`type`: STANDARD or HIGH_PERFORMANCE (default: STANDARD)")
	return func(ctx context.Context, c *Call) error {
		made, err := c.Client.Volumes.Create(ctx, v)
		return then(c, made, err, showVolume)
	}
}

func resizeVolume(f *flag.FlagSet) func(context.Context, *Call) error {
	var v client.Volume
	f.StringVar(&v.Name, "name", "", "new `name`")
	f.IntVar(&v.Size, "size", 0, "new size in `GB`, which cannot be less than it is")
	return func(ctx context.Context, c *Call) error {
		if v.Name == "" && v.Size == 0 {
			return usagef("say what changes: -size or -name")
		}
		changed, err := c.Client.Volumes.Update(ctx, c.Args[0], v)
		return then(c, changed, err, showVolume)
	}
}

func listTemplates(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.Client.Templates.List(ctx)
		return listOwned(
			c, all, err, func(t *client.Template) string { return t.Owner },
			column[client.Template]{"ID", func(t *client.Template) string { return t.ID }},
			column[client.Template]{"NAME", func(t *client.Template) string { return short(t.Name, 30) }},
			column[client.Template]{"IMAGE", func(t *client.Template) string { return short(t.Image, 40) }},
			column[client.Template]{"FOR", templateFor},
		)
	}
}

// templateFor is who may use a template, and for what.
func templateFor(t *client.Template) string {
	what := "pods"
	if t.Serverless {
		what = "endpoints"
	}
	if t.Public {
		what += " of everybody"
	}
	return what
}

func createTemplate(f *flag.FlagSet) func(context.Context, *Call) error {
	file := f.String("file", "", "`body` of the request: a JSON object, @FILE, or - for standard input")
	return func(ctx context.Context, c *Call) error {
		var s client.TemplateSettings
		if err := readInto(c, "-file", *file, &s); err != nil {
			return err
		}
		t, err := c.Client.Templates.Create(ctx, s)
		if err != nil {
			return err
		}
		return show(c, t, field{"id", t.ID}, field{"name", t.Name}, field{"image", t.Image}, field{"for", templateFor(&t)})
	}
}

func listRegistries(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.Client.Registries.List(ctx)
		return listOwned(
			c, all, err, func(r *client.Registry) string { return r.Owner },
			column[client.Registry]{"ID", func(r *client.Registry) string { return r.ID }},
			column[client.Registry]{"NAME", func(r *client.Registry) string { return short(r.Name, 60) }},
		)
	}
}

func createRegistry(f *flag.FlagSet) func(context.Context, *Call) error {
	name := f.String("name", "", "`name` of the credential")
	username := f.String("username", "", "`user` at the registry")
	return func(ctx context.Context, c *Call) error {
		if c.Stdin == nil {
			return errors.New("the password comes from standard input, which there is not")
		}
		password, err := bufio.NewReader(io.LimitReader(c.Stdin, maxPassword)).ReadString('\n')
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if password = strings.TrimRight(password, "\r\n"); password == "" {
			return errors.New("the password comes from standard input, which is empty")
		}
		r, err := c.Client.Registries.Create(ctx, *name, client.Secret(*username), client.Secret(password))
		if err != nil {
			return err
		}
		return show(c, r, field{"id", r.ID}, field{"name", r.Name})
	}
}

const maxPassword = 64 << 10 // bytes

func listBatches(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		all, err := c.Client.Jobs(c.Args[0]).ListBatches(ctx)
		return listOwned(
			c, all, err, func(b *client.Batch) string { return b.Owner },
			column[client.Batch]{"ID", func(b *client.Batch) string { return b.ID }},
			column[client.Batch]{"NAME", func(b *client.Batch) string { return short(b.Name, 30) }},
			column[client.Batch]{"STATUS", func(b *client.Batch) string { return b.Status }},
			column[client.Batch]{"REQUESTS", func(b *client.Batch) string { return number(b.Total) }},
			column[client.Batch]{"RUNNING", func(b *client.Batch) string { return number(b.InProgress) }},
			column[client.Batch]{"COMPLETED", func(b *client.Batch) string { return number(b.Completed) }},
			column[client.Batch]{"FAILED", func(b *client.Batch) string { return number(b.Failed) }},
			column[client.Batch]{"CREATED", func(b *client.Batch) string { return at(time.UnixMilli(b.CreatedAt)) }},
		)
	}
}

func oneBatch(do func(*client.Jobs, context.Context, string) (client.Batch, error)) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(*flag.FlagSet) func(context.Context, *Call) error {
		return func(ctx context.Context, c *Call) error {
			b, err := do(c.Client.Jobs(c.Args[0]), ctx, c.Args[1])
			if err != nil {
				return about(c.Args[1], err)
			}
			return show(
				c, b, field{"id", b.ID}, field{"name", b.Name}, field{"owner", b.Owner}, field{"status", b.Status}, field{"created", at(time.UnixMilli(b.CreatedAt))},
				field{"requests", fmt.Sprintf("%d, of which %d run, %d completed, %d failed", b.Total, b.InProgress, b.Completed, b.Failed)},
			)
		}
	}
}

// A webhookRow is a webhook with the names of the interface.
type webhookRow struct {
	Job        string           `json:"job"`
	JobStatus  client.JobStatus `json:"jobStatus"`
	FinishedAt time.Time        `json:"finishedAt"`
	State      string           `json:"state"`
	Attempts   int              `json:"attempts"`
	Last       *deliveryRow     `json:"last"` // null: there was no attempt yet

	owner string
}

type deliveryRow struct {
	At     time.Time  `json:"at"`
	Status int        `json:"status"` // 0: there was no answer
	Error  string     `json:"error,omitempty"`
	Next   *time.Time `json:"next"`
}

func webhookOf(w *client.Webhook) webhookRow {
	row := webhookRow{Job: w.Job, JobStatus: w.JobStatus, FinishedAt: w.FinishedAt, State: w.State, Attempts: w.Attempts, owner: w.Owner}
	if l := w.Last; l != nil {
		row.Last = &deliveryRow{l.At, l.Status, l.Error, l.Next}
	}
	return row
}

// outcome is what the last attempt came to: "200", "no answer: connection refused".
func (w *webhookRow) outcome() string {
	switch {
	case w.Last == nil:
		return ""
	case w.Last.Status != 0:
		return number(w.Last.Status)
	}
	return "no answer: " + short(w.Last.Error, 60)
}

func listWebhooks(f *flag.FlagSet) func(context.Context, *Call) error {
	state := f.String("state", "", "only in this `state`: pending, delivered or failed")
	most := f.Int("limit", 100, "the `most` that are shown, newest first")
	return func(ctx context.Context, c *Call) error {
		var all []webhookRow
		for w, err := range c.Client.Endpoints.Webhooks(ctx, c.Args[0], *state) {
			if err != nil {
				return err
			}
			if len(all) == *most {
				break
			}
			all = append(all, webhookOf(&w))
		}
		return listOwned(
			c, all, nil, func(w *webhookRow) string { return w.owner },
			column[webhookRow]{"JOB", func(w *webhookRow) string { return w.Job }},
			column[webhookRow]{"ENDED", func(w *webhookRow) string { return at(w.FinishedAt) }},
			column[webhookRow]{"STATE", func(w *webhookRow) string { return w.State }},
			column[webhookRow]{"ATTEMPTS", func(w *webhookRow) string { return number(w.Attempts) }},
			column[webhookRow]{"LAST ANSWER", (*webhookRow).outcome},
			column[webhookRow]{"NEXT", func(w *webhookRow) string {
				if w.Last == nil {
					return ""
				}
				return atOrNever(w.Last.Next)
			}},
		)
	}
}

func resendWebhooks(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		return c.each(c.Args[1:], "is sent again", func(id string) error {
			_, err := c.Client.Endpoints.Redeliver(ctx, c.Args[0], id)
			return err
		})
	}
}
