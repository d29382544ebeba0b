package console

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/podyard/podyard/httpapi"
)

// cutTo returns a request for another escaped path.
func cutTo(r *http.Request, escaped string) (*http.Request, error) {
	path, err := url.PathUnescape(escaped)
	if err != nil {
		return nil, err
	}
	inner := new(http.Request)
	*inner = *r
	u := *r.URL
	u.Path, u.RawPath = path, escaped
	inner.URL = &u
	return inner, nil
}

// passed are the headers of a page's request that the API gets.
var passed = []string{"Accept", "Content-Type", "Idempotency-Key", "Last-Event-Id", "User-Agent", "X-Forwarded-For"}

// toAPI makes the request to the API that acts with the key of a session.
func toAPI(r *http.Request, s *session, method, target string, body io.Reader) (*http.Request, error) {
	inner, err := http.NewRequestWithContext(r.Context(), method, target, body) //nolint:gosec // it goes to a handler of this process
	if err != nil {
		return nil, err
	}
	for _, name := range passed {
		if v := r.Header.Values(name); len(v) > 0 {
			inner.Header[name] = v
		}
	}
	inner.Header.Set("Authorization", "Bearer "+s.Key)
	inner.Host, inner.RemoteAddr, inner.TLS, inner.RequestURI = r.Host, r.RemoteAddr, r.TLS, target
	return inner, nil
}

// forward serves /api/...: the operation of the API with that path, as the user of the
// session. Of the API it has the control API, and of jobs what does not read a stream. Workers
// and load-balancing endpoints are not there, because their answers come from strangers.
func (c *Console) forward(w http.ResponseWriter, r *http.Request, s *session) {
	target := r.URL.EscapedPath()[len("/api"):]
	if r.URL.RawQuery != "" {
		target += "?" + r.URL.RawQuery
	}
	inner, err := toAPI(r, s, r.Method, target, r.Body)
	if err != nil {
		refuse(w, errNotHere)
		return
	}
	inner.ContentLength = r.ContentLength
	op, _ := c.table.Find(r.Method, inner.URL)
	if err := c.permit(op, r); err != nil {
		refuse(w, err)
		return
	}
	if c.HidePayloads && hasPayloads[op.Name] {
		c.forwardHidden(w, inner)
		return
	}
	c.api.ServeHTTP(&answerWriter{ResponseWriter: w}, inner)
}

// permit returns why the console does not call an operation, or nil.
func (c *Console) permit(op *httpapi.Operation, r *http.Request) error {
	switch {
	case op == nil, op.API != httpapi.APIControl && op.API != httpapi.APIJobs && op.API != httpapi.APILegacy, op.SideEffects:
		return errNotHere
	case c.ReadOnly && r.Method != http.MethodGet && r.Method != http.MethodHead:
		return errReadOnly
	}
	return nil
}

// An answerWriter keeps the console's headers where the API sets its own.
type answerWriter struct {
	http.ResponseWriter

	begun bool
}

func (w *answerWriter) WriteHeader(status int) {
	if !w.begun {
		w.begun = true
		w.Header().Del("Www-Authenticate") // a browser would ask for a password
		setHeaders(w.Header())
	}
	w.ResponseWriter.WriteHeader(status)
}

func (w *answerWriter) Write(b []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	return w.ResponseWriter.Write(b)
}

// Unwrap is for http.ResponseController: logs are flushed line by line.
func (w *answerWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Flush is for handlers that look for an http.Flusher.
func (w *answerWriter) Flush() { _ = http.NewResponseController(w.ResponseWriter).Flush() }

// A recorded is an answer of the API in memory.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *recorded) Header() http.Header { return a.header }

func (a *recorded) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recorded) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(b)
}

func (a *recorded) ok() bool { return a.status == http.StatusOK }

// json returns the answer as a part of another document: null for a refusal.
func (a *recorded) json() json.RawMessage {
	if !a.ok() || !json.Valid(a.body.Bytes()) {
		return json.RawMessage("null")
	}
	return a.body.Bytes()
}

// read asks the API with GET and returns its whole answer.
func (c *Console) read(r *http.Request, s *session, target string) *recorded {
	a := &recorded{header: http.Header{}}
	inner, err := toAPI(r, s, http.MethodGet, target, http.NoBody)
	if err != nil {
		a.status = http.StatusNotFound
		return a
	}
	inner.Header.Del("Last-Event-Id")
	c.api.ServeHTTP(a, inner)
	return a
}

// readInto is read for an answer that is a JSON document. It reports whether there was one.
func (c *Console) readInto(r *http.Request, s *session, target string, v any) bool {
	a := c.read(r, s, target)
	return a.ok() && json.Unmarshal(a.body.Bytes(), v) == nil
}

// pass answers with an answer of the API.
func pass(w http.ResponseWriter, a *recorded) {
	w.Header().Set("Content-Type", a.header.Get("Content-Type"))
	if v := a.header.Get("Retry-After"); v != "" {
		w.Header().Set("Retry-After", v)
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) // the client may be gone
}

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(b) // the client may be gone
}

func timeOf(t time.Time) *string {
	s := t.UTC().Format("2006-01-02T15:04:05.000Z")
	return &s
}

func seconds(d time.Duration) string {
	return strconv.Itoa(int((d + time.Second - 1) / time.Second))
}

// operations returns the names of the operations that the server has: those of its own
// description, which does not change.
func (c *Console) operations(r *http.Request) []string {
	if known := c.known.Load(); known != nil {
		return *known
	}
	var doc struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	names := []string{}
	if !c.readInto(r, &session{}, "/v2/openapi.json", &doc) {
		return names
	}
	for _, o := range c.table {
		if o.NotOffered == "" && doc.Paths[o.Path] != nil {
			names = append(names, o.Name)
		}
	}
	c.known.Store(&names)
	return names
}

// hasPayloads are the operations whose answers have inputs or outputs of jobs.
var hasPayloads = map[string]bool{
	"status": true, "requests": true, "listEndpointJobs": true, "getDeadLetter": true, "listDeadLetters": true,
	"listBatchRequests": true, "listSchedules": true, "getSchedule": true, "createSchedule": true, "updateSchedule": true,
}

// forwardHidden is forward without the payloads of the answer.
func (c *Console) forwardHidden(w http.ResponseWriter, inner *http.Request) {
	a := &recorded{header: http.Header{}}
	c.api.ServeHTTP(a, inner)
	d := json.NewDecoder(&a.body)
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		refuse(w, errHidden)
		return
	}
	hide(v)
	for _, name := range []string{"Content-Type", "Link", "Podyard-Owner", "Retry-After"} {
		if h := a.header.Get(name); h != "" {
			w.Header().Set(name, h)
		}
	}
	b, err := json.Marshal(v)
	if err != nil {
		refuse(w, err)
		return
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(b) // the client may be gone
}

// hide takes the payloads out of a document.
func hide(v any) {
	switch v := v.(type) {
	case map[string]any:
		for _, name := range []string{"input", "output", "run"} {
			delete(v, name)
		}
		for _, x := range v {
			hide(x)
		}
	case []any:
		for _, x := range v {
			hide(x)
		}
	}
}
