package double

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/podyard/podyard/httpapi"

	"github.com/podyard/podyard/internal/faultplan"
)

// A RequestMatch selects requests. Empty fields match everything.
type RequestMatch struct {
	Operation string `json:"operation,omitempty"`
	Method    string `json:"method,omitempty"`
	Path      string `json:"path,omitempty"` // '*' matches any characters
	Endpoint  string `json:"endpoint,omitempty"`
	Job       string `json:"job,omitempty"`
	Pod       string `json:"pod,omitempty"`
	Status    int    `json:"status,omitempty"` // of the answer
	Fault     string `json:"fault,omitempty"`  // that applied to it
	// Header has values that the request must have. Body and Answer are patterns: an object
	// matches every object that has at least its members.
	Header map[string]string `json:"header,omitempty"`
	Body   any               `json:"body,omitempty"`
	Answer any               `json:"answer,omitempty"`
	// Times is how many matches there must be. 0: at least one. -1: none.
	Times int `json:"times,omitempty"`
}

// A JobMatch selects jobs. Empty fields match everything; Input and Output are patterns.
type JobMatch struct {
	Endpoint string `json:"endpoint,omitempty"`
	ID       string `json:"id,omitempty"`
	User     string `json:"user,omitempty"`
	Status   string `json:"status,omitempty"`
	Worker   string `json:"worker,omitempty"`
	Error    string `json:"error,omitempty"` // '*' stands for any characters
	Input    any    `json:"input,omitempty"`
	Output   any    `json:"output,omitempty"`
	Times    int    `json:"times,omitempty"`
}

// A WebhookMatch selects attempts to deliver a webhook, only those with a valid signature
// unless Unsigned is set. Empty fields match everything; Body is a pattern.
type WebhookMatch struct {
	URL      string `json:"url,omitempty"` // '*' stands for any characters
	Endpoint string `json:"endpoint,omitempty"`
	Job      string `json:"job,omitempty"`
	Status   int    `json:"status,omitempty"` // of the receiver's answer
	Fault    string `json:"fault,omitempty"`
	Body     any    `json:"body,omitempty"`
	Unsigned bool   `json:"unsigned,omitempty"`
	Times    int    `json:"times,omitempty"`
}

// A NearMiss is something that was not selected, and why.
type NearMiss struct {
	What        string   `json:"what"`
	Differences []string `json:"differences"`
}

// A Found is the result of a match.
type Found[T any] struct {
	Matches []T        `json:"matches"`
	Near    []NearMiss `json:"near,omitempty"` // the nearest ones that do not match, nearest first
	Total   int        `json:"total"`          // number of those that were compared
	wanted  string
	times   int
}

// Err returns nil if the number of matches is as wanted; otherwise an error with the match and
// the near misses.
func (f *Found[T]) Err() error {
	n := len(f.Matches)
	switch {
	case f.times == 0 && n > 0, f.times == n && n > 0, f.times < 0 && n == 0:
		return nil
	}
	var b strings.Builder
	want := "at least one"
	if f.times > 0 {
		want = fmt.Sprint(f.times)
	} else if f.times < 0 {
		want = "none"
	}
	fmt.Fprintf(&b, "want %s %s, found %d among %d", want, f.wanted, n, f.Total)
	if f.times >= 0 {
		for i, m := range f.Near {
			if i == 0 {
				b.WriteString("\nnearest:")
			}
			fmt.Fprintf(&b, "\n  %s", m.What)
			for _, d := range m.Differences {
				fmt.Fprintf(&b, "\n    %s", d)
			}
		}
	}
	return fmt.Errorf("%s", b.String())
}

// nearest is the most near misses that are explained.
const nearest = 3

// find compares each with what is wanted.
func find[T any](wanted string, times int, list []T, name func(*T) string, compare func(*T) []string) *Found[T] {
	f := &Found[T]{Matches: []T{}, Total: len(list), wanted: wanted, times: times}
	for i := range list {
		d := compare(&list[i])
		if len(d) == 0 {
			f.Matches = append(f.Matches, list[i])
			continue
		}
		f.Near = append(f.Near, NearMiss{name(&list[i]), d})
	}
	slices.SortStableFunc(f.Near, func(a, b NearMiss) int { return cmp.Compare(len(a.Differences), len(b.Differences)) })
	f.Near = f.Near[:min(len(f.Near), nearest)]
	return f
}

// A checklist collects differences.
type checklist []string

func (c *checklist) text(name, want, got string) {
	if want != "" && want != got {
		*c = append(*c, fmt.Sprintf("%s: want %q, got %q", name, want, got))
	}
}

func (c *checklist) like(name, want, got string) {
	if want != "" && !faultplan.Like(want, got) {
		*c = append(*c, fmt.Sprintf("%s: want %q, got %q", name, want, got))
	}
}

func (c *checklist) number(name string, want, got int) {
	if want != 0 && want != got {
		*c = append(*c, fmt.Sprintf("%s: want %d, got %d", name, want, got))
	}
}

// describe returns a match as JSON.
func describe(kind string, m any) string {
	b, err := json.Marshal(m)
	if err != nil {
		return kind
	}
	return kind + " " + string(b)
}

// FindRequests selects among Requests. An error means that m is invalid.
func (s *Server) FindRequests(m RequestMatch) (*Found[Entry], error) {
	if m.Operation != "" && httpapi.Operations().Named(m.Operation) == nil {
		return nil, fmt.Errorf("double: there is no operation %.100q", m.Operation)
	}
	body, err := patternOf(m.Body)
	if err != nil {
		return nil, err
	}
	answer, err := patternOf(m.Answer)
	if err != nil {
		return nil, err
	}
	name := func(e *Entry) string {
		return fmt.Sprintf("request %d: %s %s = %d", e.Seq, e.Method, e.Path, e.Status)
	}
	return find(describe("request", m), m.Times, s.Requests(), name, func(e *Entry) []string {
		var c checklist
		c.text("operation", m.Operation, e.Operation)
		c.text("method", strings.ToUpper(m.Method), e.Method)
		c.like("path", m.Path, e.Path)
		c.text("endpoint", m.Endpoint, e.Endpoint)
		c.text("job", m.Job, e.Job)
		c.text("pod", m.Pod, e.Pod)
		c.text("fault", m.Fault, e.Fault)
		c.number("status", m.Status, e.Status)
		for _, k := range sortedKeys(m.Header) {
			c.text("header "+http.CanonicalHeaderKey(k), m.Header[k], e.Header.Get(k))
		}
		c = append(c, body.compare("body", []byte(e.Body))...)
		return append(c, answer.compare("answer", []byte(e.Answer))...)
	}), nil
}

func sortedKeys(m map[string]string) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// FindJobs selects among Jobs.
func (s *Server) FindJobs(m JobMatch) (*Found[JobRecord], error) {
	input, err := patternOf(m.Input)
	if err != nil {
		return nil, err
	}
	output, err := patternOf(m.Output)
	if err != nil {
		return nil, err
	}
	name := func(r *JobRecord) string {
		return fmt.Sprintf("job %s of %s (%s): %s", r.ID, r.Endpoint, r.Status, shorten(string(r.Input)))
	}
	return find(describe("job", m), m.Times, s.Jobs(), name, func(r *JobRecord) []string {
		var c checklist
		c.text("endpoint", m.Endpoint, r.Endpoint)
		c.text("id", m.ID, r.ID)
		c.text("user", m.User, r.User)
		c.text("status", m.Status, r.Status)
		c.text("worker", m.Worker, r.Worker)
		c.like("error", m.Error, r.Error)
		c = append(c, input.compare("input", r.Input)...)
		return append(c, output.compare("output", r.Output)...)
	}), nil
}

// FindWebhooks selects among Webhooks.
func (s *Server) FindWebhooks(m WebhookMatch) (*Found[Delivered], error) {
	body, err := patternOf(m.Body)
	if err != nil {
		return nil, err
	}
	name := func(d *Delivered) string {
		return fmt.Sprintf("webhook %d of job %s to %s = %d %s", d.Seq, d.Job, d.URL, d.Status, d.Error)
	}
	return find(describe("webhook", m), m.Times, s.Webhooks(), name, func(d *Delivered) []string {
		var c checklist
		if !faultplan.Like(m.URL, d.target) { // m.URL may be the real URL or the redacted one
			c.like("url", m.URL, d.URL)
		}
		c.text("endpoint", m.Endpoint, d.Endpoint)
		c.text("job", m.Job, d.Job)
		c.text("fault", m.Fault, d.Fault)
		c.number("status", m.Status, d.Status)
		if !m.Unsigned && d.Signature != "" {
			c = append(c, "signature: "+d.Signature)
		}
		return append(c, body.compare("body", d.Body)...)
	}), nil
}
