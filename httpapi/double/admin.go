package double

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
)

// Admin serves the area /_test: the methods of a Server, for tests in any language. It needs no
// key, so serve it at an address of its own on loopback. Requests from web pages are refused.
// GET /_test/openapi.json describes it.
func (s *Server) Admin() http.Handler {
	mux := http.NewServeMux()
	for _, rt := range adminRoutes() {
		mux.HandleFunc(rt.method+" "+rt.path, func(w http.ResponseWriter, r *http.Request) {
			v, err := rt.do(s, r)
			if err != nil {
				httpapi.WriteProblem(w, err)
				return
			}
			answer(w, v)
		})
	}
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) {
		httpapi.WriteProblem(w, problem.New(problem.NotFound, "The requested path was not found: see /_test/openapi.json."))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Origin") != "" {
			httpapi.WriteProblem(w, problem.New(problem.Forbidden, "web pages may not use this area"))
			return
		}
		mux.ServeHTTP(w, r)
	})
}

// An adminRoute is one request of the area. in and out are names of schemas; empty: no
// body.
type adminRoute struct {
	method, path, does string
	in, out            string
	do                 func(*Server, *http.Request) (any, error)
}

// adminRoutes returns all routes.
func adminRoutes() []adminRoute {
	return []adminRoute{
		{"GET", "/_test", "what the server is", "", "Info", (*Server).adminInfo},
		{"GET", "/_test/openapi.json", "this description", "", "", func(*Server, *http.Request) (any, error) { return describeAdmin() }},
		{"POST", "/_test/reset", "make everything as it was at the start, with a seed", "Reset", "Info", (*Server).adminReset},
		{"GET", "/_test/seed", "the seed in use", "", "Seed", func(s *Server, _ *http.Request) (any, error) { return s.seedBody(), nil }},
		{"POST", "/_test/seed", "have the ids and probabilities that follow come from another seed; everything else stays", "Seed", "Seed", (*Server).adminSeed},

		{"GET", "/_test/clock", "what the clock shows", "", "Clock", func(s *Server, _ *http.Request) (any, error) { return s.clockBody(0), nil }},
		{"POST", "/_test/clock/advance", "move the clock on; answered when all that is due has been done", "Advance", "Clock", (*Server).adminAdvance},
		{"POST", "/_test/clock/set", "move the clock on to an instant", "SetTime", "Clock", (*Server).adminSet},
		{"POST", "/_test/clock/run-until-idle", "move the clock on until nothing is under way", "", "Clock", (*Server).adminIdle},

		{"GET", "/_test/faults", "the faults that are set", "", "Faults", (*Server).adminFaults},
		{"POST", "/_test/faults", "have something go wrong", "Fault", "FaultID", (*Server).adminFault},
		{"DELETE", "/_test/faults", "end all faults", "", "OK", func(s *Server, _ *http.Request) (any, error) { s.ClearFaults(); return done, nil }},
		{"DELETE", "/_test/faults/{id}", "end one fault", "", "OK", (*Server).adminClearFault},
		{"GET", "/_test/fault-names", "the faults there are", "", "FaultNames", func(*Server, *http.Request) (any, error) {
			return map[string]any{"faults": FaultNames()}, nil
		}},

		{"POST", "/_test/endpoints/{endpoint}/script", "add outcomes to the script of an endpoint, which is made if there is none", "Script", "OK", (*Server).adminScript},
		{"DELETE", "/_test/endpoints/{endpoint}/script", "forget the outcomes of an endpoint", "", "OK", (*Server).adminClearScript},
		{"POST", "/_test/endpoints/{endpoint}/queue", "make an endpoint without a worker", "", "OK", (*Server).adminQueue},

		{"PUT", "/_test/endpoints/{endpoint}", "make an endpoint, or change it: the body is what POST /v2/serverless takes, and what is absent has its default", "Settings", "OK", (*Server).adminDeclare},
		{"POST", "/_test/images", "add outcomes to the script of an image, which is made if there is none, or say what its workers answer to requests of load-balancing endpoints: endpoints with it have workers that the scaler starts and stops", "Image", "OK", (*Server).adminImage},

		{"GET", "/_test/requests", "all requests with their answers", "", "Requests", func(s *Server, _ *http.Request) (any, error) {
			return map[string]any{"requests": s.Requests()}, nil
		}},
		{"POST", "/_test/requests/find", "select requests, and say what came near", "RequestMatch", "Found", func(s *Server, r *http.Request) (any, error) {
			return found(r, s.settled, s.FindRequests)
		}},
		{"GET", "/_test/jobs", "all jobs that were submitted", "", "Jobs", func(s *Server, _ *http.Request) (any, error) {
			return map[string]any{"jobs": s.Jobs()}, nil
		}},
		{"POST", "/_test/jobs/find", "select jobs, and say what came near", "JobMatch", "Found", func(s *Server, r *http.Request) (any, error) {
			return found(r, s.settled, s.FindJobs)
		}},
		{"GET", "/_test/webhooks", "all attempts to deliver a webhook", "", "Webhooks", func(s *Server, _ *http.Request) (any, error) {
			return map[string]any{"webhooks": s.Webhooks()}, nil
		}},
		{"POST", "/_test/webhooks/find", "select webhooks with a right signature, and say what came near", "WebhookMatch", "Found", func(s *Server, r *http.Request) (any, error) {
			return found(r, s.settled, s.FindWebhooks)
		}},
		{"DELETE", "/_test/journal", "forget requests and webhooks", "", "OK", func(s *Server, _ *http.Request) (any, error) { s.ClearJournal(); return done, nil }},
	}
}

var done = map[string]bool{"ok": true}

func answer(w http.ResponseWriter, v any) {
	b, err := json.Marshal(v)
	if err != nil {
		httpapi.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(b)))
	_, _ = w.Write(b) // the client is gone
}

// maxAdminBody is the most bytes of a body.
const maxAdminBody = 8 << 20

// read decodes a body strictly. An empty body means all defaults.
func read(r *http.Request, v any) error {
	b, err := io.ReadAll(io.LimitReader(r.Body, maxAdminBody+1))
	switch {
	case err != nil:
		return err
	case len(b) > maxAdminBody:
		return problem.New(problem.TooLarge, "the body is larger than 8 MB")
	case len(strings.TrimSpace(string(b))) == 0:
		return nil
	}
	d := json.NewDecoder(strings.NewReader(string(b)))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return misread(err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return problem.New(problem.BadRequest, "the body: there is something after the value")
	}
	return nil
}

// invalid returns a 422 with the text of err.
func invalid(err error) error {
	return problem.New(problem.Invalid, strings.TrimPrefix(err.Error(), "double: "))
}

func (s *Server) adminInfo(*http.Request) (any, error) {
	return map[string]any{
		"now": s.Now(), "seed": s.Seed(), "key": s.Key(), "webhookSecret": s.WebhookSecret(),
		"requests": len(s.Requests()), "jobs": len(s.Jobs()), "webhooks": len(s.Webhooks()), "faults": len(s.Faults()),
	}, nil
}

// misread returns the error of a body without names of Go types, which callers in other
// languages do not know.
func misread(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	if !errors.As(err, &wrong) {
		return problem.Newf(problem.BadRequest, "the body: %.500s", strings.TrimPrefix(err.Error(), "json: "))
	}
	place := "the body"
	if wrong.Field != "" {
		place = "/" + strings.ReplaceAll(wrong.Field, ".", "/")
	}
	want := map[reflect.Kind]string{
		reflect.String: "a string", reflect.Bool: "true or false", reflect.Float64: "a number",
		reflect.Int: "a whole number", reflect.Int64: "a whole number", reflect.Uint64: "a whole number, not negative",
		reflect.Slice: "an array",
	}[wrong.Type.Kind()]
	if want == "" {
		want = "an object"
	}
	return problem.Newf(problem.BadRequest, "%s: must be %s and not a JSON %s", place, want, wrong.Value)
}

func (s *Server) adminReset(r *http.Request) (any, error) {
	in := struct {
		Seed *uint64 `json:"seed"`
	}{}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	seed := s.Seed()
	if in.Seed != nil {
		seed = *in.Seed
	}
	if err := s.Reset(r.Context(), seed); err != nil {
		return nil, err
	}
	return s.adminInfo(r)
}

func (s *Server) seedBody() any { return map[string]uint64{"seed": s.Seed()} }

func (s *Server) adminSeed(r *http.Request) (any, error) {
	in := struct {
		Seed *uint64 `json:"seed"`
	}{}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if in.Seed == nil {
		return nil, problem.New(problem.Invalid, "seed is required: a whole number")
	}
	if err := s.SetSeed(*in.Seed); err != nil {
		return nil, problem.New(problem.Conflict, strings.TrimPrefix(err.Error(), "double: "))
	}
	return s.seedBody(), nil
}

func (s *Server) clockBody(moved time.Duration) any {
	clock := map[string]any{"now": s.Now(), "movedMs": moved.Milliseconds()}
	if next := s.current().due(); !next.IsZero() {
		clock["next"] = next
	}
	return clock
}

func (s *Server) adminAdvance(r *http.Request) (any, error) {
	in := struct {
		MS *int64 `json:"ms"`
	}{}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	if in.MS == nil || *in.MS < 0 || *in.MS > (100*365*24*time.Hour).Milliseconds() {
		return nil, problem.New(problem.Invalid, "ms must be milliseconds from 0 to a hundred years")
	}
	d := time.Duration(*in.MS) * time.Millisecond
	if err := s.Advance(r.Context(), d); err != nil {
		return nil, err
	}
	return s.clockBody(d), nil
}

func (s *Server) adminSet(r *http.Request) (any, error) {
	var in struct {
		Time string `json:"time"`
	}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	to, err := time.Parse(time.RFC3339, in.Time)
	if err != nil {
		return nil, problem.New(problem.Invalid, "time must be like 2027-01-01T00:00:00Z")
	}
	before := s.Now()
	if to.Before(before) {
		return nil, problem.New(problem.Invalid, "time must not be before "+before.Format(time.RFC3339Nano)+": time does not go back")
	}
	if err := s.SetTime(r.Context(), to); err != nil {
		return nil, err
	}
	return s.clockBody(to.Sub(before)), nil
}

func (s *Server) adminIdle(r *http.Request) (any, error) {
	d, err := s.RunUntilIdle(r.Context())
	if err != nil {
		return nil, err
	}
	return s.clockBody(d), nil
}

// A faultBody is a Fault on the wire.
type faultBody struct {
	ID          int     `json:"id,omitempty"`
	Hits        int     `json:"hits,omitempty"`
	Name        string  `json:"name"`
	Count       int     `json:"count,omitempty"`
	Probability float64 `json:"probability,omitempty"`
	Operation   string  `json:"operation,omitempty"`
	Endpoint    string  `json:"endpoint,omitempty"`
	Key         string  `json:"key,omitempty"`
	DataCenter  string  `json:"dataCenter,omitempty"`
	Image       string  `json:"image,omitempty"`
	Status      int     `json:"status,omitempty"`
	RetryAfter  int     `json:"retryAfter,omitempty"`
	DelayMS     int64   `json:"delayMs,omitempty"`
	Bytes       int     `json:"bytes,omitempty"`
	Chunks      int     `json:"chunks,omitempty"`
}

func (s *Server) adminFault(r *http.Request) (any, error) {
	var b faultBody
	if err := read(r, &b); err != nil {
		return nil, err
	}
	id, err := s.Fault(Fault{
		Name: b.Name, Count: b.Count, Probability: b.Probability, Operation: b.Operation, Endpoint: b.Endpoint, Key: b.Key,
		DataCenter: b.DataCenter, Image: b.Image, Status: b.Status, RetryAfter: b.RetryAfter,
		Delay: time.Duration(b.DelayMS) * time.Millisecond, Bytes: b.Bytes, Chunks: b.Chunks,
	})
	if err != nil {
		return nil, invalid(err)
	}
	return map[string]int{"id": id}, nil
}

func (s *Server) adminFaults(*http.Request) (any, error) {
	list := []faultBody{}
	for _, a := range s.Faults() {
		f := a.Fault
		b := faultBody{
			ID: a.ID, Hits: a.Hits, Name: f.Name, Count: f.Count, Probability: f.Probability, Operation: f.Operation,
			Endpoint: f.Endpoint, DataCenter: f.DataCenter, Image: f.Image, Status: f.Status, RetryAfter: f.RetryAfter,
			DelayMS: f.Delay.Milliseconds(), Bytes: f.Bytes, Chunks: f.Chunks,
		}
		if f.Key != "" {
			b.Key = redacted
		}
		list = append(list, b)
	}
	return map[string]any{"faults": list}, nil
}

func (s *Server) adminClearFault(r *http.Request) (any, error) {
	id, err := strconv.Atoi(r.PathValue("id"))
	if err != nil || !s.ClearFault(id) {
		return nil, problem.New(problem.NotFound, "there is no such fault")
	}
	return done, nil
}

// An outcomeBody is an Outcome on the wire.
type outcomeBody struct {
	When    json.RawMessage   `json:"when"`
	AfterMS int64             `json:"afterMs"`
	EveryMS int64             `json:"everyMs"`
	Times   int               `json:"times"`
	Reply   json.RawMessage   `json:"reply"`
	Fail    string            `json:"fail"`
	Output  json.RawMessage   `json:"output"`
	Hang    bool              `json:"hang"`
	Stream  []json.RawMessage `json:"stream"`
}

func (b *outcomeBody) outcome() Outcome {
	o := Outcome{
		After: time.Duration(b.AfterMS) * time.Millisecond, Every: time.Duration(b.EveryMS) * time.Millisecond,
		Times: b.Times, Fail: b.Fail, Hang: b.Hang,
	}
	if b.When != nil {
		o.When = b.When
	}
	if b.Reply != nil {
		o.Reply = b.Reply
	}
	if b.Output != nil {
		o.Output = b.Output
	}
	for _, c := range b.Stream {
		o.Stream = append(o.Stream, c)
	}
	return o
}

func (s *Server) adminScript(r *http.Request) (any, error) {
	var in struct {
		Outcomes []outcomeBody `json:"outcomes"`
	}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	return addOutcomes(in.Outcomes, func() (*Script, error) { return s.Endpoint(r.Context(), r.PathValue("endpoint")) })
}

func (s *Server) adminImage(r *http.Request) (any, error) {
	var in struct {
		Image       string        `json:"image"`
		ColdStartMS int64         `json:"coldStartMs"`
		Concurrency int           `json:"concurrency"`
		Outcomes    []outcomeBody `json:"outcomes"`
		Answers     []answerBody  `json:"answers"`
		Forward     string        `json:"forward"`
	}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	o := &ImageOptions{ColdStart: time.Duration(in.ColdStartMS) * time.Millisecond, Concurrency: in.Concurrency}
	switch {
	case in.Forward != "" && in.Answers == nil && in.Outcomes == nil:
		return doneOr(s.ImageForward(in.Image, in.Forward, o))
	case in.Answers != nil && in.Forward == "" && in.Outcomes == nil:
		list := make([]HTTPAnswer, len(in.Answers))
		for i := range list {
			list[i] = in.Answers[i].answer()
		}
		return doneOr(s.ImageAnswers(in.Image, list, o))
	case in.Answers != nil || in.Forward != "":
		return nil, problem.New(problem.Invalid, "an image has one of outcomes, answers and forward")
	}
	return addOutcomes(in.Outcomes, func() (*Script, error) { return s.ImageScript(in.Image, o) })
}

func doneOr(err error) (any, error) {
	if err != nil {
		return nil, invalid(err)
	}
	return done, nil
}

// An answerBody is an HTTPAnswer on the wire.
type answerBody struct {
	Method  string            `json:"method"`
	Path    string            `json:"path"`
	AfterMS int64             `json:"afterMs"`
	Status  int               `json:"status"`
	Headers map[string]string `json:"headers"`
	JSON    json.RawMessage   `json:"json"`
	Text    string            `json:"text"`
}

func (b *answerBody) answer() HTTPAnswer {
	a := HTTPAnswer{
		Method: b.Method, Path: b.Path, After: time.Duration(b.AfterMS) * time.Millisecond, Status: b.Status,
		Header: http.Header{}, Body: b.Text,
	}
	if b.JSON != nil {
		a.Body = string(b.JSON)
		a.Header.Set("Content-Type", "application/json")
	}
	for name, value := range b.Headers {
		a.Header.Set(name, value)
	}
	return a
}

// addOutcomes adds all outcomes to a script, or none.
func addOutcomes(list []outcomeBody, find func() (*Script, error)) (any, error) {
	pages := make([]Outcome, len(list))
	for i := range list {
		pages[i] = list[i].outcome()
		if _, err := checkOutcome(pages[i]); err != nil {
			return nil, problem.New(problem.Invalid, fmt.Sprintf("/outcomes/%d: %v", i, err))
		}
	}
	script, err := find()
	if err != nil {
		return nil, invalid(err)
	}
	for _, o := range pages {
		if err := script.Add(o); err != nil {
			return nil, invalid(err)
		}
	}
	return done, nil
}

func (s *Server) adminDeclare(r *http.Request) (any, error) {
	in := map[string]any{}
	if err := read(r, &in); err != nil {
		return nil, err
	}
	err := s.Declare(r.Context(), r.PathValue("endpoint"), in)
	if e := (*problem.Error)(nil); errors.As(err, &e) {
		return nil, e // with all faults
	}
	if err != nil {
		return nil, invalid(err)
	}
	return done, nil
}

func (s *Server) adminClearScript(r *http.Request) (any, error) {
	s.mu.Lock()
	b := s.scripts[r.PathValue("endpoint")]
	s.mu.Unlock()
	if b == nil {
		return nil, problem.New(problem.NotFound, "the endpoint has no script")
	}
	(&Script{outcomes: b}).Clear()
	return done, nil
}

func (s *Server) adminQueue(r *http.Request) (any, error) {
	if err := s.Queue(r.Context(), r.PathValue("endpoint")); err != nil {
		return nil, invalid(err)
	}
	return done, nil
}

// settled does everything that is due before a test reads results.
func (s *Server) settled(r *http.Request) error { return s.Settle(r.Context()) }

// found answers a match with 200, also when nothing matches.
func found[M, T any](r *http.Request, rest func(*http.Request) error, find func(M) (*Found[T], error)) (any, error) {
	var m M
	if err := read(r, &m); err != nil {
		return nil, err
	}
	if err := rest(r); err != nil {
		return nil, err
	}
	f, err := find(m)
	if err != nil {
		return nil, invalid(err)
	}
	out := map[string]any{"ok": true, "matches": f.Matches, "near": f.Near, "total": f.Total}
	if err := f.Err(); err != nil {
		out["ok"], out["explanation"] = false, err.Error()
	}
	return out, nil
}
