package serverless

import (
	"bytes"
	"encoding/json"
	"net/url"
	"time"

	"github.com/podyard/podyard/problem"
)

// Bounds and defaults of section 8.
const (
	DefaultExecTimeout = 600_000 * time.Millisecond
	MinExecTimeout     = 5 * time.Second
	MaxExecTimeout     = 7 * 24 * time.Hour

	DefaultTTL = 24 * time.Hour
	MinTTL     = 10 * time.Second
	MaxTTL     = 7 * 24 * time.Hour
	// MinStatusTTL is the smallest ttl that a status request can set.
	MinStatusTTL = time.Second

	DefaultWait = 90 * time.Second
	MinWait     = time.Second
	MaxWait     = 300 * time.Second

	// Results of run are kept for RunRetention, those of runsync for the larger of
	// MinSyncRetention and the wait that was asked for, MaxSyncRetention at most.
	RunRetention     = 30 * time.Minute
	MinSyncRetention = time.Minute
	MaxSyncRetention = 5 * time.Minute
)

// A Request asks for a job (section 2.8).
type Request struct {
	Input   []byte // one JSON object; the queue's from Submit on
	Webhook string // absolute http or https URL, or empty
	Policy  Policy
	Extra   []byte // a JSON object with members that only the worker sees (s3Config), or nil

	// Sync makes it a runsync job, whose result is kept for as long as Wait, within the
	// bounds.
	Sync bool
	Wait time.Duration

	// Checked says that Input and Extra are known to be JSON objects.
	Checked bool
	// Faults are what a decoder found wrong; Submit reports them with its own findings.
	Faults problem.Violations
}

// A Policy is a request's own limits (section 8.1). Nil means the default.
type Policy struct {
	ExecutionTimeout *time.Duration
	TTL              *time.Duration
	LowPriority      bool
}

// requestFields is the documented order of a request's fields.
var requestFields = []string{"input", "webhook", "policy", "policy/executionTimeout", "policy/lowPriority", "policy/ttl", "s3Config"}

// check applies the rules of section 2.8 and 8.1 and reports everything that is wrong.
func (r *Request) check() error {
	v := &r.Faults
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

// CheckWait is nil for a wait within the bounds of section 8.2.
func CheckWait(d time.Duration) error {
	return checkQuery("wait", d, MinWait, MaxWait)
}

// CheckTTL is nil for a ttl that a status request may set.
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

// job settles the limits of r into a State (so that nothing later depends on settings).
func (r *Request) job(ep *Endpoint, owner string, id JobID, now Instant) Job {
	j := Job{
		Ref: Ref{Endpoint: ep.ID, ID: id}, Owner: owner,
		Input: r.Input, Webhook: r.Webhook, Extra: r.Extra,
		State: State{Submitted: now, Queued: now},
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
		j.Flags |= Sync
	}
	if r.Policy.LowPriority {
		j.Flags |= LowPriority
	}
	if r.Webhook != "" {
		j.Flags |= HasWebhook
	}
	j.Expires, j.ExecTimeout, j.Retain = now.Add(ttl), exec.Milliseconds(), keep.Milliseconds()
	return j
}
