package double

import (
	"context"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/podyard/podyard/serverless"
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
	Done      bool        `json:"done"`             // the answer is complete, or will never be
	Status    int         `json:"status,omitempty"` // 0: there was no answer
	Answered  http.Header `json:"answered,omitempty"`
	Answer    string      `json:"answer,omitempty"`
	Fault     string      `json:"fault,omitempty"` // that it was given
}

// Bounds of a journal.
const (
	entriesKept = 10_000
	bodyKept    = 256 << 10 // bytes of each body; the rest is left out
)

// A journal keeps entries in the order in which requests came.
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

// An exchange is a request on its way through the double.
type exchange struct {
	r        *http.Request
	op       *Operation // nil: none
	endpoint string
	job      string
	pod      string
	worker   serverless.WorkerID
	key      string
	entry    *Entry

	// Of faults; written before the handler is called.
	storeDown   bool
	full        []string // data centers without capacity; "" is all
	losesAnswer bool

	// Guarded by the activity's mutex.
	ref     serverless.Ref // the job it is held for
	held    bool           // it waits for the job, or is about to
	until   time.Time      // the end of the hold by the clock; zero: none
	waiting bool           // by a fault
	resting bool           // given up on, or waiting
	cancel  context.CancelFunc
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

// newExchange reads what the request line says.
func newExchange(r *http.Request, now time.Time) *exchange {
	op, names := operationOf(r.Method, r.URL.Path)
	x := &exchange{r: r, op: op, endpoint: names["endpoint"], job: names["job"], key: keyOf(r)}
	switch {
	case op == nil:
	case op.Area == "workers":
		x.worker = serverless.WorkerID(names["worker"])
	case op.Area == "endpoints":
		x.endpoint = names["id"]
	case op.Area == "pods":
		x.pod = names["id"] + names["podId"]
	}
	switch x.name() {
	case "runSync":
		x.until = now.Add(waitOf(r, serverless.DefaultWait))
	case "statusSync":
		x.until = now.Add(waitOf(r, serverless.DefaultWait))
	case "stream":
		x.until = now.Add(waitOf(r, serverless.DefaultStreamWait))
	}
	if x.name() == "statusSync" || x.name() == "stream" {
		x.ref = serverless.Ref{Endpoint: x.endpoint, ID: serverless.JobID(x.job)}
	}
	x.entry = &Entry{
		At: now, Operation: x.name(), Method: r.Method, Path: r.URL.Path, Query: r.URL.RawQuery,
		Endpoint: x.endpoint, Job: x.job, Pod: x.pod, Header: redactHeader(r.Header),
	}
	return x
}

// waitOf is how long the handler will hold the request. What it refuses it does not hold.
func waitOf(r *http.Request, def time.Duration) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("wait") + "ms")
	if err != nil {
		return def
	}
	return d
}

// keyOf is the key that the request carries, in whatever form.
func keyOf(r *http.Request) string {
	h := strings.TrimSpace(r.Header.Get("Authorization"))
	if scheme, rest, ok := strings.Cut(h, " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(rest)
	}
	return h
}
