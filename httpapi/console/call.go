package console

import (
	"bytes"
	"cmp"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
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

// toAPI makes the request to the API that acts with the key of a session. An answer that lasts ends with
// the session, as it does with the key.
func (c *Console) toAPI(r *http.Request, s *session, method, target string, body io.Reader) (*http.Request, error) {
	ctx := httpapi.While(r.Context(), func() bool { return c.goesOn(s) })
	inner, err := http.NewRequestWithContext(ctx, method, target, body) //nolint:gosec // it goes to a handler of this process
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
	inner, err := c.toAPI(r, s, r.Method, target, r.Body)
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
	if op.Name == terminalOperation {
		passUpgrade(inner, r)
	}
	if c.HidePayloads && hasPayloads[op.Name] {
		c.answered(inTurn(func(w *httpapi.Answer, r *http.Request, _ *session) { c.forwardHidden(w, r, inner) }))(w, r)
		return
	}
	c.api.ServeHTTP(&answerWriter{ResponseWriter: w}, inner)
}

// permit returns why the console does not call an operation, or nil.
func (c *Console) permit(op *httpapi.Operation, r *http.Request) error {
	switch {
	case op != nil && op.Name == terminalOperation:
		return c.permitTerminal(r)
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

// maxPart is how many bytes an answer of the API may have that becomes a part of one of the console. A
// page of a list has 1 MB and one record, and a record up to 6 MB: an environment of 1 MB, escaped.
const maxPart = 8 << 20

// maxHidden is maxPart for answers with payloads, from which the console takes them.
const maxHidden = 32 << 20

var errLarge = problem.New(problem.TooLarge, "The console does not show an answer of this size. Ask the API.")

// A recorded is an answer of the API in memory, where it counts for the answer that it becomes a part of.
type recorded struct {
	header http.Header
	status int
	body   bytes.Buffer

	whole   *httpapi.Answer
	r       *http.Request // that whole answers
	most    int           // bytes
	counted int           // bytes
	alone   bool          // whole held nothing else when it began
	err     error         // it is too large, or there is no room for it
}

func (a *recorded) Header() http.Header { return a.header }

func (a *recorded) WriteHeader(status int) {
	if a.status == 0 {
		a.status = status
	}
}

func (a *recorded) Write(b []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	if a.err == nil {
		a.err = a.fit(a.body.Len() + len(b))
	}
	if a.err != nil {
		return 0, a.err
	}
	return a.body.Write(b)
}

// maxFree is how many bytes of an answer of the API need no room.
const maxFree = 64 << 10

// fit makes room for n bytes in all, and for as many as the buffer then has.
func (a *recorded) fit(n int) error {
	if n > a.most {
		return errLarge
	}
	if n <= max(a.counted, maxFree) {
		return nil
	}
	n = min(max(n, 2*max(a.counted, maxFree)), a.most)
	err := a.whole.Room(a.r.Context(), int64(n-a.counted))
	a.counted = n
	return err
}

func (a *recorded) ok() bool { return a.status == http.StatusOK }

// json returns the answer as a part of another document: null for a refusal.
func (a *recorded) json() json.RawMessage {
	if !a.ok() || !json.Valid(a.body.Bytes()) {
		return json.RawMessage("null")
	}
	return a.body.Bytes()
}

// record asks the API and keeps its answer, which becomes a part of w. An answer that there is no room
// for is a refusal.
func (c *Console) record(w *httpapi.Answer, r, inner *http.Request, most int) *recorded {
	a := &recorded{header: http.Header{}, whole: w, r: r, most: most, alone: w.Held() == 0}
	c.api.ServeHTTP(a, inner)
	if a.err != nil {
		refusal := &recorded{header: http.Header{}, whole: w, r: r, most: most}
		refuse(refusal, a.err)
		return refusal
	}
	return a
}

// read asks the API with GET and returns its whole answer, as a part of w.
func (c *Console) read(w *httpapi.Answer, r *http.Request, s *session, target string) *recorded {
	return c.ask(w, r, s, http.MethodGet, target)
}

func (c *Console) ask(w *httpapi.Answer, r *http.Request, s *session, method, target string) *recorded {
	inner, err := c.toAPI(r, s, method, target, http.NoBody)
	if err != nil {
		return &recorded{header: http.Header{}, status: http.StatusNotFound}
	}
	inner.Header.Del("Last-Event-Id")
	return c.record(w, r, inner, maxPart)
}

// readInto is read for an answer that is a JSON document, of which v has what is needed. It reports
// whether there was one.
func (c *Console) readInto(w *httpapi.Answer, r *http.Request, s *session, target string, v any) bool {
	_, ok := c.readPage(w, r, s, target, v)
	return ok
}

// readPage is readInto for a page of a list. next is the target of the next one, or empty.
func (c *Console) readPage(w *httpapi.Answer, r *http.Request, s *session, target string, v any) (next string, ok bool) {
	a := c.read(w, r, s, target)
	if a.alone {
		defer w.Drop()
	}
	if !a.ok() || json.Unmarshal(a.body.Bytes(), v) != nil {
		return "", false
	}
	path, _, _ := strings.Cut(target, "?")
	if query, more := strings.CutPrefix(a.header.Get("Link"), "<"); more {
		query, _, _ = strings.Cut(query, ">")
		next = path + query
	}
	return next, true
}

// pass answers with an answer of the API.
func pass(w http.ResponseWriter, a *recorded) {
	w.Header().Set("Content-Type", a.header.Get("Content-Type"))
	if v := a.header.Get("Retry-After"); v != "" {
		w.Header().Set("Retry-After", v)
	}
	w.Header().Set("Content-Length", strconv.Itoa(a.body.Len()))
	w.WriteHeader(a.status)
	_, _ = w.Write(a.body.Bytes()) //nolint:gosec // no browser takes it for a page: see setHeaders. The client may be gone
}

// answer answers with a document, unless there was no room for a part of it.
func answer(w *httpapi.Answer, v any) {
	b, err := json.Marshal(v)
	if err := cmp.Or(w.Err(), err); err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
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
	nobodys := httpapi.NewAnswer(nil, nil, httpapi.Identity{}) // it is read once
	if !c.readInto(nobodys, r, &session{}, "/v2/openapi.json", &doc) {
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
func (c *Console) forwardHidden(w *httpapi.Answer, r, inner *http.Request) {
	a := c.record(w, r, inner.WithContext(w.Within(inner.Context())), maxHidden)
	if n := a.body.Len(); n > maxFree && a.ok() {
		if err := w.Room(r.Context(), 3*int64(n)); err != nil { // of copies of it
			refuse(w, err)
			return
		}
	}
	b, err := hide(a.body.Bytes())
	if err != nil {
		refuse(w, errHidden)
		return
	}
	for _, name := range []string{"Content-Type", "Link", "Podyard-Owner", "Retry-After"} {
		if h := a.header.Get(name); h != "" {
			w.Header().Set(name, h)
		}
	}
	w.WriteHeader(a.status)
	_, _ = w.Write(b) // the client may be gone
}

// hide returns a document without the payloads in it.
func hide(doc json.RawMessage) (json.RawMessage, error) {
	var err error
	switch {
	case bytes.HasPrefix(doc, []byte("{")):
		var m map[string]json.RawMessage
		err = json.Unmarshal(doc, &m)
		for _, name := range [...]string{"input", "output", "run"} {
			delete(m, name)
		}
		for name, v := range m {
			if err == nil {
				m[name], err = hide(v)
			}
		}
		if err == nil {
			return json.Marshal(m)
		}
	case bytes.HasPrefix(doc, []byte("[")):
		var list []json.RawMessage
		err = json.Unmarshal(doc, &list)
		for i, v := range list {
			if err == nil {
				list[i], err = hide(v)
			}
		}
		if err == nil {
			return json.Marshal(list)
		}
	}
	return doc, err
}
