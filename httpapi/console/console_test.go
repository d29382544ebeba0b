package console_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// Keys of these tests.
const (
	aliceKey    = "canary-key-of-alice"
	readerKey   = "canary-key-of-a-reader"
	bobKey      = "canary-key-of-bob"
	operatorKey = "canary-key-of-an-operator"
)

// A world is a console on the API with memory stores. Its endpoint echo has no worker until
// one is started.
type world struct {
	t       *testing.T
	jobs    *serverless.Service
	pods    *pods.Service
	api     http.Handler
	console *console.Console
	options console.Options
	log     bytes.Buffer
	flight  *budget.InFlight
	keys    *accounts.Service
	cookie  *http.Cookie
	headers http.Header // of every request
	seen    bytes.Buffer
}

// bubble runs f with a world in virtual time.
func bubble(t *testing.T, set func(*console.Options), f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(newWorld(t, set)) })
}

func newWorld(t *testing.T, set func(*console.Options)) *world {
	t.Helper()
	w := &world{t: t, headers: http.Header{"Sec-Fetch-Site": {"same-origin"}, "Podyard-Console": {"1"}}}
	fixed, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: aliceKey, User: "alice", Scopes: []string{"*"}},
		{Secret: readerKey, User: "alice", Scopes: []string{"endpoint:echo:read"}, Expires: time.Now().Add(2 * time.Hour)},
		{Secret: bobKey, User: "bob", Scopes: []string{"*"}},
		{Secret: operatorKey, User: "root", Scopes: []string{"*", "operator"}},
	}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	w.keys = accounts.New(memory.NewAccounts(), nil)
	auth := httpapi.AnyOf(fixed, httpapi.StoredKeys(w.keys))
	w.flight = budget.NewInFlight(budget.NewSet(budget.Users{Limits: budget.Default()}), budget.DefaultTotals(), time.Now)
	eps := memory.NewEndpoints()
	w.jobs = serverless.New(memory.NewJobs(), eps, &serverless.Options{Schedules: memory.NewSchedules(), Batches: memory.NewBatches(), DecodeRun: httpapi.DecodeRun})
	if err := w.jobs.EnsureEndpoint(t.Context(), "echo"); err != nil {
		t.Fatal(err)
	}
	cat := catalog.Sample()
	p, err := pods.New(memory.NewPods(), cat, pods.SimulatedHosts(cat, memory.NewRuntime(&memory.RuntimeOptions{Seed: 1})), nil)
	if err != nil {
		t.Fatal(err)
	}
	w.pods = p
	w.api = httpapi.New(httpapi.Services{Jobs: w.jobs, Pods: p, Accounts: w.keys}, &httpapi.Options{Auth: auth, InFlight: w.flight})
	w.options = console.Options{Auth: auth, Jobs: w.jobs, InFlight: w.flight, Logger: slog.New(slog.NewTextHandler(&w.log, nil))}
	if set != nil {
		set(&w.options)
	}
	w.console, err = console.New(w.api, &w.options)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// serve starts a worker of echo, which answers its input.
func (w *world) serve() {
	w.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() {
		done <- w.jobs.Serve(ctx, "echo", serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) { return t.Input, nil }), &serverless.ServeOptions{ID: "local-1"})
	}()
	w.t.Cleanup(func() { cancel(); <-done })
}

// request makes a request to the console, as a page does.
func (w *world) request(method, path, body string) *httptest.ResponseRecorder {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), method, "http://podyard.test"+path, strings.NewReader(body))
	r.RemoteAddr = "192.0.2.1:1234"
	maps.Copy(r.Header, w.headers)
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if w.cookie != nil {
		r.AddCookie(w.cookie)
	}
	a := httptest.NewRecorder()
	w.console.ServeHTTP(a, r)
	for _, c := range a.Result().Cookies() {
		w.cookie = c
		if c.MaxAge < 0 {
			w.cookie = nil
		}
	}
	w.seen.WriteString(method + " " + path + "\n")
	_ = a.Result().Header.Write(&w.seen) // a buffer takes everything
	w.seen.Write(a.Body.Bytes())
	return a
}

// get is a request that must be answered with a status.
func (w *world) want(status int, method, path, body string) []byte {
	w.t.Helper()
	a := w.request(method, path, body)
	if a.Code != status {
		w.t.Fatalf("%s %s = %d %s, want %d", method, path, a.Code, a.Body, status)
	}
	return a.Body.Bytes()
}

func (w *world) signIn(key string) {
	w.t.Helper()
	w.want(http.StatusOK, "POST", "/console/session", `{"key":"`+key+`"}`)
}

// submit makes a job of alice and returns its id.
func (w *world) submit(body string) string {
	w.t.Helper()
	r := httptest.NewRequestWithContext(w.t.Context(), http.MethodPost, "/v2/echo/run", strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer "+aliceKey)
	a := httptest.NewRecorder()
	w.api.ServeHTTP(a, r)
	var j struct{ ID string }
	if err := json.Unmarshal(a.Body.Bytes(), &j); err != nil || j.ID == "" {
		w.t.Fatalf("run = %d %s", a.Code, a.Body)
	}
	return j.ID
}

// The zero value of the options lets nobody in.
func TestZeroOptionsRefuseEverybody(t *testing.T) {
	for name, o := range map[string]*console.Options{"nil": nil, "zero": {}} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			c, err := console.New(w.api, o)
			if err != nil {
				t.Fatal(err)
			}
			w.console = c
			w.want(http.StatusUnauthorized, "POST", "/console/session", `{"key":"`+aliceKey+`"}`)
			w.want(http.StatusNoContent, "GET", "/console/session", "")
			for _, path := range []string{"data/overview", "data/live", "data/waiting/echo", "data/history/echo", "data/job/echo/1", "data/job/echo/1/input", "api/v2/pods", "api/v2/echo/health"} {
				w.want(http.StatusUnauthorized, "GET", "/console/"+path, "")
			}
			w.want(http.StatusOK, "GET", "/console/", "")
		})
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, o := range []console.Options{{Path: "console/"}, {Path: "/console"}, {Path: `/"/`}, {Secret: []byte("short")}} {
		if _, err := console.New(http.NotFoundHandler(), &o); err == nil {
			t.Errorf("New with %+v = nil, want an error", o)
		}
	}
}

// A wrong key is refused in words, and after five in a minute slowly.
func TestTriesWithWrongKeysAreSlow(t *testing.T) {
	bubble(t, nil, func(w *world) {
		wrong := []string{`{"key":"wrong"}`, `{"key":""}`, `{`, `{"key":"with blank"}`, `{"key":"` + strings.Repeat("x", 3000) + `"}`}
		began := time.Now()
		for _, body := range wrong {
			if a := w.request("POST", "/console/session", body); a.Code < 400 || a.Code >= 500 || a.Code == http.StatusTooManyRequests {
				w.t.Errorf("POST session %.20s = %d %s, want a refusal", body, a.Code, a.Body)
			}
		}
		for i, body := range wrong {
			a := w.request("POST", "/console/session", body)
			if took := time.Since(began); a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") == "" || took != time.Duration(i+1)*time.Second {
				w.t.Errorf("try %d = %d, Retry-After %q, after %v; want 429, a second after the one before", i+6, a.Code, a.Header().Get("Retry-After"), took)
			}
		}
		time.Sleep(time.Minute)
		if a := w.request("POST", "/console/session", wrong[0]); a.Code != http.StatusUnauthorized {
			w.t.Errorf("a minute later = %d, want 401", a.Code)
		}
	})
}

// Behind a proxy that is not trusted everybody has one address. Somebody there who sends garbage keeps
// nobody out who has a key, however long it goes on.
func TestARightKeyIsTakenWhateverOthersTry(t *testing.T) {
	bubble(t, nil, func(w *world) {
		began := time.Now()
		for range 3 {
			for i := range 50 {
				w.request("POST", "/console/session", `{"key":"garbage-`+strconv.Itoa(i)+`"}`)
			}
			before := time.Now()
			for _, key := range []string{aliceKey, bobKey, operatorKey} {
				w.signIn(key)
			}
			if took := time.Since(before); took != 0 {
				w.t.Errorf("right keys wait %v for wrong ones", took)
			}
		}
		if took := time.Since(began); took < 2*time.Minute {
			w.t.Errorf("150 wrong keys were tried in %v", took)
		}
	})
}

// Each sign-in writes a line to the log, so one key has 30 of them in a minute, and others have theirs.
func TestOneKeySignsInThirtyTimesAMinute(t *testing.T) {
	bubble(t, nil, func(w *world) {
		for range 30 {
			w.signIn(aliceKey)
		}
		a := w.request("POST", "/console/session", `{"key":"`+aliceKey+`"}`)
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") != "60" {
			w.t.Errorf("the 31st time = %d, Retry-After %q; want 429 and 60", a.Code, a.Header().Get("Retry-After"))
		}
		w.signIn(bobKey)
		w.signIn(readerKey)
		time.Sleep(time.Minute)
		w.signIn(aliceKey)
	})
}

func TestCookieIsOfTheConsoleAlone(t *testing.T) {
	for path, want := range map[string]string{"/console/": "__Secure-podyard", "/": "__Host-podyard", "/a/b/": "__Secure-podyard"} {
		w := newWorld(t, func(o *console.Options) { o.Path = path })
		a := w.request("POST", path+"session", `{"key":"`+aliceKey+`"}`)
		c := w.cookie
		if a.Code != http.StatusOK || c == nil || c.Name != want || c.Path != path || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode || c.Domain != "" {
			t.Errorf("sign-in at %s = %d, cookie %+v; want %s", path, a.Code, c, want)
		}
	}
}

// A session ends 30 minutes after the last act, 12 hours after it began, and with its key.
func TestSessionsEnd(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.signIn(aliceKey)
		for range 23 {
			time.Sleep(29 * time.Minute)
			w.want(http.StatusOK, "GET", "/console/api/v2/echo/health", "")
		}
		time.Sleep(29 * time.Minute)
		w.want(http.StatusOK, "GET", "/console/api/v2/echo/health", "") // 11 h 36 min
		time.Sleep(25 * time.Minute)
		w.want(http.StatusUnauthorized, "GET", "/console/api/v2/echo/health", "")

		w.signIn(aliceKey)
		w.headers.Set("Podyard-Auto", "1")
		time.Sleep(29 * time.Minute)
		w.want(http.StatusOK, "GET", "/console/api/v2/echo/health", "")
		time.Sleep(2 * time.Minute) // a request that the page made by itself is no act
		w.want(http.StatusUnauthorized, "GET", "/console/api/v2/echo/health", "")
		w.want(http.StatusNoContent, "GET", "/console/session", "")
		w.headers.Del("Podyard-Auto")
	})
	bubble(t, nil, func(w *world) {
		w.signIn(readerKey)
		for range 8 {
			time.Sleep(14 * time.Minute)
			w.want(http.StatusOK, "GET", "/console/api/v2/echo/health", "")
		}
		time.Sleep(14 * time.Minute) // the key ends after 2 h
		w.want(http.StatusUnauthorized, "GET", "/console/api/v2/echo/health", "")
		w.want(http.StatusUnauthorized, "GET", "/console/session", "")
		if w.cookie != nil {
			w.t.Error("the cookie of a key that has ended is still there")
		}
	})
}

func TestSignedOutSessionIsRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn(aliceKey)
	old := w.cookie
	w.want(http.StatusNoContent, "DELETE", "/console/session", "")
	if w.cookie != nil {
		t.Error("the cookie stays")
	}
	w.cookie = old
	w.want(http.StatusUnauthorized, "GET", "/console/api/v2/echo/health", "")
}

// Servers with one secret take each other's sessions; without one a restart ends them.
func TestSessionsBelongToTheSecret(t *testing.T) {
	secret := bytes.Repeat([]byte{7}, 32)
	with := func(s []byte, path string) *console.Console {
		w := newWorld(t, func(o *console.Options) { o.Secret, o.Path = s, path })
		return w.console
	}
	w := newWorld(t, func(o *console.Options) { o.Secret = secret })
	w.signIn(aliceKey)
	kept := *w.cookie
	for name, x := range map[string]struct {
		c    *console.Console
		want int
	}{"same secret": {with(secret, ""), 200}, "another secret": {with(bytes.Repeat([]byte{8}, 32), ""), 401}, "random": {with(nil, ""), 401}, "another path": {with(secret, "/other/"), 401}} {
		path := "/console/api/v2/echo/health"
		if name == "another path" {
			path = "/other/api/v2/echo/health"
		}
		w.console, w.cookie = x.c, &kept
		if a := w.request("GET", path, ""); a.Code != x.want {
			t.Errorf("%s = %d, want %d", name, a.Code, x.want)
		}
	}
	for i := range kept.Value {
		c := kept
		b := []byte(c.Value)
		b[i] ^= 1
		c.Value = string(b)
		w.console, w.cookie = with(secret, ""), &c
		if i%16 == 0 {
			w.want(http.StatusUnauthorized, "GET", "/console/api/v2/echo/health", "")
		}
	}
}

// Another site changes nothing and reads nothing, whatever a browser says of its request.
func TestCrossSiteRequestsAreRefused(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn(aliceKey)
	job := w.submit(`{"input":{}}`)
	for name, h := range map[string]http.Header{
		"form of another site":          {"Sec-Fetch-Site": {"cross-site"}, "Origin": {"https://evil.test"}, "Content-Type": {"application/x-www-form-urlencoded"}},
		"form of a sibling":             {"Sec-Fetch-Site": {"same-site"}, "Origin": {"https://evil.podyard.test"}},
		"old browser, other origin":     {"Origin": {"https://evil.test"}},
		"old browser, no origin":        {},
		"fetch with our header":         {"Sec-Fetch-Site": {"cross-site"}, "Podyard-Console": {"1"}},
		"sandboxed document of ours":    {"Sec-Fetch-Site": {"cross-site"}, "Origin": {"null"}, "Podyard-Console": {"1"}},
		"form on our own site":          {"Sec-Fetch-Site": {"same-origin"}, "Content-Type": {"text/plain"}},
		"our header, origin of another": {"Origin": {"https://evil.test"}, "Podyard-Console": {"1"}},
	} {
		w.headers = h
		for _, x := range [][2]string{{"POST", "api/v2/echo/cancel/" + job}, {"POST", "session"}, {"DELETE", "session"}, {"PATCH", "api/v2/serverless/echo/queue"}, {"DELETE", "api/v2/pods/x"}} {
			if a := w.request(x[0], "/console/"+x[1], "{}"); a.Code != http.StatusForbidden {
				t.Errorf("%s: %s %s = %d, want 403", name, x[0], x[1], a.Code)
			}
		}
	}
	w.headers = http.Header{"Sec-Fetch-Site": {"cross-site"}, "Sec-Fetch-Mode": {"no-cors"}}
	w.want(http.StatusForbidden, "GET", "/console/data/overview", "")
	if a := w.request("GET", "/console/api/v2/echo/health", ""); a.Header().Get("Access-Control-Allow-Origin") != "" {
		t.Error("another origin may read")
	}
}

// The console calls the control API and the jobs of the user, and nothing whose answer comes
// from a stranger or takes something away from a reader.
func TestOnlyOperationsOfThePagesAreCalled(t *testing.T) {
	w := newWorld(t, nil)
	w.signIn(aliceKey)
	job := w.submit(`{"input":{}}`)
	for _, x := range []string{"GET /lb/echo/", "GET /v2/echo/stream/" + job, "GET /v2/echo/status-sync/" + job, "GET /v2/echo/job-take/w", "POST /v2/echo/job-done/w/" + job, "POST /v2/echo/openai/v1/chat/completions", "GET /v2/nothing/at/all/there", "GET /healthz"} {
		method, path, _ := strings.Cut(x, " ")
		w.want(http.StatusNotFound, method, "/console/api"+path, "")
	}
	w.want(http.StatusOK, "GET", "/console/api/v2/echo/status/"+job, "")
	w.want(http.StatusOK, "POST", "/console/api/v2/echo/cancel/"+job, "")
}

// The key decides what the console can do.
func TestScopesOfTheKeyHold(t *testing.T) {
	w := newWorld(t, nil)
	job := w.submit(`{"input":{"secret":"of alice"}}`)
	w.signIn(readerKey)
	w.want(http.StatusOK, "GET", "/console/data/job/echo/"+job, "")
	w.want(http.StatusForbidden, "POST", "/console/api/v2/echo/cancel/"+job, "")
	w.want(http.StatusForbidden, "GET", "/console/api/v2/serverless", "")
	var o struct {
		Listed    bool
		Endpoints []struct{ ID string }
		Pods      json.RawMessage
	}
	unmarshal(t, w.want(http.StatusOK, "GET", "/console/data/overview", ""), &o)
	if o.Listed || len(o.Endpoints) != 1 || o.Endpoints[0].ID != "echo" || string(o.Pods) != "null" {
		t.Errorf("overview of a reader = %+v, want echo from its scope, and no pods", o)
	}
}

// The list over all endpoints has the user's own jobs, the newest first, and those of all users for an operator.
func TestTheJobsOfAllEndpointsAreTheUsersOwn(t *testing.T) {
	w := newWorld(t, nil)
	check(t, w.jobs.EnsureEndpoint(t.Context(), "other"))
	var want []string
	for _, x := range []struct{ owner, endpoint string }{{"alice", "echo"}, {"bob", "echo"}, {"alice", "other"}, {"alice", "echo"}} {
		j, err := w.jobs.Submit(t.Context(), x.owner, x.endpoint, serverless.Request{Input: []byte(`{}`)})
		check(t, err)
		want = append([]string{x.owner + " " + string(j.ID)}, want...)
		time.Sleep(2 * time.Millisecond) // times of jobs are whole milliseconds
	}
	for key, user := range map[string]string{aliceKey: "alice", bobKey: "bob", operatorKey: ""} {
		w.signIn(key)
		var b struct {
			Jobs   []struct{ ID, Owner string }
			Counts struct{ InQueue int }
		}
		unmarshal(t, w.want(http.StatusOK, "GET", "/console/data/jobs?status=IN_QUEUE", ""), &b)
		var got []string
		for _, j := range b.Jobs {
			got = append(got, cmp.Or(j.Owner, user)+" "+j.ID)
		}
		seen := slices.DeleteFunc(slices.Clone(want), func(x string) bool { return !strings.HasPrefix(x, user) })
		if !slices.Equal(got, seen) || b.Counts.InQueue != len(want) {
			t.Errorf("the jobs that %q sees are %q with %d that wait, want %q and %d", user, got, b.Counts.InQueue, seen, len(want))
		}
	}
}

// What pages read again and again is refused nowhere: each refusal would be a line in the audit log.
func TestPagesAskForNothingThatTheKeyMayNotRead(t *testing.T) {
	w := newWorld(t, nil)
	w.submit(`{"input":{}}`)
	var refused []string
	api := http.HandlerFunc(func(a http.ResponseWriter, r *http.Request) {
		got := httptest.NewRecorder()
		if w.api.ServeHTTP(got, r); got.Code == http.StatusForbidden {
			refused = append(refused, r.URL.Path)
		}
		maps.Copy(a.Header(), got.Header())
		a.WriteHeader(got.Code)
		_, _ = a.Write(got.Body.Bytes())
	})
	var err error
	w.console, err = console.New(api, &w.options)
	check(t, err)
	for _, key := range []string{readerKey, bobKey, aliceKey, operatorKey} {
		w.signIn(key)
		for _, page := range []string{"overview", "jobs", "waiting/echo", "endpoint/echo", "history/echo", "find?q=notebook"} {
			w.want(http.StatusOK, "GET", "/console/data/"+page, "")
		}
		if len(refused) > 0 {
			t.Errorf("with the key %s the pages are refused %q", key, refused)
		}
		refused = nil
	}
}

// Nobody sees a job of another user, but an operator.
func TestJobsOfOthersAreNotFound(t *testing.T) {
	w := newWorld(t, nil)
	other := w.submit(`{"input":{"a":1}}`)
	w.signIn(operatorKey)
	var j struct{ Owner string }
	unmarshal(t, w.want(http.StatusOK, "GET", "/console/data/job/echo/"+other, ""), &j)
	if j.Owner != "alice" {
		t.Errorf("owner = %q, want alice", j.Owner)
	}
	bob, err := httpapi.NewKeys([]httpapi.Key{{Secret: "bob", User: "bob", Scopes: []string{"*"}}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	api := httpapi.New(httpapi.Services{Jobs: w.jobs}, &httpapi.Options{Auth: bob})
	if w.console, err = console.New(api, &console.Options{Auth: bob, Jobs: w.jobs}); err != nil {
		t.Fatal(err)
	}
	w.signIn("bob")
	for _, path := range []string{"", "/input", "/output"} {
		w.want(http.StatusNotFound, "GET", "/console/data/job/echo/"+other+path, "")
	}
	if a := w.want(http.StatusOK, "GET", "/console/data/jobs/echo?limit=10", ""); bytes.Contains(a, []byte(other)) {
		t.Errorf("the jobs of bob have one of alice: %s", a)
	}
	w.want(http.StatusForbidden, "GET", "/console/data/jobs/echo?owner=*", "")
}

func TestReadOnlyChangesNothing(t *testing.T) {
	w := newWorld(t, func(o *console.Options) { o.ReadOnly = true })
	job := w.submit(`{"input":{}}`)
	w.signIn(aliceKey)
	w.want(http.StatusForbidden, "POST", "/console/api/v2/echo/cancel/"+job, "")
	w.want(http.StatusForbidden, "POST", "/console/api/v2/echo/actions", `{"action":"cancel","all":true,"preview":true}`)
	w.want(http.StatusOK, "GET", "/console/api/v2/echo/status/"+job, "")
}

func TestHiddenPayloadsAreNowhere(t *testing.T) {
	w := newWorld(t, func(o *console.Options) { o.HidePayloads = true })
	job := w.submit(`{"input":{"text":"hide-me"}}`)
	w.serve()
	w.signIn(aliceKey)
	w.want(http.StatusForbidden, "GET", "/console/data/job/echo/"+job+"/input", "")
	w.want(http.StatusForbidden, "GET", "/console/data/job/echo/"+job+"/output", "")
	w.want(http.StatusCreated, "POST", "/console/api/v2/echo/schedules", `{"cron":"* * * * *","run":{"input":{"text":"hide-me"}}}`)
	for _, path := range []string{"api/v2/echo/status/" + job, "api/v2/echo/requests?full=true", "api/v2/serverless/echo/jobs", "api/v2/echo/schedules", "data/job/echo/" + job, "data/overview", "data/waiting/echo"} {
		w.want(http.StatusOK, "GET", "/console/"+path, "")
	}
	if bytes.Contains(w.seen.Bytes(), []byte("hide-me")) {
		t.Error("a payload is shown")
	}
}

// A payload is shown byte for byte: numbers, repeated names, escapes.
func TestPayloadsAreTheBytesThatCame(t *testing.T) {
	w := newWorld(t, nil)
	input := `{"n":9223372036854775809, "e":1e400, "z":0.10,"d":1,"d":2,"s":"\u0041<script>"}`
	job := w.submit(`{"input":` + input + `}`)
	w.signIn(aliceKey)
	a := w.request("GET", "/console/data/job/echo/"+job+"/input", "")
	if got := a.Body.String(); got != input || a.Header().Get("Podyard-Size") != strconv.Itoa(len(input)) {
		t.Errorf("input = %s, want %s", got, input)
	}
	for name, want := range map[string]string{"Content-Type": "application/octet-stream", "X-Content-Type-Options": "nosniff", "Content-Disposition": `attachment; filename="` + job + `-input.json"`} {
		if got := a.Header().Get(name); got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
	long := w.submit(`{"input":{"s":"` + strings.Repeat("x", 300<<10) + `"}}`)
	if n := len(w.want(200, "GET", "/console/data/job/echo/"+long+"/input", "")); n != 256<<10 {
		t.Errorf("shown bytes = %d, want 256 KiB", n)
	}
	if n := len(w.want(200, "GET", "/console/data/job/echo/"+long+"/input?download=1", "")); n <= 300<<10 {
		t.Errorf("downloaded bytes = %d, want all", n)
	}
}

// A job that waits has the reason of serverless.Service.Why.
func TestWaitingEqualsWhy(t *testing.T) {
	w := newWorld(t, nil)
	first := w.submit(`{"input":{}}`)
	for range 5 {
		w.submit(`{"input":{}}`)
	}
	want, err := w.jobs.Why(t.Context(), "alice", serverless.Ref{Endpoint: "echo", ID: serverless.JobID(first)})
	if err != nil {
		t.Fatal(err)
	}
	w.signIn(aliceKey)
	var b struct {
		Waiting int
		Why     string
		Oldest  struct{ ID string }
	}
	unmarshal(t, w.want(200, "GET", "/console/data/waiting/echo", ""), &b)
	if b.Why != want || b.Oldest.ID != first || b.Waiting != 6 {
		t.Errorf("waiting = %+v, want %s, 6, %q", b, first, want)
	}
}

// No answer, header or line of a log has the key.
func TestKeyIsNowhere(t *testing.T) {
	w := newWorld(t, nil)
	job := w.submit(`{"input":{}}`)
	w.signIn(operatorKey)
	for _, path := range []string{"", "e/echo", "session", "data/overview", "data/waiting/echo", "data/job/echo/" + job, "api/v2/admin/state", "api/v2/nothing"} {
		w.request("GET", "/console/"+path, "")
	}
	w.request("POST", "/console/session", `{"key":"canary-key-that-is-wrong"}`)
	for name, text := range map[string]string{"answers": w.seen.String(), "log": w.log.String()} {
		if strings.Contains(text, "canary-key") {
			t.Errorf("the %s have a key", name)
		}
	}
	if !strings.Contains(w.log.String(), "user=root") {
		t.Errorf("log = %q, want who signed in", w.log.String())
	}
}

// A program with its own sign-in says whose key a request has.
func TestProgramsIdentifyTheirUsers(t *testing.T) {
	w := newWorld(t, func(o *console.Options) {
		o.Identify = func(r *http.Request) (string, bool) { return aliceKey, r.Header.Get("X-User") == "alice" }
	})
	w.want(http.StatusUnauthorized, "GET", "/console/data/overview", "")
	w.want(http.StatusNotFound, "POST", "/console/session", `{"key":"`+aliceKey+`"}`)
	w.headers.Set("X-User", "alice")
	var s struct {
		User    string
		SignOut bool
	}
	unmarshal(t, w.want(http.StatusOK, "GET", "/console/session", ""), &s)
	if s.User != "alice" || s.SignOut {
		t.Errorf("session = %+v, want alice without signing out", s)
	}
	if w.cookie != nil {
		t.Error("the console made a cookie")
	}
}

// A proxy may cut the path of the console off.
func TestPathMayBeCutOff(t *testing.T) {
	w := newWorld(t, func(o *console.Options) { o.Path = "/tools/podyard/" })
	w.want(http.StatusOK, "POST", "/session", `{"key":"`+aliceKey+`"}`)
	for _, path := range []string{"/tools/podyard/data/overview", "/data/overview", "/api/v2/echo/health"} {
		w.want(http.StatusOK, "GET", path, "")
	}
	if body := string(w.want(http.StatusOK, "GET", "/tools/podyard/e/echo/jobs", "")); !strings.Contains(body, `data-base="/tools/podyard/"`) || !strings.Contains(body, `src="/tools/podyard/a/`) {
		t.Errorf("page = %s, want the addresses of the prefix", body)
	}
	if a := w.request("GET", "/tools/podyard", ""); a.Code != http.StatusPermanentRedirect || a.Header().Get("Location") != "/tools/podyard/" {
		t.Errorf("without a slash = %d to %q", a.Code, a.Header().Get("Location"))
	}
}

// The live stream sends counts when they change, and ends with the session.
func TestLiveStreamFollowsTheCounts(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.signIn(readerKey)
		ctx, cancel := context.WithCancel(w.t.Context())
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/data/live?endpoint=echo", http.NoBody)
		r.AddCookie(w.cookie)
		pr, pw := io.Pipe()
		done := make(chan bool)
		go func() { w.console.ServeHTTP(&pipeWriter{pw, http.Header{}}, r); _ = pw.Close(); close(done) }()
		events := make(chan string, 1000)
		go scanEvents(pr, events)
		time.Sleep(5 * time.Second)
		w.submit(`{"input":{}}`)
		time.Sleep(5 * time.Second)
		if got := drain(events); len(got) != 2 || !strings.Contains(got[0], `"inQueue":0`) || !strings.Contains(got[1], `"inQueue":1`) {
			w.t.Errorf("events = %q, want the counts and their change", got)
		}
		time.Sleep(2 * time.Hour) // the key ends
		if got := drain(events); len(got) != 1 || !strings.HasPrefix(got[0], "event: out") {
			w.t.Errorf("events = %q, want the end of the session", got)
		}
		<-done
		cancel()
	})
}

// One connection of HTTP/2 can have hundreds of streams, so they are counted.
func TestAUserHasAHundredLiveStreams(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.signIn(aliceKey)
		ctx, cancel := context.WithCancel(w.t.Context())
		var open sync.WaitGroup
		for range 100 {
			r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/console/data/live", http.NoBody)
			r.AddCookie(w.cookie)
			open.Go(func() { w.console.ServeHTTP(httptest.NewRecorder(), r) })
		}
		synctest.Wait()
		a := w.request("GET", "/console/data/live", "")
		if a.Code != http.StatusTooManyRequests || a.Header().Get("Retry-After") == "" {
			w.t.Errorf("stream 101 = %d %s, want 429 with Retry-After", a.Code, a.Body)
		}
		cancel()
		open.Wait()
		gone, stop := context.WithCancel(w.t.Context())
		stop()
		r := httptest.NewRequestWithContext(gone, http.MethodGet, "/console/data/live", http.NoBody)
		r.AddCookie(w.cookie)
		again := httptest.NewRecorder()
		if w.console.ServeHTTP(again, r); again.Code != http.StatusOK {
			w.t.Errorf("a stream after the others ended = %d %s", again.Code, again.Body)
		}
	})
}

// A redirect would lead to what another handler of the host serves.
func TestAPathThatIsNotCleanIsNotFoundAndRedirectsNowhere(t *testing.T) {
	bubble(t, nil, func(w *world) {
		w.signIn(aliceKey)
		for _, path := range []string{
			"//evil.test", "//lb/x/y", "..//evil.test", "./api/v2/pods", "api", "a", "data", "a/..%2f..%2fx", "%2f%2fevil.test",
			"data/job/x/../y", "api//v2/pods", "api/v2/../v2/pods", "%2e%2e/v2/pods", "session/",
		} {
			for _, method := range []string{"GET", "POST"} {
				a := w.request(method, "/console/"+path, "")
				if a.Code != http.StatusNotFound || a.Header().Get("Location") != "" {
					w.t.Errorf("%s /console/%s = %d to %q, want 404", method, path, a.Code, a.Header().Get("Location"))
				}
			}
		}
	})
}

type pipeWriter struct {
	*io.PipeWriter

	h http.Header
}

func (p *pipeWriter) Header() http.Header { return p.h }
func (*pipeWriter) WriteHeader(int)       {}
func (*pipeWriter) Flush()                {}

// scanEvents sends the events of a stream, without comments.
func scanEvents(r io.Reader, to chan<- string) {
	all, buf := "", make([]byte, 4096)
	for {
		n, err := r.Read(buf)
		all += string(buf[:n])
		for {
			event, rest, ok := strings.Cut(all, "\n\n")
			if !ok {
				break
			}
			if all = rest; !strings.HasPrefix(event, ":") {
				to <- event
			}
		}
		if err != nil {
			return
		}
	}
}

func drain(c <-chan string) (list []string) {
	for {
		select {
		case e := <-c:
			list = append(list, e)
		default:
			return list
		}
	}
}

// History has a sample each five seconds, of an hour.
func TestTheOverviewBeginsWithWhatIsWrongForWhoLooks(t *testing.T) {
	list := []incidents.Incident{
		{Cause: incidents.Disk, Severity: incidents.Critical, Since: time.Now(), Detail: "full", Act: "make room"},
		{Cause: incidents.CrashLoop, Severity: incidents.Warning, Kind: "endpoint", ID: "e", Name: "sdxl", Owner: "alice", Who: []string{"alice"}, Detail: "import torch"},
		{Cause: incidents.HostFull, Severity: incidents.Warning, Kind: "host", ID: "local", Who: []string{"bob"}, Detail: "3 workers of sdxl"},
	}
	bubble(t, func(o *console.Options) { o.Incidents = func() []incidents.Incident { return list } }, func(w *world) {
		for key, want := range map[string]string{operatorKey: "disk crashLoop:sdxl hostFull", aliceKey: "crashLoop:sdxl", bobKey: "hostFull"} {
			w.signIn(key)
			var o struct {
				Incidents []struct{ Cause, Name, Detail string }
			}
			b := w.want(http.StatusOK, "GET", "/console/data/overview", "")
			unmarshal(w.t, b, &o)
			var got []string
			for _, i := range o.Incidents {
				got = append(got, strings.TrimSuffix(i.Cause+":"+i.Name, ":"))
			}
			if strings.Join(got, " ") != want {
				w.t.Errorf("with %s the overview has %q, want %q", key, got, want)
			}
			if key == bobKey && strings.Contains(string(b), "sdxl") {
				w.t.Errorf("bob sees who has the room: %s", b)
			}
		}
	})
}

func TestHistoryIsAnHour(t *testing.T) {
	bubble(t, nil, func(w *world) {
		ctx, cancel := context.WithCancel(w.t.Context())
		done := make(chan error)
		go func() { done <- w.console.Run(ctx) }()
		time.Sleep(time.Minute)
		w.submit(`{"input":{}}`)
		time.Sleep(2 * time.Hour)
		w.signIn(aliceKey)
		var h struct {
			Every  int
			Queued []int
			Oldest []int
		}
		unmarshal(w.t, w.want(200, "GET", "/console/data/history/echo", ""), &h)
		if len(h.Queued) != 720 || h.Every != 5 || h.Queued[719] != 1 || h.Oldest[719] < 7195 || h.Oldest[719] > 7205 {
			w.t.Errorf("history has %d samples, the last %v %v", len(h.Queued), h.Queued[len(h.Queued)-1], h.Oldest[len(h.Oldest)-1])
		}
		w.want(http.StatusNotFound, "GET", "/console/data/history/nothing", "")
		cancel()
		if err := <-done; err != nil {
			w.t.Errorf("Run = %v, want nil", err)
		}
	})
}

func unmarshal(t *testing.T, b []byte, v any) {
	t.Helper()
	if err := json.Unmarshal(b, v); err != nil {
		t.Fatalf("%s: %v", b, err)
	}
}
