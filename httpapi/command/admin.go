package command

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

func adminCommands() []Command {
	const targets = "Name exactly one of -host, -endpoint and -server. This machine is the host \"local\". It takes an operator's key."
	return []Command{
		{Name: "drain", Remote: true, Summary: "keep new work off a host, an endpoint or the server, and end workers after their jobs", Help: targets + " A host is then cordoned, and an endpoint or the server drained, as top shows it.", Example: "drain -host local", New: target((*client.Admin).Drain, "; its workers end after their jobs")},
		{Name: "cordon", Remote: true, Summary: "keep new work off a host, an endpoint or the server", Help: targets, Example: "cordon -endpoint hello", New: target((*client.Admin).Cordon, "")},
		{Name: "uncordon", Remote: true, Summary: "take back a cordon or a drain", Help: targets, Example: "uncordon -host local", New: target((*client.Admin).Uncordon, "")},
		{
			Name: "erase jobs", Args: "USER...", Remote: true, Summary: "end and delete all jobs of users, with their results, to make room on the disk",
			Help:    "The users keep everything else. It takes an operator's key. limits -owner '*' shows who keeps most.",
			Example: "erase jobs alice", New: eraseJobs,
		},
		{
			Name: "top", Remote: true, Summary: "show hosts, endpoints and their jobs, again and again",
			Help: "With an operator's key there are hosts and users, too. Ctrl-C ends it.", Example: "top -every 5s", New: top,
		},
		{
			Name: "health", Summary: "ask a server whether it runs; it takes no key",
			Help:    "The exit code is 0 if it does, and 4 if not. It is meant for the health check of a container.",
			Example: "health -ready", New: health,
		},
	}
}

// target runs an act of an operator on what the flags name, and says the state that it has then, as
// top does. more is what follows.
func target(act func(*client.Admin, context.Context, client.Target) (string, error), more string) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(f *flag.FlagSet) func(context.Context, *Call) error {
		var t client.Target
		f.StringVar(&t.Host, "host", "", "`id` of a host")
		f.StringVar(&t.Endpoint, "endpoint", "", "`id` of an endpoint")
		f.StringVar(&t.Server, "server", "", "`name` of the server")
		f.BoolVar(&t.StopPods, "stop-pods", false, "drain only: stop the pods of the host, too")
		return func(ctx context.Context, c *Call) error {
			named := t.Host + t.Endpoint + t.Server
			if n := len(strings.Fields(strings.Join([]string{t.Host, t.Endpoint, t.Server}, " "))); n != 1 {
				return usagef("name exactly one of -host, -endpoint and -server")
			}
			state, err := act(c.Client.Admin, ctx, t)
			if err != nil {
				return err
			}
			return c.say(map[string]string{"name": named, "state": state}, "%s is %s%s", named, state, more)
		}
	}
}

func eraseJobs(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		return c.each(c.Args, "without jobs", func(user string) error {
			_, err := c.Client.Admin.EraseJobs(ctx, user)
			return err
		})
	}
}

func health(f *flag.FlagSet) func(context.Context, *Call) error {
	where := f.String("url", "", "`URL`: where the server is (default: PODYARD_URL, PODYARD_ADDR, or http://127.0.0.1:8080)")
	ready := f.Bool("ready", false, "also ask whether it takes new work")
	wait := f.Duration("timeout", 5*time.Second, "how `long` to wait for the answer")
	return func(ctx context.Context, c *Call) error {
		if *where == "" {
			*where = defaultURL(c.Env)
		}
		ctx, cancel := context.WithTimeout(ctx, *wait)
		defer cancel()
		paths := []string{"/healthz"}
		if *ready {
			paths = append(paths, "/readyz")
		}
		for _, path := range paths {
			if err := ask(ctx, strings.TrimRight(*where, "/"), path); err != nil {
				return err
			}
		}
		_, err := fmt.Fprintln(c.Stdout, "ok")
		return err
	}
}

// ask is nil if the answer of a server is 200.
func ask(ctx context.Context, where, path string) error {
	url := where + path
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return usagef("-url: %w", err)
	}
	c := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10}}
	res, err := c.Do(r)
	if err != nil {
		return &Error{ExitUnreachable, noAnswer(where, err)}
	}
	body, err := io.ReadAll(io.LimitReader(res.Body, 4096))
	err = errors.Join(err, res.Body.Close())
	if err == nil && res.StatusCode == http.StatusOK {
		return nil
	}
	text := strings.TrimSpace(clean(string(body)))
	var doc struct{ Detail string }
	if json.Unmarshal(body, &doc) == nil && doc.Detail != "" {
		text = clean(doc.Detail)
	}
	return &Error{ExitUnreachable, errors.Join(fmt.Errorf("%s: %d: %s", url, res.StatusCode, text), err)}
}
