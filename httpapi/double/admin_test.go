package double_test

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
)

// An admin makes requests to /_test and checks every body against the description.
type admin struct {
	*apitest.Server
	t        *testing.T
	compiler *jsonschema.Compiler
	doc      obj
}

func newAdmin(t *testing.T) *admin {
	t.Helper()
	a := &admin{Server: apitest.Start(t), t: t, compiler: jsonschema.NewCompiler()}
	code, body := a.raw("GET", "/_test/openapi.json", "")
	if code != 200 {
		t.Fatalf("openapi.json = %d %s", code, body)
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	a.doc = v.(obj)
	if err := a.compiler.AddResource("mem:admin.json", v); err != nil {
		t.Fatal(err)
	}
	return a
}

func (a *admin) raw(method, path, body string, headers ...string) (int, string) {
	a.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body)).WithContext(a.t.Context())
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	w := httptest.NewRecorder()
	a.Double.Admin().ServeHTTP(w, r)
	return w.Code, w.Body.String()
}

// ask makes a request and wants a status; route is the path in the description.
func (a *admin) ask(status int, method, route, path, body string) obj {
	a.t.Helper()
	code, out := a.raw(method, path, body)
	if code != status {
		a.t.Fatalf("%s %s %s = %d %s, want %d", method, path, body, code, out, status)
	}
	op := strings.ReplaceAll(strings.ReplaceAll(route, "~", "~0"), "/", "~1")
	at := "mem:admin.json#/paths/" + op + "/" + strings.ToLower(method)
	if status == 200 {
		if body != "" {
			a.valid(at+"/requestBody/content/application~1json/schema", body)
		}
		a.valid(at+"/responses/200/content/application~1json/schema", out)
	} else {
		a.valid(at+"/responses/default/content/application~1problem+json/schema", out)
	}
	var v obj
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		a.t.Fatal(err)
	}
	return v
}

func (a *admin) valid(at, body string) {
	a.t.Helper()
	schema, err := a.compiler.Compile(strings.NewReplacer("{", "%7B", "}", "%7D").Replace(at))
	if err != nil {
		a.t.Fatal(err)
	}
	v, err := jsonschema.UnmarshalJSON(bytes.NewReader([]byte(body)))
	if err != nil {
		a.t.Fatal(err)
	}
	if err := schema.Validate(v); err != nil {
		a.t.Errorf("%s: %s: %v", at, body, err)
	}
}

func TestAdminDoesWhatTheServerDoes(t *testing.T) {
	a := newAdmin(t)
	info := a.ask(200, "GET", "/_test", "/_test", "")
	if info["key"] != a.Key || info["now"] != "2026-01-01T00:00:00Z" {
		t.Errorf("info = %v", info)
	}
	a.ask(200, "POST", "/_test/endpoints/{endpoint}/script", "/_test/endpoints/e/script",
		`{"outcomes":[{"when":{"n":1},"afterMs":60000,"reply":"one"},{"fail":"no","output":{"why":1}},{"hang":true,"when":{"n":3}},{"stream":[1,2],"everyMs":5,"times":2,"when":{"n":4}}]}`)
	a.ask(200, "POST", "/_test/endpoints/{endpoint}/queue", "/_test/endpoints/q/queue", "")
	one := run(t, a.Server, "e", `{"input":{"n":1},"webhook":"http://client.test/hook"}`)
	run(t, a.Server, "e", `{"input":{"n":2}}`)
	run(t, a.Server, "q", `{"input":{}}`)

	a.ask(200, "GET", "/_test/clock", "/_test/clock", "")
	if c := a.ask(200, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":1000}`); c["now"] != "2026-01-01T00:00:01Z" {
		t.Errorf("after an advance by 1000 ms: %v", c)
	}
	a.ask(200, "POST", "/_test/clock/set", "/_test/clock/set", `{"time":"2026-01-01T00:00:30Z"}`)
	if c := a.ask(200, "POST", "/_test/clock/run-until-idle", "/_test/clock/run-until-idle", ""); c["movedMs"] != 30000.0 {
		t.Errorf("run-until-idle = %v, want 30000 ms", c)
	}

	found := a.ask(200, "POST", "/_test/jobs/find", "/_test/jobs/find", `{"id":"`+one+`","status":"COMPLETED","output":"one"}`)
	if found["ok"] != true {
		t.Errorf("find = %v", found)
	}
	found = a.ask(200, "POST", "/_test/jobs/find", "/_test/jobs/find", `{"endpoint":"e","input":{"n":5}}`)
	if text, _ := found["explanation"].(string); found["ok"] != false || !strings.Contains(text, "input.n: want 5, got 1") {
		t.Errorf("find of what is not there = %v", found)
	}
	if f := a.ask(200, "POST", "/_test/webhooks/find", "/_test/webhooks/find", `{"job":"`+one+`","times":1}`); f["ok"] != true {
		t.Errorf("find = %v", f)
	}
	if f := a.ask(200, "POST", "/_test/requests/find", "/_test/requests/find", `{"operation":"run","body":{"input":{"n":2}}}`); f["ok"] != true {
		t.Errorf("find = %v", f)
	}
	for _, list := range []string{"requests", "jobs", "webhooks"} {
		if got := a.ask(200, "GET", "/_test/"+list, "/_test/"+list, "")[list].([]any); len(got) == 0 {
			t.Errorf("%s is empty", list)
		}
	}
	a.ask(200, "DELETE", "/_test/journal", "/_test/journal", "")
	a.ask(200, "DELETE", "/_test/endpoints/{endpoint}/script", "/_test/endpoints/e/script", "")

	id := a.ask(200, "POST", "/_test/faults", "/_test/faults", `{"name":"rate-limited","retryAfter":7,"operation":"health","key":"`+a.Key+`","delayMs":1}`)["id"]
	if id != 1.0 {
		t.Errorf("id = %v, want 1", id)
	}
	if r := want(t, a.Server, 429, "GET", "/v2/e/health", ""); r.header.Get("Retry-After") != "7" {
		t.Errorf("Retry-After = %q, want 7", r.header.Get("Retry-After"))
	}
	if _, out := a.raw("GET", "/_test/faults", ""); strings.Contains(out, a.Key) || !strings.Contains(out, `"hits":1`) {
		t.Errorf("faults = %s, want one with a hit and without the key", out)
	}
	a.ask(200, "GET", "/_test/faults", "/_test/faults", "")
	a.ask(200, "GET", "/_test/fault-names", "/_test/fault-names", "")
	a.ask(200, "DELETE", "/_test/faults/{id}", "/_test/faults/1", "")
	want(t, a.Server, 200, "GET", "/v2/e/health", "")
	a.ask(200, "DELETE", "/_test/faults", "/_test/faults", "")

	if got := a.ask(200, "POST", "/_test/seed", "/_test/seed", `{"seed":5}`); got["seed"] != 5.0 {
		t.Errorf("seed = %v, want 5", got)
	}
	if got := a.ask(200, "GET", "/_test/seed", "/_test/seed", ""); got["seed"] != 5.0 {
		t.Errorf("seed = %v, want 5", got)
	}
	a.ask(409, "POST", "/_test/seed", "/_test/seed", `{"seed":0}`) // the seed was used for ids of jobs
	if info := a.ask(200, "POST", "/_test/reset", "/_test/reset", `{"seed":9}`); info["seed"] != 9.0 || info["jobs"] != 0.0 || info["now"] != "2026-01-01T00:00:00Z" {
		t.Errorf("after a reset: %v", info)
	}
	if a.Now() != double.DefaultStart.Add(0*time.Second) {
		t.Errorf("Now = %v", a.Now())
	}
}

func TestAdminScalesTheEndpointsOfAnImage(t *testing.T) {
	a := newAdmin(t)
	a.ask(200, "POST", "/_test/images", "/_test/images", `{"image":"org/worker:*","coldStartMs":20000,"outcomes":[{"afterMs":60000,"reply":"done"}]}`)
	a.ask(200, "PUT", "/_test/endpoints/{endpoint}", "/_test/endpoints/e", `{"image":"org/worker:1","workers":{"max":3,"idleTimeout":30}}`)
	job := run(t, a.Server, "e", `{"input":{}}`)
	for _, tt := range []struct {
		ms   string
		want string
	}{{"19999", "INITIALIZING"}, {"1", "RUNNING"}, {"60000", "IDLE"}, {"30000", ""}} {
		a.ask(200, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":`+tt.ms+`}`)
		if got := strings.Join(workers(t, a.Server, "e"), " "); got != tt.want {
			t.Errorf("%v after the job: workers = %q, want %q", a.Now().Sub(double.DefaultStart), got, tt.want)
		}
	}
	a.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED", Output: "done"})
}

func TestAdminRefusesWithAReason(t *testing.T) {
	a := newAdmin(t)
	for _, tt := range []struct {
		status                    int
		method, route, path, body string
		says                      string
	}{
		{400, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":`, "unexpected EOF"},
		{400, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"seconds":1}`, `unknown field "seconds"`},
		{400, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":1}{}`, "after the value"},
		{422, "POST", "/_test/clock/advance", "/_test/clock/advance", `{}`, "ms"},
		{422, "POST", "/_test/clock/advance", "/_test/clock/advance", `{"ms":-1}`, "ms"},
		{422, "POST", "/_test/clock/set", "/_test/clock/set", `{"time":"2025-01-01T00:00:00Z"}`, "back"},
		{422, "POST", "/_test/seed", "/_test/seed", `{}`, "seed"},
		{400, "POST", "/_test/seed", "/_test/seed", `{"seed":-1}`, "/seed: must be a whole number, not negative"},
		{400, "POST", "/_test/seed", "/_test/seed", `[]`, "the body: must be an object and not a JSON array"},
		{400, "POST", "/_test/clock/set", "/_test/clock/set", `{"time":1}`, "/time: must be a string"},
		{422, "POST", "/_test/clock/set", "/_test/clock/set", `{"time":"tomorrow"}`, "time must be like 2027-01-01"},
		{422, "POST", "/_test/clock/set", "/_test/clock/set", `{}`, "time must be like 2027-01-01"},
		{400, "POST", "/_test/jobs/find", "/_test/jobs/find", `{"endpoint":["x"]}`, "/endpoint: must be a string and not a JSON array"},
		{400, "POST", "/_test/images", "/_test/images", `{"image":"i","outcomes":[{"afterMs":1.5}]}`, "afterMs: must be a whole number"},
		{400, "POST", "/_test/images", "/_test/images", `{"image":"i","outcomes":true}`, "/outcomes: must be an array"},
		{422, "POST", "/_test/faults", "/_test/faults", `{"name":"nonsense"}`, "worker-dies"},
		{422, "POST", "/_test/images", "/_test/images", `{"outcomes":[]}`, "name"},
		{422, "POST", "/_test/images", "/_test/images", `{"image":"i","coldStartMs":-1,"outcomes":[]}`, "cold start"},
		{422, "POST", "/_test/images", "/_test/images", `{"image":"i","outcomes":[{}]}`, "/outcomes/0"},
		{422, "PUT", "/_test/endpoints/{endpoint}", "/_test/endpoints/pods", `{"image":"i"}`, "reserved"},
		{422, "PUT", "/_test/endpoints/{endpoint}", "/_test/endpoints/e", `{"image":"i","nonsense":1}`, "validation"},
		{404, "DELETE", "/_test/faults/{id}", "/_test/faults/42", "", "no such fault"},
		{422, "POST", "/_test/endpoints/{endpoint}/script", "/_test/endpoints/e/script", `{"outcomes":[{"hang":true},{}]}`, "/outcomes/1"},
		{422, "POST", "/_test/endpoints/{endpoint}/script", "/_test/endpoints/pods/script", `{"outcomes":[]}`, "pods"},
		{404, "DELETE", "/_test/endpoints/{endpoint}/script", "/_test/endpoints/e/script", "", "script"},
		{422, "POST", "/_test/requests/find", "/_test/requests/find", `{"operation":"nonsense"}`, "nonsense"},
	} {
		got := a.ask(tt.status, tt.method, tt.route, tt.path, tt.body)
		if detail, _ := got["detail"].(string); !strings.Contains(detail, tt.says) {
			t.Errorf("%s %s: %q does not say %q", tt.path, tt.body, detail, tt.says)
		}
	}
	if code, _ := a.raw("POST", "/_test/reset", "", "Origin: http://evil.test"); code != 403 {
		t.Errorf("a request of a web page = %d, want 403", code)
	}
	if code, _ := a.raw("GET", "/v2/pods", ""); code != 404 {
		t.Errorf("the API in the admin area = %d, want 404", code)
	}
	if a := want(t, a.Server, 404, "GET", "/_test", ""); a.code != 404 {
		t.Error("the admin area is at the address of the API")
	}
}

func TestAdminDescribesEveryFault(t *testing.T) {
	a := newAdmin(t)
	for _, n := range double.FaultNames() {
		f := `{"name":"` + n.Name + `","delayMs":1,"bytes":1}`
		a.ask(200, "POST", "/_test/faults", "/_test/faults", f)
	}
	if n := len(a.ask(200, "GET", "/_test/faults", "/_test/faults", "")["faults"].([]any)); n != len(double.FaultNames()) {
		t.Errorf("%d faults are set, want all %d", n, len(double.FaultNames()))
	}
}
