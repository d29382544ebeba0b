package double

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/balance"
)

// An Entry is one request and its answer, without secrets.
type Entry struct {
	Seq       int         `json:"seq"`
	At        time.Time   `json:"at"`
	Operation string      `json:"operation,omitempty"` // empty: the path is no operation's
	Method    string      `json:"method"`
	Path      string      `json:"path"`
	Query     string      `json:"query,omitempty"`
	Endpoint  string      `json:"endpoint,omitempty"`
	Job       string      `json:"job,omitempty"`
	Pod       string      `json:"pod,omitempty"`
	Header    http.Header `json:"header"`
	Body      string      `json:"body,omitempty"`
	Done      bool        `json:"done"`             // the answer is complete, or never will be
	Status    int         `json:"status,omitempty"` // 0: there was no answer
	Answered  http.Header `json:"answered,omitempty"`
	Answer    string      `json:"answer,omitempty"`
	Fault     string      `json:"fault,omitempty"` // that applied to it
}

// Bounds of a journal.
const (
	entriesKept = 10_000
	bodyKept    = 256 << 10 // bytes of each body that are kept
)

// A journal keeps entries in the order of requests.
type journal struct {
	mu   sync.Mutex
	seq  int
	list []*Entry
}

func (j *journal) add(e *Entry) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Seq = j.seq
	j.list = append(j.list, e)
	if n := len(j.list); n > entriesKept {
		j.list = slices.Clone(j.list[n-entriesKept:])
	}
}

func (j *journal) set(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

func (j *journal) all() []Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := make([]Entry, 0, len(j.list))
	for _, e := range j.list {
		list = append(list, *e)
	}
	return list
}

func (j *journal) clear() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.list = nil
}

// An exchange is a request that the double is serving.
type exchange struct {
	r        *http.Request
	op       *httpapi.Operation // nil: none
	endpoint string
	job      string
	pod      string
	worker   serverless.WorkerID
	key      string
	entry    *Entry

	around string // the name of the fault around the handler; written before that is called
	target target // for faults of stores and hosts

	// Guarded by the activity's mutex.
	ref         serverless.Ref // the job it is held for
	waitsForJob bool           // it waits for the job, or is about to
	until       time.Time      // end of its wait by the clock; zero: none
	waiting     bool           // a fault delays it
	resting     bool           // given up on, or waiting
	tag         string         // of a request to a worker of a load-balancing endpoint; empty: it is none
	stage       stage          // of such a request
	cancel      context.CancelFunc
}

type exchangeKey struct{}

func exchangeOf(ctx context.Context) *exchange {
	x, _ := ctx.Value(exchangeKey{}).(*exchange)
	return x
}

func (x *exchange) name() string {
	if x.op == nil {
		return ""
	}
	return x.op.Name
}

// follows reports whether the answer is a stream that goes on until its reader leaves.
func (x *exchange) follows() bool {
	return x.name() == "getPodLogs" || x.name() == "getWorkerLogs" || x.name() == "jobEvents"
}

// area is what the request is about; empty: the path belongs to no operation.
func (x *exchange) area() httpapi.Area {
	if x.op == nil {
		return ""
	}
	return x.op.Area
}

// newExchange reads the request line.
func (w *instance) newExchange(r *http.Request) *exchange {
	op, names := w.table.Find(r.Method, r.URL)
	x := &exchange{r: r, op: op, endpoint: names["endpoint"], job: names["job"], key: keyOf(r)}
	switch x.area() {
	case httpapi.AreaWorkers:
		x.worker = serverless.WorkerID(names["worker"])
	case httpapi.AreaEndpoints:
		x.endpoint = names["id"]
	case httpapi.AreaPods:
		x.pod = names["id"] + names["podId"]
	}
	x.entry = &Entry{
		Operation: x.name(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Endpoint: x.endpoint, Job: x.job, Pod: x.pod, Header: redactHeader(r.Header),
	}
	return x
}

// arrives notes when a request came, and until when it may be held.
func (x *exchange) arrives(now time.Time) {
	x.entry.At = now
	switch x.name() {
	case "runSync":
		x.until = now.Add(waitOf(x.r, serverless.DefaultWait))
	case "statusSync":
		x.until = now.Add(waitOf(x.r, serverless.DefaultWait))
	case "stream":
		x.until = now.Add(waitOf(x.r, serverless.DefaultStreamWait))
	}
	if x.isBalanced() {
		x.until = now.Add(balance.HoldTime)
	}
	if x.name() == "statusSync" || x.name() == "stream" {
		x.ref = serverless.Ref{Endpoint: x.endpoint, ID: serverless.JobID(x.job)}
	}
}

// waitOf returns how long the handler may hold the request; 0 if it refuses the request.
func waitOf(r *http.Request, def time.Duration) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("wait") + "ms")
	if err != nil {
		return def
	}
	return d
}

// keyOf returns the key of the request, in any form.
func keyOf(r *http.Request) string {
	h := strings.TrimSpace(r.Header.Get("Authorization"))
	if scheme, rest, ok := strings.Cut(h, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest)
	}
	return h
}
