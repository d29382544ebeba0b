package worker

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Options say which jobs to run. URL and Endpoint are required, or the variables that
// FromEnv reads.
type Options struct {
	// URL is the base of the jobs API, including /v2.
	URL      string
	Endpoint string
	// Key is sent unchanged. It is the worker's own key, or the key of a user who may
	// change endpoints.
	Key string
	// ID identifies the worker while it runs. Default: a random one.
	ID string
	// Concurrency is how many jobs run at once. Default 1.
	Concurrency int
	// Ping is how often the worker reports its jobs to the service. After three times 10 s
	// without a report, the service takes the jobs away. Default 3 s, so that a worker soon
	// learns of cancelled jobs.
	Ping time.Duration
	// Drain is how long jobs may run after ctx has ended. Default 10 s.
	Drain time.Duration
	// Client makes the requests. Its Timeout must be zero or at least 90 s, because the
	// service holds requests open. Default: a client with its own transport.
	Client *http.Client
	// Lines gets the lines of Task.Log, as the SDK prints them: the server that started the worker reads
	// them from its output. FromEnv sets standard output. Default: nobody gets them.
	Lines io.Writer
	// Logger gets a message if the service cannot be reached. Default: nothing is logged.
	Logger *slog.Logger

	// URL templates from a fleet.
	takeURL, doneURL, streamURL, pingURL string
}

// FromEnv reads the variables that a fleet sets for a worker: RUNPOD_WEBHOOK_GET_JOB,
// RUNPOD_WEBHOOK_POST_OUTPUT, RUNPOD_WEBHOOK_POST_STREAM, RUNPOD_WEBHOOK_PING,
// RUNPOD_POD_ID, RUNPOD_AI_API_KEY, RUNPOD_ENDPOINT_ID and RUNPOD_PING_INTERVAL
// (milliseconds).
func FromEnv(env func(string) string) (*Options, error) {
	o := &Options{
		Lines: os.Stdout,
		ID:    env("RUNPOD_POD_ID"), Key: env("RUNPOD_AI_API_KEY"), Endpoint: env("RUNPOD_ENDPOINT_ID"),
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

// urls sets the URL templates from URL and Endpoint, unless a fleet has set them.
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

// fillURL fills a template with the worker, and with the job unless it is empty. In
// takeURL, $ID is the worker.
func fillURL(template, worker, job string) string {
	if job == "" {
		job = worker
	}
	return strings.NewReplacer("$RUNPOD_POD_ID", url.PathEscape(worker), "$ID", url.PathEscape(job)).Replace(template)
}
