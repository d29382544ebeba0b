package serverless

import (
	"bytes"
	"encoding/json"
	"net/url"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/queue"
)

// A Request describes a job to submit (docs/interface.md 2.8).
type Request struct {
	Input   []byte // one JSON object; owned by the queue after Submit
	Webhook string // absolute http or https URL, or empty
	Policy  Policy
	Extra   []byte // a JSON object with members that only the worker sees (s3Config), or nil
	Trace   Trace  // kept with the job as far as it is valid (docs/decisions.md 45)

	// Sync submits the job as runsync does: its result is kept for the duration Wait, within
	// MinSyncRetention and MaxSyncRetention.
	Sync bool
	Wait time.Duration

	// Endpoint is what CheckEndpoint has just returned for the owner and the endpoint of the
	// call, so that Submit does not read it again. Nil: Submit reads it.
	Endpoint *Endpoint

	// Checked says that the caller has checked that Input and Extra are JSON objects.
	Checked bool
	// Violations are faults that a decoder found. Submit reports them with its own.
	Violations problem.Violations
}

// A Policy holds the limits of one job (docs/interface.md 8.1). A nil
// field means the default.
type Policy struct {
	ExecutionTimeout *time.Duration // default: that of the endpoint, else DefaultExecTimeout
	TTL              *time.Duration // default DefaultTTL
	LowPriority      bool           // the scaler starts no worker for the job
}

// requestFields are the fields of a request in their documented order.
var requestFields = []string{"input", "webhook", "policy", "policy/executionTimeout", "policy/lowPriority", "policy/ttl", "s3Config"}

// check returns all faults of the request in one error.
func (r *Request) check() error {
	v := &r.Violations
	if !v.Has("/input") {
		switch {
		case len(r.Input) == 0:
			v.Add(problem.Invalid, "/input", "is required")
		case !r.Checked && !isObject(r.Input):
			v.Add(problem.Invalid, "/input", "must be a JSON object")
		}
	}
	if r.Webhook != "" && !isWebURL(r.Webhook) {
		v.Add(problem.Invalid, "/webhook", "must be an absolute http or https URL")
	}
	checkBounds(v, "/policy/executionTimeout", r.Policy.ExecutionTimeout, MinExecTimeout, MaxExecTimeout)
	checkBounds(v, "/policy/ttl", r.Policy.TTL, MinTTL, MaxTTL)
	if !r.Checked && r.Extra != nil && !isObject(r.Extra) {
		v.Add(problem.Invalid, "/s3Config", "must be a JSON object")
	}
	return v.Err(requestFields)
}

func checkBounds(v *problem.Violations, path string, d *time.Duration, lo, hi time.Duration) {
	if d != nil && (*d < lo || *d > hi) {
		v.Add(problem.Invalid, path, "must be from %d to %d milliseconds", lo.Milliseconds(), hi.Milliseconds())
	}
}

// CheckWait returns an error if d is not from MinWait to MaxWait.
func CheckWait(d time.Duration) error {
	return checkQuery("wait", d, MinWait, MaxWait)
}

// CheckTTL returns an error if d is not from MinStatusTTL to MaxTTL, the bounds of a status
// request.
func CheckTTL(d time.Duration) error {
	return checkQuery("ttl", d, MinStatusTTL, MaxTTL)
}

func checkQuery(name string, d, lo, hi time.Duration) error {
	if d < lo || d > hi {
		return problem.Newf(problem.Invalid, "%s must be from %d to %d milliseconds", name, lo.Milliseconds(), hi.Milliseconds())
	}
	return nil
}

func isObject(b []byte) bool {
	b = bytes.TrimLeft(b, " \t\r\n")
	return len(b) > 0 && b[0] == '{' && json.Valid(b)
}

func isWebURL(s string) bool {
	u, err := url.Parse(s)
	return err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != ""
}

// job returns the job of r. It writes all limits into the State, so that nothing later
// depends on the settings of the endpoint.
func (r *Request) job(ep *Endpoint, owner string, id JobID, now Instant) Job {
	j := Job{
		Ref: Ref{Endpoint: ep.ID, ID: id}, Owner: owner,
		Input: r.Input, Webhook: r.Webhook, Extra: r.Extra, Trace: r.Trace.Valid(),
		State: queue.State{Submitted: now, Queued: now},
	}
	exec, ttl := ep.ExecTimeout, DefaultTTL
	if exec == 0 {
		exec = DefaultExecTimeout
	}
	if r.Policy.ExecutionTimeout != nil {
		exec = *r.Policy.ExecutionTimeout
	}
	if r.Policy.TTL != nil {
		ttl = *r.Policy.TTL
	}
	keep := RunRetention
	if r.Sync {
		keep = min(max(r.Wait, MinSyncRetention), MaxSyncRetention)
		j.Flags |= queue.Sync
	}
	if r.Policy.LowPriority {
		j.Flags |= queue.LowPriority
	}
	if r.Webhook != "" {
		j.Flags |= queue.HasWebhook
	}
	j.Expires, j.ExecTimeout, j.Retain = now.Add(ttl), exec.Truncate(time.Millisecond), keep.Truncate(time.Millisecond)
	return j
}
