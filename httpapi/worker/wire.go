package worker

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// errKey means that the service refuses the key. A retry would not help.
var errKey = errors.New("worker: the service refuses the key")

// pollTimeout is longer than the service holds any request open.
const pollTimeout = 90 * time.Second

// maxAnswer limits the size of an answer, which may be a batch of jobs with large inputs.
const maxAnswer = 1 << 30

// A job is a job as a worker gets it: id, input, and members that only workers see.
type job struct {
	ID      string          `json:"id"`
	Input   json.RawMessage `json:"input"`
	attempt int             // from 1
	trace   serverless.Trace
	rest    map[string]json.RawMessage
}

func (j *job) UnmarshalJSON(b []byte) error {
	if err := json.Unmarshal(b, &j.rest); err != nil {
		return err
	}
	if err := json.Unmarshal(j.rest["id"], &j.ID); err != nil || j.ID == "" {
		return errors.New("worker: a job without an id")
	}
	j.Input = j.rest["input"]
	// A trace context of another form is none.
	_ = json.Unmarshal(j.rest["traceparent"], &j.trace.Parent)
	_ = json.Unmarshal(j.rest["tracestate"], &j.trace.State)
	j.trace = j.trace.Valid()
	j.attempt = 1
	if n := 0; json.Unmarshal(j.rest["attempt"], &n) == nil && n > 1 {
		j.attempt = n
	}
	for _, name := range [...]string{"id", "input", "attempt", "traceparent", "tracestate"} {
		delete(j.rest, name)
	}
	return nil
}

// extra returns the other members as an object, or nil if there are none.
func (j *job) extra() []byte {
	if len(j.rest) == 0 {
		return nil
	}
	b, err := json.Marshal(j.rest)
	if err != nil {
		return nil // cannot happen: they were JSON
	}
	return b
}

// do makes a request and returns the answer. A nil body means GET.
func (r *runner) do(ctx context.Context, target string, body []byte) (status int, answer []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, pollTimeout)
	defer cancel()
	method, content := http.MethodGet, io.Reader(http.NoBody)
	if body != nil {
		method, content = http.MethodPost, bytes.NewReader(body)
	}
	req, err := http.NewRequestWithContext(ctx, method, target, content)
	if err != nil {
		return 0, nil, fmt.Errorf("worker: %w", err)
	}
	req.Header.Set("Authorization", r.Key)
	req.Header.Set("Content-Type", "application/json")
	res, err := r.Client.Do(req)
	if err != nil {
		return 0, nil, fmt.Errorf("worker: %w", err)
	}
	defer res.Body.Close() //nolint:errcheck // it was only read
	answer, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return 0, nil, fmt.Errorf("worker: %w", err)
	case res.StatusCode == http.StatusUnauthorized || res.StatusCode == http.StatusForbidden:
		return res.StatusCode, nil, errKey
	case res.StatusCode >= http.StatusBadRequest:
		return res.StatusCode, nil, fmt.Errorf("worker: the service answers %s", res.Status)
	}
	return res.StatusCode, answer, nil
}

// maxBatch is how many jobs the service gives in one answer. maxChunk is the largest chunk
// or progress value in bytes: the limit of a report, less the text around the value.
const (
	maxBatch = 1000
	maxChunk = 20<<20 - 256
)

func (r *runner) takeJobs(ctx context.Context, n int) ([]job, error) {
	n = min(n, maxBatch)
	target := fillURL(r.takeURL, r.ID, "") + "&job_in_progress=" + strconv.Itoa(min(r.Concurrency-n, 1))
	if n > 1 {
		target = strings.Replace(target, "/job-take/", "/job-take-batch/", 1) + "&batch_size=" + strconv.Itoa(n)
	}
	status, body, err := r.do(ctx, target, nil)
	if err != nil || status == http.StatusNoContent {
		return nil, err
	}
	var jobs []job
	if n == 1 {
		jobs = make([]job, 1)
		err = json.Unmarshal(body, &jobs[0])
	} else {
		err = json.Unmarshal(body, &jobs)
	}
	if err != nil {
		return nil, fmt.Errorf("worker: jobs: %w", err)
	}
	return jobs, nil
}

// stopLoop waits for notices to stop jobs, until ctx ends.
func (r *runner) stopLoop(ctx context.Context) {
	target := strings.Replace(fillURL(r.takeURL, r.ID, ""), "/job-take/", "/job-stop/", 1)
	for wait := (backoff{}); ctx.Err() == nil; {
		status, body, err := r.do(ctx, target, nil)
		if err != nil {
			wait.sleep(ctx)
			continue
		}
		wait = backoff{}
		var stop struct {
			IDs []string `json:"jobsToStop"`
		}
		if status == http.StatusOK && json.Unmarshal(body, &stop) == nil {
			for _, id := range stop.IDs {
				r.stopJob(id)
			}
		}
	}
}

// pingLoop reports the jobs in progress, until ctx ends.
func (r *runner) pingLoop(ctx context.Context) {
	every := time.NewTicker(r.Ping)
	defer every.Stop()
	for {
		target := fillURL(r.pingURL, r.ID, "")
		if ids := r.ids(); len(ids) > 0 {
			target += "&job_id=" + url.QueryEscape(strings.Join(ids, ","))
		}
		if _, _, err := r.do(ctx, target, nil); err != nil && ctx.Err() == nil {
			r.Logger.Warn("ping failed", "endpoint", r.Endpoint, "err", err)
		}
		select {
		case <-every.C:
		case <-ctx.Done():
			return
		}
	}
}

// report posts a result. It repeats the request until the service answers, because a result
// must not be lost and a second one does no harm.
func (r *runner) report(ctx context.Context, id string, out []byte, err error) {
	body := struct {
		Output json.RawMessage `json:"output,omitempty"`
		Error  string          `json:"error,omitempty"`
		Retry  *bool           `json:"retry,omitempty"`
		Said   *verdict        `json:"podyard,omitempty"`
	}{Output: out}
	if v := (*serverless.Verdict)(nil); errors.As(err, &v) {
		body.Said, err = verdictOf(v), nil
		if body.Said.HoldKey == nil || body.Said.Snooze != nil || v.Cancel {
			body.Output = nil
		}
	}
	if err != nil {
		body.Output, body.Error = nil, err.Error()
		if f := (*serverless.Failure)(nil); errors.As(err, &f) {
			if body.Output = f.Output; f.NoRetry {
				body.Retry = new(bool)
			}
		}
		if body.Error == "" {
			body.Error = "the worker failed without a reason"
		}
	}
	b, merr := json.Marshal(body)
	if merr != nil {
		b = []byte(`{"error":"the worker's output is not JSON"}`)
	}
	target := fillURL(r.doneURL, r.ID, id) + "&isStream=false"
	for wait := (backoff{}); ctx.Err() == nil; {
		status, _, err := r.do(ctx, target, b)
		if err == nil || errors.Is(err, errKey) || final(status) {
			if err != nil {
				r.Logger.Error("the service refuses a result", "job", id, "err", err)
			}
			return
		}
		r.Logger.Warn("posting a result failed", "job", id, "err", err)
		wait.sleep(ctx)
	}
}

// final reports whether a repeated request would get this status again.
func final(status int) bool {
	return status >= 400 && status < 500 && status != http.StatusRequestTimeout && status != http.StatusTooManyRequests
}

// errChunk means that a chunk cannot be sent. Its job fails, as it does when the service refuses it.
var errChunk = errors.New("a chunk or progress value was not taken")

// emit posts a chunk or progress.
func (r *runner) emit(ctx context.Context, id string, k queue.OpKind, b []byte) error {
	if len(b) > maxChunk {
		return fmt.Errorf("%w: it has more than %d bytes", errChunk, maxChunk)
	}
	if !json.Valid(b) {
		return fmt.Errorf("%w: it is not JSON", errChunk)
	}
	target, head := fillURL(r.streamURL, r.ID, id)+"&isStream=false", `{"output":`
	if k == queue.OpProgress {
		target, head = fillURL(r.doneURL, r.ID, id)+"&isStream=false", `{"status":"IN_PROGRESS","output":`
	}
	_, answer, err := r.do(ctx, target, append(append([]byte(head), b...), '}'))
	if err != nil {
		return err
	}
	var a struct {
		Accepted bool   `json:"accepted"`
		Reason   string `json:"reason"`
	}
	refused := json.Unmarshal(answer, &a) == nil && !a.Accepted
	switch {
	case refused && a.Reason == serverless.ErrStreamFull.Detail:
		return serverless.ErrStreamFull
	case refused:
		return serverless.ErrLeaseLost
	}
	return nil
}

// A verdict is what a worker says of its job instead of a result.
type verdict struct {
	Snooze  *int64 `json:"snooze,omitempty"`
	Cancel  bool   `json:"cancel,omitempty"`
	HoldKey *int64 `json:"holdKey,omitempty"`
}

func verdictOf(v *serverless.Verdict) *verdict {
	said := &verdict{Cancel: v.Cancel}
	if v.HoldKey != 0 {
		said.HoldKey = new(v.HoldKey.Milliseconds())
	}
	if !v.Cancel && v.HoldKey == 0 || v.Snooze != 0 {
		said.Snooze = new(v.Snooze.Milliseconds())
	}
	return said
}
