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
	const targets = "Name exactly one of -host, -endpoint and -server. This machine is the host \"local\". A server is asked at its own address, with -url: one behind a balancer knows the others, and changes itself only. It takes an operator's key."
	return []Command{
		{Name: "drain", Remote: true, Summary: "keep new work off a host, an endpoint or the server, and end workers after their jobs", Help: targets + " A host is then cordoned, and an endpoint or the server drained, as top shows it. A server that is drained gives out no jobs, and its /readyz answers 503; with -wait the command ends when the jobs of its workers have, and the server can be stopped.", Example: "drain -server one -url http://one:8080 -wait", New: drain},
		{Name: "cordon", Remote: true, Summary: "keep new work off a host, an endpoint or the server", Help: targets, Example: "cordon -endpoint hello", New: target((*client.Admin).Cordon)},
		{Name: "uncordon", Remote: true, Summary: "take back a cordon or a drain", Help: targets, Example: "uncordon -host local", New: target((*client.Admin).Uncordon)},
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

// An aim is what the flags of an act name.
type aim struct{ client.Target }

func newAim(f *flag.FlagSet) *aim {
	t := &aim{}
	f.StringVar(&t.Host, "host", "", "`id` of a host")
	f.StringVar(&t.Endpoint, "endpoint", "", "`id` of an endpoint")
	f.StringVar(&t.Server, "server", "", "`name` of the server that is asked (-url)")
	return t
}

// act runs an act of an operator, and returns the state that its target has then, as top shows it.
func (t *aim) act(ctx context.Context, c *Call, act func(*client.Admin, context.Context, client.Target) (string, error)) (string, error) {
	if n := len(strings.Fields(strings.Join([]string{t.Host, t.Endpoint, t.Server}, " "))); n != 1 {
		return "", usagef("name exactly one of -host, -endpoint and -server")
	}
	return act(c.Client.Admin, ctx, t.Target)
}

// say says the state. more is what follows.
func (t *aim) say(c *Call, state, more string) error {
	name := t.Host + t.Endpoint + t.Server
	return c.say(map[string]string{"name": name, "state": state}, "%s is %s%s", name, state, more)
}

func target(act func(*client.Admin, context.Context, client.Target) (string, error)) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(f *flag.FlagSet) func(context.Context, *Call) error {
		t := newAim(f)
		return func(ctx context.Context, c *Call) error {
			state, err := t.act(ctx, c, act)
			if err != nil {
				return err
			}
			return t.say(c, state, "")
		}
	}
}

// lookEvery is how often drain -wait asks what is left.
const lookEvery = time.Second

// drain is target with a wait for the end of the workers of a host, or of the jobs of a server.
func drain(f *flag.FlagSet) func(context.Context, *Call) error {
	t := newAim(f)
	f.BoolVar(&t.StopPods, "stop-pods", false, "stop the pods of the host, too")
	wait := f.Bool("wait", false, "wait until the workers of the host have ended, or those of the server have no job")
	return func(ctx context.Context, c *Call) error {
		if *wait && t.Endpoint != "" {
			return usagef("-wait is for a host or a server: others may start workers of an endpoint")
		}
		state, err := t.act(ctx, c, (*client.Admin).Drain)
		switch {
		case err != nil:
			return err
		case !*wait:
			return t.say(c, state, "; its workers end after their jobs")
		}
		if err := t.wait(ctx, c); err != nil {
			return err
		}
		if t.Host != "" {
			return t.say(c, state, "; its workers have ended")
		}
		return t.say(c, state, "; its workers have no job left, so it can be stopped")
	}
}

// wait returns when a host has no workers, or a server no jobs.
func (t *aim) wait(ctx context.Context, c *Call) error {
	defer c.progress("waiting for what still runs on " + t.Host + t.Server)()
	for {
		select {
		case <-time.After(lookEvery):
		case <-ctx.Done():
			return ctx.Err()
		}
		s, err := c.Client.Admin.State(ctx)
		if err != nil {
			return err
		}
		left := workersOn(&s, t.Host)
		if t.Server != "" {
			left, err = jobsOf(&s, t.Server)
		}
		if err != nil || left == 0 {
			return err
		}
	}
}

// jobsOf returns how many jobs the workers of a server that is drained have.
func jobsOf(s *client.State, name string) (int, error) {
	switch {
	case s.Server == nil || s.Server.Name != name:
		return 0, fmt.Errorf("another server than %s has answered: ask it at its own address, with -url", name)
	case s.Server.State != "drained":
		return 0, fmt.Errorf("%s is %s again", name, s.Server.State)
	case s.Server.Jobs == nil:
		return 0, fmt.Errorf("%s does not know how many jobs its workers have", name)
	}
	return *s.Server.Jobs, nil
}

func workersOn(s *client.State, host string) (n int) {
	for _, h := range s.Hosts {
		if h.ID == host {
			n += h.Workers
		}
	}
	return n
}

func eraseJobs(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		for _, user := range c.Args {
			n, err := c.Client.Admin.EraseJobs(ctx, user)
			if err != nil {
				return about(user, err)
			}
			if err := c.say(map[string]any{"id": user, "jobs": n}, "%s: %s erased", user, count(n, "job")); err != nil {
				return err
			}
		}
		return nil
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
