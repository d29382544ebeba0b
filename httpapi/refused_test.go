package httpapi_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/accounts"
)

// A refusal is a bad request and its answer. The path uses names of the fixture. The answer
// is the list of errors, or the detail if there are none.
type refusal struct {
	request string // method and path
	body    string
	status  int
	want    string
	headers []string
}

// A fixture has records of alice and bob for requests.
type fixture struct {
	*testAPI
	names *strings.Replacer
}

// newFixture creates pods that run, are locked, have ended or are bob's, registries in use
// and not in use, and jobs in several states.
func newFixture(w *testAPI) *fixture {
	pod := func(key, body string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/pods", body, "Authorization: Bearer "+key).field("id")
	}
	job := func(key, path, input string) string {
		w.t.Helper()
		return w.want(200, "POST", path, `{"input":`+input+`}`, "Authorization: Bearer "+key).field("id")
	}
	registry := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/registries", `{"name":"n","username":"u","password":"p"}`, "Authorization: Bearer "+key).field("id")
	}
	volume := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/network-volumes", `{"name":"n","size":20,"dataCenter":"US-KS-2"}`, "Authorization: Bearer "+key).field("id")
	}
	template := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/templates", `{"name":"n","image":"i"}`, "Authorization: Bearer "+key).field("id")
	}
	key := func(scopes ...string) string {
		w.t.Helper()
		r := accounts.CreateRequest{User: "admin", Scopes: scopes}
		k, _, err := w.services.Accounts.Create(w.t.Context(), accounts.Caller{Scopes: []accounts.Permission{{Area: "operator"}}}, r)
		if err != nil {
			w.t.Fatal(err)
		}
		return k.ID
	}
	schedule := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/idle/schedules", `{"cron":"0 0 1 1 *","run":{"input":{"n":1}}}`, "Authorization: Bearer "+key).field("id")
	}
	batch := func(key, body string) string {
		w.t.Helper()
		return w.want(200, "POST", "/v2/idle/batch", body, "Authorization: Bearer "+key).field("id")
	}
	secret := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/account/secrets", `{"name":"hush","value":"v"}`, "Authorization: Bearer "+key).field("id")
	}
	cluster := func(key string) string {
		w.t.Helper()
		return w.want(201, "POST", "/v2/clusters", trainingCluster, "Authorization: Bearer "+key).field("id")
	}
	ofMember := cluster(aliceFree)
	member := idsOf(w.t, w.want(200, "GET", "/v2/clusters/"+ofMember+"/pods", "", "Authorization: Bearer "+aliceFree), "pods")[1]
	used := registry(aliceFree)
	gone := pod(aliceFree, gpuPod)
	w.want(204, "DELETE", "/v2/pods/"+gone, "", "Authorization: Bearer "+aliceFree)
	locked := pod(aliceFree, gpuPod)
	w.want(200, "PATCH", "/v2/pods/"+locked, `{"locked":true}`, "Authorization: Bearer "+aliceFree)
	names := []string{
		"{locked}", locked, "{gone}", gone, "{used}", used,
		"{gpu}", pod(aliceFree, `{"name":"g","image":"i","gpu":{"id":"NVIDIA GeForce RTX 4090"},"mounts":{"persistent":{"size":20,"path":"/p"}}}`),
		"{cpu}", pod(aliceFree, `{"name":"c","image":"i","cpu":{"id":"cpu3c","vcpuCount":2},"mounts":{"network":[{"volumeId":"vol1","path":"/n"}]}}`),
		"{cluster}", cluster(aliceFree), "{bobcluster}", cluster(bobFree), "{member}", member, "{ofmember}", ofMember,
		"{plain}", pod(aliceFree, `{"name":"c","image":"i","gpu":{"id":"NVIDIA H200"},"dataCenterIds":["EU-FR-1"],"registry":"`+used+`"}`),
		"{ended}", pod(aliceFree, `{"name":"c","image":"ends","cpu":{"id":"cpu3c","vcpuCount":2}}`),
		"{failed}", pod(aliceFree, `{"name":"c","image":"fails","cpu":{"id":"cpu3c","vcpuCount":2}}`),
		"{bobs}", pod(bobFree, gpuPod),
		"{bobreg}", registry(bobFree), "{free}", registry(aliceFree),
		"{queued}", job(aliceFree, "/v2/idle/run", `{"n":1}`), "{bobjob}", job(bobFree, "/v2/idle/run", `{"n":2}`),
		"{secret}", secret(aliceFree), "{bobsecret}", secret(bobFree),
		"{bobvol}", volume(bobFree), "{vol}", volume(aliceFree),
		"{bobtpl}", template(bobFree), "{tpl}", template(aliceFree),
		"{done}", job(aliceFree, "/v2/echo/runsync", `{}`), "{unhappy}", job(aliceFree, "/v2/echo/runsync", `{"do":"fail"}`),
		"{key}", key("pods:read"), "{opkey}", key("operator"),
		"{batch}", batch(aliceFree, `[{"input":{"n":1}}]`), "{bobbatch}", batch(bobFree, `[{"input":{"n":1}}]`),
		"{begun}", batch(aliceFree, `{"requests":[{"input":{}}],"finalize":true}`), "{void}", batch(aliceFree, "[]"),
		"{schedule}", schedule(aliceFree), "{bobsched}", schedule(bobFree),
		"{bobfail}", job(bobFree, "/v2/echo/runsync", `{"do":"fail"}`),
	}
	advance(10 * time.Second)
	names = append(names, "{new}", pod(aliceFree, gpuPod)) // PROVISIONING until time passes
	return &fixture{w, strings.NewReplacer(names...)}
}

// state returns everything that clients can see.
func (f *fixture) state() string {
	var b strings.Builder
	for _, key := range []string{aliceFree, bobFree} {
		for _, path := range []string{"/v2/pods", "/v2/registries", "/v2/network-volumes", "/v2/templates", "/v2/account/ssh-keys", "/v2/account/secrets", "/v2/idle/schedules", "/v2/idle/batch"} {
			b.WriteString(f.want(200, "GET", path, "", "Authorization: Bearer "+key).body)
		}
	}
	for _, path := range []string{"/v2/idle/requests?full=true&limit=100", "/v2/echo/requests?full=true&limit=100", "/v2/idle/health", "/v2/echo/health", "/v2/account/keys"} {
		b.WriteString(f.want(200, "GET", path, "", "Authorization: Bearer "+adminFree).body)
	}
	return b.String()
}

// faults returns the errors in an answer.
func (a answer) faults(t testing.TB) string {
	t.Helper()
	var doc struct {
		Title  string   `json:"title"`
		Status int      `json:"status"`
		Detail string   `json:"detail"`
		Errors []string `json:"errors"`
		Error  *string  `json:"error"` // in the jobs API, whose clients show nothing else
	}
	if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
		t.Errorf("the answer %q is no problem document: %v", a.body, err)
	}
	if doc.Status != a.status || doc.Title == "" || doc.Detail == "" || a.header.Get("Content-Type") != "application/problem+json" {
		t.Errorf("the answer %s with status %d and type %s is no problem document", a.body, a.status, a.header.Get("Content-Type"))
	}
	if want := strings.Join(doc.Errors, "; "); doc.Error != nil && doc.Errors != nil && *doc.Error != want {
		t.Errorf("the member error is %q, want all faults: %q", *doc.Error, want)
	}
	if doc.Errors == nil {
		return doc.Detail
	}
	return strings.Join(doc.Errors, " | ")
}

// operations are the operations that refusals covers: the control API without endpoints,
// the jobs API, and reset. The description of the interface refuses nothing.
var operations = requestsOf(func(o httpapi.Operation) bool {
	return o.Scope != httpapi.ScopeNone && o.Area != httpapi.AreaEndpoints && o.API != httpapi.APIOpenAI && o.API != httpapi.APIWorkers
})

// operationOf returns the operation of a request, or "".
func operationOf(request string) string {
	for _, op := range operations {
		if matchesOperation(op, request) {
			return op
		}
	}
	return ""
}

// matchesOperation reports whether a request is for an operation.
func matchesOperation(op, request string) bool {
	request, _, _ = strings.Cut(request, "?")
	return slices.EqualFunc(strings.Split(op, "/"), strings.Split(request, "/"), func(want, got string) bool {
		return got == want || want == "{}" && got != ""
	})
}

func insideRefusals() (list []refusal) {
	for _, of := range []struct{ request, body string }{
		{"POST /v2/pods/{}/exec", `{"command":["true"]}`}, {"GET /v2/pods/{}/terminal", ""},
		{"GET /v2/pods/{}/files?path=/a", ""}, {"PUT /v2/pods/{}/files?path=/a", ""},
	} {
		for _, pod := range []string{"{bobs}", "{gone}"} {
			list = append(list, refusal{request: strings.Replace(of.request, "{}", pod, 1), body: of.body, status: 404, want: "pod not found"})
		}
		list = append(list, refusal{request: strings.Replace(of.request, "{}", "{ended}", 1), body: of.body, status: 409, want: "the pod does not run"})
	}
	return append(
		list,
		refusal{request: "POST /v2/pods/{plain}/exec", body: `{}`, status: 422, want: "/command: is required"},
		refusal{request: "POST /v2/pods/{plain}/exec", body: `{"command":["a\u0000"]}`, status: 422, want: "/command/0: must not have a zero byte"},
		refusal{request: "POST /v2/pods/{plain}/exec", body: `{"command":["a"],"timeout":1,"tty":true}`, status: 422, want: "/timeout: must be from 1000 to 600000 milliseconds | /tty: unknown property"},
		refusal{request: "GET /v2/pods/{plain}/terminal", status: 400, want: "this path is for WebSockets"},
		refusal{request: "GET /v2/pods/{plain}/terminal?columns=0", status: 422, want: "columns must be an integer from 1 to 65535"},
		refusal{request: "GET /v2/pods/{plain}/files", status: 422, want: "path: must be an absolute path"},
		refusal{request: "GET /v2/pods/{plain}/files?path=/", status: 422, want: "path: must not be the root of the pod"},
		refusal{request: "PUT /v2/pods/{plain}/files?path=a", status: 422, want: "path: must be an absolute path"},
		refusal{request: "PUT /v2/pods/{plain}/files?path=/a", body: "no archive", status: 400, want: "the body is not a whole tar archive"},
	)
}

func TestRefusedRequestsNameThePlaceAndChangeNothing(t *testing.T) {
	rows := slices.Concat(refusals(), balanceRefusals(), moreRefusals(), absentRefusals(), queryRefusals(), scheduleRefusals(), secretRefusals(), clusterRefusals(), eventRefusals(), batchRefusals(), insideRefusals())
	if len(rows) < 150 {
		t.Errorf("there are %d rows, want 150", len(rows))
	}
	covered := map[string]int{}
	bubble(t, func(w *testAPI) {
		f := newFixture(w)
		before := f.state()
		for _, row := range rows {
			covered[operationOf(row.request)]++
			method, path, _ := strings.Cut(row.request, " ")
			a := f.call(method, f.names.Replace(path), f.names.Replace(row.body), append([]string{"Authorization: Bearer " + aliceFree}, row.headers...)...)
			got := a.faults(t)
			if want := f.names.Replace(row.want); a.status != row.status || got != want {
				t.Errorf("%s %s %q\n got %d %s\nwant %d %s", row.request, short(row.body), row.headers, a.status, got, row.status, want)
			}
			if after := f.state(); after != before {
				t.Fatalf("%s %s changed\n%s\nto\n%s", row.request, short(row.body), before, after)
			}
		}
	})
	for _, op := range operations {
		if covered[op] < 3 {
			t.Errorf("%s is refused by %d rows, want 3", op, covered[op])
		}
	}
}

func short(s string) string {
	if len(s) > 200 {
		return fmt.Sprintf("%s... (%d bytes)", s[:100], len(s))
	}
	return s
}

func TestEveryOperationRefusesPathsAndMethodsThatItDoesNotHave(t *testing.T) {
	bubble(t, func(w *testAPI) {
		f := newFixture(w)
		before := f.state()
		for _, op := range operations {
			method, path, _ := strings.Cut(op, " ")
			path = strings.Replace(path, "/v2/{}/", "/v2/idle/", 1)
			path = strings.Replace(path, "{}", "some", 1)
			for _, row := range []struct {
				path string
				why  string
			}{
				{path + "/", "a trailing slash"},
				{path + "/more", "a segment too many"},
				{"/" + path, "an empty segment"},
				{strings.Replace(path, "/v", "/./v", 1), "a dot"},
				{strings.Replace(path, "/v", "/x/../v", 1), "two dots"},
				{strings.Replace(path, "/v", "/%2e/v", 1), "a dot, escaped"},
				{strings.ToUpper(path), "another case"},
				{strings.Replace(path, "/v", "/v3/v", 1), "another version"},
			} {
				if row.path == "/v2/pods/" || operationOf(method+" "+row.path) != "" {
					continue
				}
				a := f.call(method, row.path, "")
				got := a.faults(t)
				if a.status != 404 && (a.status != 405 || !strings.HasPrefix(row.path, path+"/more")) {
					t.Errorf("%s %s, with %s, = %d %s, want 404", method, row.path, row.why, a.status, got)
				}
				if a.header.Get("Location") != "" {
					t.Errorf("%s %s is redirected", method, row.path)
				}
			}
			if got := f.call(method, path+"/", "").status; got != 404 {
				t.Errorf("%s %s/ = %d, want 404", method, path, got)
			}
			for _, m := range []string{"PUT", "OPTIONS", "TRACE", "CONNECT", "BREW", "get"} {
				if operationOf(m+" "+path) != "" {
					continue
				}
				a := f.call(m, path, "")
				if a.status != 405 || a.faults(t) != "The requested method is not allowed for this path." {
					t.Errorf("%s %s = %d %s, want 405", m, path, a.status, a.body)
				}
				for allowed := range strings.SplitSeq(a.header.Get("Allow"), ", ") {
					if got := f.call(allowed, path, "", "Authorization: Bearer nobody").status; got == 405 {
						t.Errorf("%s %s = 405, and Allow has it: %s", allowed, path, a.header.Get("Allow"))
					}
				}
				if !strings.Contains(a.header.Get("Allow"), method) {
					t.Errorf("Allow of %s = %q, which lacks %s", path, a.header.Get("Allow"), method)
				}
			}
		}
		if after := f.state(); after != before {
			t.Errorf("requests that were refused changed\n%s\nto\n%s", before, after)
		}
	})
}

func TestAllowListsWhatAPathHas(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for path, want := range map[string]string{
			"/v2/pods": "GET, HEAD, POST", "/v2/pods/x": "GET, HEAD, PATCH, DELETE", "/v2/pods/x/action": "POST",
			"/v2/pods/x/logs": "GET, HEAD", "/v1/pods/x/reset": "POST", "/v2/registries": "GET, HEAD, POST",
			"/v2/registries/x": "GET, HEAD, DELETE", "/v2/templates": "GET, HEAD, POST", "/v2/templates/x": "GET, HEAD, PATCH, DELETE", "/v2/catalog/templates": "GET, HEAD",
			"/v2/network-volumes": "GET, HEAD, POST", "/v2/network-volumes/x": "GET, HEAD, PATCH, DELETE",
			"/v2/catalog/gpus": "GET, HEAD", "/v2/catalog/cpus/x": "GET, HEAD",
			"/v2/e/run": "POST", "/v2/e/runsync": "POST", "/v2/e/status/x": "GET, HEAD, POST", "/v2/e/status-sync/x": "GET, POST",
			"/v2/e/stream/x": "GET, POST", "/v2/e/cancel/x": "POST", "/v2/e/retry/x": "POST", "/v2/e/purge-queue": "POST",
			"/v2/e/batch": "GET, HEAD, POST", "/v2/e/batch/x/requests": "GET, HEAD, POST", "/v2/e/batch/x/requests/y": "DELETE", "/v2/e/batch/x/finalize": "POST", "/v2/e/batch/x/cancel": "POST",
			"/v2/e/schedules": "GET, HEAD, POST", "/v2/e/schedules/x": "GET, HEAD, PATCH, DELETE", "/v2/e/schedules/x/run": "POST",
			"/v2/e/events": "GET, HEAD",
			"/v2/e/health": "GET, HEAD", "/v2/e/requests": "GET, HEAD", "/v2/serverless/x/workers/y/logs": "GET, HEAD",
		} {
			if got := w.call("PUT", path, "").header.Get("Allow"); got != want {
				t.Errorf("Allow of %s = %q, want %q", path, got, want)
			}
		}
	})
}

func TestReservedWordsAreNoEndpoints(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for word := range strings.FieldsSeq("pods serverless templates network-volumes registries catalog billing clusters account openapi.json") {
			for _, path := range []string{"/health", "/run", "/requests", "/purge-queue"} {
				a := w.call("GET", "/v2/"+word+path, "", "Authorization: Bearer "+adminFree)
				if word == "pods" || word == "registries" || word == "serverless" || word == "network-volumes" || word == "templates" || word == "clusters" { // an id of the control API
					if a.status != 404 && a.status != 405 {
						t.Errorf("GET /v2/%s%s = %d %s", word, path, a.status, a.body)
					}
					continue
				}
				if got := a.faults(t); a.status != 404 || got != "The requested path was not found." || strings.Contains(a.body, `"error"`) {
					t.Errorf("GET /v2/%s%s = %d %s, want the control API's 404", word, path, a.status, a.body)
				}
			}
		}
	})
}

func TestProblemsOfTheJobsAPIHaveTheMemberThatSDKsRead(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for target, want := range map[string]bool{
			"/v2/nowhere/health": true, "/v2/echo/status/x": true, "/nothing": true,
			"/v2/pods/x": false, "/v1/pods/x": false, "/v2/catalog/cpus/x": false,
		} {
			var doc map[string]any
			a := w.call("GET", target, "")
			if err := json.Unmarshal([]byte(a.body), &doc); err != nil {
				t.Fatal(err)
			}
			if _, got := doc["error"]; got != want || want && doc["error"] != doc["detail"] {
				t.Errorf("GET %s = %s, want the detail as error: %v", target, a.body, want)
			}
		}
	})
}

// nest returns an input with objects nested depth levels deep.
func nest(depth int) string {
	return strings.Repeat(`{"a":`, depth-1) + "{}" + strings.Repeat("}", depth-1)
}

func TestInputMayBeTenThousandDeepWithItsEnvelope(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.want(200, "POST", "/v2/idle/run", `{"input":`+nest(9_999)+`}`)
		if a := w.want(400, "POST", "/v2/idle/run", `{"input":`+nest(10_000)+`}`); len(a.body) > 1000 {
			t.Errorf("the answer to a body that is too deep has %d bytes, want it short", len(a.body))
		}
		w.want(400, "POST", "/v2/idle/runsync", `{"input":`+nest(10_001)+`}`)
	})
}

func TestBodiesOfTheControlAPIAreJSONByTheirMediaType(t *testing.T) {
	const body = `{"name":"n","username":"u","password":"p"}`
	for media, want := range map[string]int{
		"application/json": 201, "Application/JSON": 201, "application/json; charset=utf-8": 201, "application/json;x=y": 201,
		"application/merge-patch+json": 201, "application/vnd.podyard.v2+json": 201, "": 201,
		"text/json": 415, "text/plain": 415, "image/svg+json": 415, "application/jsonx": 415, "application/x-json": 415,
		"application/x-www-form-urlencoded": 415, "json": 415, "application/json, text/plain": 415, "/": 415,
	} {
		bubble(t, func(w *testAPI) {
			a := w.call("POST", "/v2/registries", body, "Content-Type: "+media)
			if a.status != want {
				t.Errorf("a body of type %q = %d %s, want %d", media, a.status, a.body, want)
			}
		})
	}
}
