package command

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"strconv"
	"time"

	"github.com/podyard/podyard/httpapi/client"
)

// A podOptionFlags collects the flags that set what only this service has.
type podOptionFlags struct{ client.PodOptions }

func optionFlags(f *flag.FlagSet) *podOptionFlags {
	o := &podOptionFlags{}
	o.text(f, "user", "user", "`user` of the container instead of the image's: app, 1000 or 1000:1000", func(s string) { o.User = &s })
	o.text(f, "restart", "restart", "after which ends it starts again: never, on-failure or always (`policy`)", func(s string) { o.Restart = s })
	o.text(f, "expose-http", "exposeHttp", "who reaches its HTTP ports: open or key (`who`)", func(s string) { o.ExposeHTTP = s })
	o.number(f, "shm-size", "shmSize", "`MB` of /dev/shm", func(n int) { o.ShmSize = &n })
	o.number(f, "max-restarts", "maxRestarts", "how `often` in a row it starts again", func(n int) { o.MaxRestarts = &n })
	o.duration(f, "stop-grace", "stopGrace", "`time` to end after a stop before it is killed: 30s", func(ms int64) { o.StopGrace = &ms })
	o.duration(f, "stop-after", "stopAfter", "stop it this `time` after its start: 8h", func(ms int64) { o.StopAfter = &ms })
	o.duration(f, "idle", "idle", "stop it after this `time` with its GPUs and CPU at 5 % or less: 30m", func(ms int64) { o.Idle = &client.PodIdle{For: ms} })
	return o
}

// text adds a flag; default takes the default of the member.
func (o *podOptionFlags) text(f *flag.FlagSet, name, member, usage string, set func(string)) {
	o.add(f, name, member, usage, func(s string) error { set(s); return nil })
}

func (o *podOptionFlags) number(f *flag.FlagSet, name, member, usage string, set func(int)) {
	o.add(f, name, member, usage, func(s string) error {
		n, err := strconv.Atoi(s)
		if err != nil {
			return errors.New("must be a whole number")
		}
		set(n)
		return nil
	})
}

func (o *podOptionFlags) duration(f *flag.FlagSet, name, member, usage string, set func(ms int64)) {
	o.add(f, name, member, usage, func(s string) error {
		d, err := time.ParseDuration(s)
		if err != nil {
			return errors.New("must be a time such as 90s, 30m or 8h")
		}
		set(d.Milliseconds())
		return nil
	})
}

func (o *podOptionFlags) add(f *flag.FlagSet, name, member, usage string, set func(string) error) {
	f.Func(name, usage, func(s string) error {
		if s == "default" {
			o.Defaults = append(o.Defaults, member)
			return nil
		}
		return set(s)
	})
}

func (o *podOptionFlags) empty() bool {
	x := o.PodOptions
	return len(x.Defaults) == 0 && x.StopGrace == nil && x.ShmSize == nil && x.User == nil && x.Restart == "" && x.MaxRestarts == nil &&
		x.StopAfter == nil && x.Idle == nil && x.ExposeHTTP == ""
}

// over are the flags over what a file says.
func (o *podOptionFlags) over(file *client.PodOptions) *client.PodOptions {
	x := o.PodOptions
	if file == nil {
		return &x
	}
	fill(&x.StopGrace, file.StopGrace)
	fill(&x.ShmSize, file.ShmSize)
	fill(&x.User, file.User)
	fill(&x.MaxRestarts, file.MaxRestarts)
	fill(&x.StopAfter, file.StopAfter)
	fill(&x.Idle, file.Idle)
	if x.Restart == "" {
		x.Restart = file.Restart
	}
	if x.ExposeHTTP == "" {
		x.ExposeHTTP = file.ExposeHTTP
	}
	return &x
}

func fill[T any](to **T, from *T) {
	if *to == nil {
		*to = from
	}
}

func podOptions(f *flag.FlagSet) func(context.Context, *Call) error {
	o := optionFlags(f)
	return func(ctx context.Context, c *Call) error {
		id := c.Args[0]
		if !o.empty() {
			if _, err := c.Client.Pods.Update(ctx, id, client.PodUpdate{Options: &o.PodOptions}); err != nil {
				return err
			}
		}
		x, err := c.Client.Pods.Options(ctx, id)
		if err != nil {
			return err
		}
		return showOptions(c, x)
	}
}

func showOptions(c *Call, x client.PodOptions) error {
	idle := ""
	if i := x.Idle; i != nil && i.GPU != nil && i.CPU != nil {
		idle = fmt.Sprintf("%v with GPUs at %d %% and CPU at %d %% or less", millis(&i.For), *i.GPU, *i.CPU)
	}
	user, shm, restarts := "", "", ""
	if x.User != nil {
		user = *x.User
	}
	if x.ShmSize != nil {
		shm = strconv.Itoa(*x.ShmSize) + " MB"
	}
	if x.MaxRestarts != nil {
		restarts = strconv.Itoa(*x.MaxRestarts)
	}
	return show(c, x, field{"stop grace", millis(x.StopGrace)}, field{"shm size", shm}, field{"user", user}, field{"restart", x.Restart},
		field{"max restarts", restarts}, field{"stop after", millis(x.StopAfter)}, field{"idle", idle}, field{"expose http", x.ExposeHTTP})
}

func millis(ms *int64) string {
	if ms == nil {
		return ""
	}
	return (time.Duration(*ms) * time.Millisecond).String()
}
