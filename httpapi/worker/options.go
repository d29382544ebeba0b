package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Options say which jobs to run. URL and Endpoint, or what FromEnv finds, are required.
type Options struct {
	// URL is the base of the jobs API, with its /v2.
	URL      string
	Endpoint string
	// Key is sent as it is: the worker's own, or a user's that may change endpoints.
	Key string
	// ID names the worker, as long as it runs. Default: a random one.
	ID string
	// Concurrency is how many jobs run at once. Default 1.
	Concurrency int
	// Ping is how often the service is told which jobs are under way. It takes them away
	// after three times 10 s of silence. Default 3 s, so that a cancelled job that goes on
	// is noticed soon.
	Ping time.Duration
	// Drain is how long running jobs may go on when ctx has ended. Default 10 s.
	Drain time.Duration
	// Client makes the requests. It must not have a Timeout below 90 s, because requests
	// are held. Default: one with a transport of its own.
	Client *http.Client
	// Logger hears of a service that cannot be reached. Default: nothing is logged.
	Logger *slog.Logger

	// URL templates, when a fleet has given them.
	takeURL, doneURL, streamURL, pingURL string
}

// FromEnv reads what a fleet puts into a worker's environment: RUNPOD_WEBHOOK_GET_JOB,
// RUNPOD_WEBHOOK_POST_OUTPUT, RUNPOD_WEBHOOK_POST_STREAM, RUNPOD_WEBHOOK_PING,
// RUNPOD_POD_ID, RUNPOD_AI_API_KEY and RUNPOD_PING_INTERVAL (milliseconds).
func FromEnv(env func(string) string) (*Options, error) {
	o := &Options{
		ID: env("RUNPOD_POD_ID"), Key: env("RUNPOD_AI_API_KEY"), Endpoint: env("RUNPOD_ENDPOINT_ID"),
		takeURL: env("RUNPOD_WEBHOOK_GET_JOB"), doneURL: env("RUNPOD_WEBHOOK_POST_OUTPUT"),
		streamURL: env("RUNPOD_WEBHOOK_POST_STREAM"), pingURL: env("RUNPOD_WEBHOOK_PING"),
	}
	for _, name := range [...]string{"RUNPOD_WEBHOOK_GET_JOB", "RUNPOD_WEBHOOK_POST_OUTPUT", "RUNPOD_WEBHOOK_POST_STREAM", "RUNPOD_WEBHOOK_PING", "RUNPOD_POD_ID"} {
		if env(name) == "" {
			return nil, fmt.Errorf("worker: %s is not set: this program was not started as a worker", name)
		}
	}
	if !strings.Contains(o.takeURL, "/job-take/") {
		return nil, errors.New("worker: RUNPOD_WEBHOOK_GET_JOB has no /job-take/ in it")
	}
	if ms := env("RUNPOD_PING_INTERVAL"); ms != "" {
		n, err := strconv.Atoi(ms)
		if err != nil || n <= 0 {
			return nil, fmt.Errorf("worker: RUNPOD_PING_INTERVAL %q is not milliseconds", ms)
		}
		o.Ping = time.Duration(n) * time.Millisecond
	}
	return o, nil
}

// urls fills in the templates that were not given.
func (o *Options) urls() error {
	if o.takeURL != "" {
		return nil
	}
	u, err := url.Parse(o.URL)
	if err != nil || u.Scheme == "" || u.Host == "" {
		return fmt.Errorf("worker: URL %q is not absolute", o.URL)
	}
	if o.Endpoint == "" {
		return errors.New("worker: Endpoint is missing")
	}
	base := strings.TrimSuffix(o.URL, "/") + "/" + url.PathEscape(o.Endpoint)
	o.takeURL = base + "/job-take/$ID?gpu=none"
	o.doneURL = base + "/job-done/$RUNPOD_POD_ID/$ID?gpu=none"
	o.streamURL = base + "/job-stream/$RUNPOD_POD_ID/$ID?gpu=none"
	o.pingURL = base + "/ping/$RUNPOD_POD_ID?gpu=none"
	return nil
}

// fillURL fills a template for a worker, and for a job unless that is empty. In the URL of
// take, $ID is the worker.
func fillURL(template, worker, job string) string {
	if job == "" {
		job = worker
	}
	return strings.NewReplacer("$RUNPOD_POD_ID", url.PathEscape(worker), "$ID", url.PathEscape(job)).Replace(template)
}
