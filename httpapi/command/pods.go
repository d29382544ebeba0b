package command

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/internal/terminal"
)

func podCommands() []Command {
	const needsPods = "POD..."
	return []Command{
		{Name: "pods list", Remote: true, Summary: "list pods", Example: "pods list -o json", New: listPods},
		{Name: "pods get", Args: "POD", Remote: true, Summary: "show a pod", Example: "pods get 19dl...", New: getPod},
		{
			Name: "pods create", Remote: true, Summary: "create a pod",
			Help:    "-file has the body of POST /v2/pods, and the other flags take precedence.",
			Example: "pods create -name web -image podyard/web -cpu host -vcpu 2 -ports 8000/http -wait", New: createPod,
		},
		{
			Name: "pods options", Args: "POD", Remote: true, Summary: "show or change what only this service has: grace, restarts, deadlines",
			Help:    "The flags that are given are changed; default takes the default of a setting. /dev/shm and the user change at the next start that makes a container.",
			Example: "pods options -stop-grace 30s -restart on-failure 19dl...", New: podOptions,
		},
		{Name: "pods start", Args: needsPods, Remote: true, Summary: "start pods that were stopped", Example: "pods start 19dl...", New: eachPod((*client.Pods).Start, "RUNNING")},
		{Name: "pods stop", Args: needsPods, Remote: true, Summary: "stop pods and keep their disks", Example: "pods stop 19dl...", New: eachPod((*client.Pods).Stop, "EXITED")},
		{Name: "pods restart", Args: needsPods, Remote: true, Summary: "make the containers of pods anew", Example: "pods restart 19dl...", New: eachPod((*client.Pods).Restart, "RUNNING")},
		{
			Name: "pods terminate", Args: needsPods, Remote: true, Summary: "delete pods with their disks", Example: "pods terminate 19dl...",
			New: ends("terminated", func(c *Call) func(context.Context, string) error { return c.Client.Pods.Terminate }),
		},
		{
			Name: "logs", Args: "POD|WORKER|ENDPOINT", Remote: true, Summary: "print the log of a pod, of a worker, or of the newest worker of an endpoint",
			Help:    "A worker is found by its id, or named with its endpoint: ENDPOINT/WORKER. Without -f the command ends after the past lines, when no other line comes for a second.",
			Example: "logs -f 19dl...", New: printLogs,
		},
	}
}

func podColumns() []column[client.Pod] {
	return []column[client.Pod]{
		{"ID", func(p *client.Pod) string { return p.ID }},
		{"NAME", func(p *client.Pod) string { return short(p.Name, 30) }},
		{"STATUS", func(p *client.Pod) string { return p.Status }},
		{"IMAGE", func(p *client.Pod) string { return short(p.Image, 40) }},
		{"COMPUTE", compute},
		{"WHERE", func(p *client.Pod) string { return p.DataCenterID }},
		{"CREATED", func(p *client.Pod) string { return at(p.CreatedAt) }},
	}
}

// compute is what a pod has: "4 x NVIDIA A40", "2 vCPU host".
func compute(p *client.Pod) string {
	switch {
	case p.GPU != nil:
		return fmt.Sprintf("%d x %s", max(1, p.GPU.Count), p.GPU.ID)
	case p.CPU != nil:
		return fmt.Sprintf("%d vCPU %s", p.CPU.VCPU, p.CPU.ID)
	}
	return ""
}

func listPods(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		pods, err := c.Client.Pods.List(ctx)
		return listOwned(c, pods, err, func(p *client.Pod) string { return p.Owner }, podColumns()...)
	}
}

func getPod(*flag.FlagSet) func(context.Context, *Call) error {
	return func(ctx context.Context, c *Call) error {
		p, err := c.Client.Pods.Get(ctx, c.Args[0])
		return then(c, p, err, showPod)
	}
}

func showPod(c *Call, p client.Pod) error {
	fields := []field{
		{"id", p.ID}, {"name", p.Name}, {"owner", p.Owner}, {"status", p.Status}, {"image", p.Image}, {"compute", compute(&p)},
		{"where", p.DataCenterID}, {"created", at(p.CreatedAt)}, {"started", atOrNever(p.StartedAt)}, {"cost", money(p.Cost)},
	}
	if p.SSH.Direct != nil {
		fields = append(fields, field{"ssh", p.SSH.Direct.Command})
	}
	if p.Runtime != nil {
		for _, port := range p.Runtime.Ports {
			fields = append(fields, field{"port " + strconv.Itoa(port.Private) + "/" + port.Type, fmt.Sprintf("%s:%d", port.IP, port.Public)})
		}
	}
	return show(c, p, append(fields, field{"actions", strings.Join(p.Actions, ", ")})...)
}

func money(usd float64) string {
	if usd == 0 {
		return ""
	}
	return strconv.FormatFloat(usd, 'f', -1, 64) + " USD an hour"
}

// A podForm has the flags of a new pod.
type podForm struct {
	file, name, image, template, gpu, cpu, ports, args string
	vcpu, gpus, disk                                   int
	env                                                map[string]string
}

func createPod(f *flag.FlagSet) func(context.Context, *Call) error {
	p := podForm{env: map[string]string{}}
	f.StringVar(&p.file, "file", "", "`body` of the request: a JSON object, @FILE, or - for standard input")
	f.StringVar(&p.name, "name", "", "`name`")
	f.StringVar(&p.image, "image", "", "container `image`")
	f.StringVar(&p.template, "template", "", "`id` of a template")
	f.StringVar(&p.cpu, "cpu", "", "CPU `flavor`")
	f.IntVar(&p.vcpu, "vcpu", 2, "how many vCPUs of the flavor")
	f.StringVar(&p.gpu, "gpu", "", "GPU `type`")
	f.IntVar(&p.gpus, "gpus", 1, "how many GPUs of the type")
	f.IntVar(&p.disk, "disk", 0, "`GB` of disk (default: the server's)")
	f.StringVar(&p.ports, "ports", "", "`ports`, separated by commas: 8000/http,22/tcp")
	f.StringVar(&p.args, "args", "", "`arguments` of the image, or an object with both lists: {\"entrypoint\":[\"sh\"],\"cmd\":[\"-c\",\"...\"]}")
	envFlag(f, p.env, "a `NAME=VALUE` of its environment; may be repeated")
	o := optionFlags(f)
	wait := f.Bool("wait", false, "wait until it runs")
	return func(ctx context.Context, c *Call) error {
		s, err := p.settings(c)
		if !o.empty() {
			s.Options = o.over(s.Options)
		}
		if err != nil {
			return err
		}
		pod, err := c.Client.Pods.Create(ctx, s)
		if err == nil && *wait {
			done := c.progress("waiting for pod " + pod.ID)
			pod, err = c.Client.Pods.Await(ctx, pod.ID, "RUNNING")
			done()
		}
		return then(c, pod, err, showPod)
	}
}

// envFlag defines the flag -env, which fills env.
func envFlag(f *flag.FlagSet, env map[string]string, what string) {
	f.Func("env", what, func(s string) error {
		name, value, ok := strings.Cut(s, "=")
		if env[name] = value; !ok || name == "" {
			return errors.New("must be NAME=VALUE")
		}
		return nil
	})
}

// settings are those of the file, and those of the other flags over them.
func (p *podForm) settings(c *Call) (s client.PodSettings, err error) {
	if p.file != "" {
		body, err := readJSON(c, "-file", p.file)
		if err != nil {
			return s, err
		}
		if err := json.Unmarshal(body, &s); err != nil {
			return s, usagef("-file: %w", err)
		}
	}
	s.Name, s.Image, s.TemplateID, s.Args = cmp.Or(p.name, s.Name), cmp.Or(p.image, s.Image), cmp.Or(p.template, s.TemplateID), cmp.Or(p.args, s.Args)
	s.Disk = cmp.Or(p.disk, s.Disk)
	if p.ports != "" {
		s.Ports = strings.Split(p.ports, ",")
	}
	if len(p.env) > 0 {
		s.Env = p.env
	}
	if p.gpu != "" {
		s.GPU = &client.GPU{ID: p.gpu, Count: p.gpus}
	}
	if p.cpu != "" {
		s.CPU = &client.CPU{ID: p.cpu, VCPU: p.vcpu}
	}
	return s, nil
}

// eachPod runs an operation on each of the pods that are named.
func eachPod(do func(*client.Pods, context.Context, string) (client.Pod, error), then string) func(*flag.FlagSet) func(context.Context, *Call) error {
	return func(f *flag.FlagSet) func(context.Context, *Call) error {
		wait := f.Bool("wait", false, "wait until they are "+then)
		return func(ctx context.Context, c *Call) error {
			var done []client.Pod
			var failed error
			for _, id := range c.Args {
				p, err := do(c.Client.Pods, ctx, id)
				if failed = about(id, err); err != nil {
					break
				}
				done = append(done, p)
			}
			for i := range done {
				if failed != nil || !*wait {
					break
				}
				over := c.progress("waiting for pod " + done[i].ID)
				p, err := c.Client.Pods.Await(ctx, done[i].ID, then)
				over()
				if failed = about(done[i].ID, err); err == nil {
					done[i] = p
				}
			}
			return listDone(c, done, failed, podColumns()...)
		}
	}
}

// quiet is how long no line comes when the past ones are over, and answerWait is how long the
// server may take to answer before that.
const (
	quiet      = time.Second
	answerWait = 10 * time.Second
)

func printLogs(f *flag.FlagSet) func(context.Context, *Call) error {
	follow := f.Bool("f", false, "follow: print new lines as they come")
	tail := f.Int("tail", 100, "how many past `lines`, at most 5000")
	source := f.String("source", "", "`source` of the lines: container or system (default: both)")
	return func(ctx context.Context, c *Call) error {
		endpoint, id, err := c.whose(ctx, c.Args[0])
		if err != nil {
			return err
		}
		reading, stop := context.WithCancel(ctx)
		defer stop()
		var silence *time.Timer
		var answered atomic.Bool
		if !*follow {
			silence = time.AfterFunc(answerWait, stop)
			defer silence.Stop()
			reading = httptrace.WithClientTrace(reading, &httptrace.ClientTrace{
				// At the begin of each try. WroteRequest would be too late: over HTTP/2 it may come
				// after the first byte of the answer.
				GetConn: func(string) {
					answered.Store(false)
					silence.Reset(answerWait)
				},
				GotFirstResponseByte: func() {
					answered.Store(true)
					silence.Reset(quiet)
				},
			})
		}
		o := &client.LogOptions{Source: *source, Tail: tail}
		lines := c.Client.Pods.Logs(reading, id, o)
		if endpoint != "" {
			lines = c.Client.Endpoints.WorkerLogs(reading, endpoint, id, o)
		}
		for l, err := range lines {
			if reading.Err() != nil && ctx.Err() == nil {
				if !answered.Load() {
					return &Error{ExitUnreachable, fmt.Errorf("the server has not answered within %v", answerWait)}
				}
				return nil // the past lines are over
			}
			if silence != nil {
				silence.Stop() // the reader of the lines may take its time
			}
			if err == nil {
				err = c.printLine(l)
			}
			if err != nil {
				return err
			}
			if silence != nil {
				silence.Reset(quiet)
			}
		}
		return nil
	}
}

func (c *Call) printLine(l client.LogLine) error {
	if c.asJSON() {
		b, err := json.Marshal(l)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(c.Stdout, "%s\n", terminal.EscapeJSON(b))
		return err
	}
	text := l.Text
	if isTerminal(c.Stdout) {
		text = clean(text)
	}
	_, err := fmt.Fprintf(c.Stdout, "%s %s: %s\n", l.Time.UTC().Format("2006-01-02T15:04:05.000Z"), l.Source, text)
	return err
}

// whose finds out what an id is of: a pod, or a worker of an endpoint.
func (c *Call) whose(ctx context.Context, name string) (endpoint, id string, err error) {
	if endpoint, id, ok := strings.Cut(name, "/"); ok {
		return endpoint, id, nil
	}
	_, err = c.Client.Pods.Get(ctx, name)
	if client.StatusOf(err) != http.StatusNotFound && client.StatusOf(err) != http.StatusForbidden {
		return "", name, err
	}
	// By its id an operator finds the endpoint of any user, which is in no list without -owner.
	workers, err := c.Client.Endpoints.Workers(ctx, name)
	if err == nil {
		id, err := newest(name, workers)
		return name, id, err
	}
	if client.StatusOf(err) != http.StatusNotFound {
		return "", "", err
	}
	for e, err := range c.Client.Endpoints.All(ctx) {
		if err != nil {
			return "", "", err
		}
		workers, err := c.Client.Endpoints.Workers(ctx, e.ID)
		if err != nil && client.StatusOf(err) == 0 {
			return "", "", err
		}
		for _, w := range workers {
			if w.ID == name {
				return e.ID, name, nil
			}
		}
	}
	return "", "", &Error{ExitNotFound, fmt.Errorf("there is no pod, no worker and no endpoint %s", name)}
}

// newest returns the worker of an endpoint that was started last.
func newest(endpoint string, workers []client.Worker) (id string, err error) {
	up := int64(-1)
	for _, w := range workers {
		if up < 0 || w.UptimeSeconds < up {
			id, up = w.ID, w.UptimeSeconds
		}
	}
	if id == "" {
		err = &Error{ExitNotFound, fmt.Errorf("%s has no worker at this moment; why %s says what became of the last one", endpoint, endpoint)}
	}
	return id, err
}
