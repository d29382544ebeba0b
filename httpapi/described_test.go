package httpapi_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// allServices are services that are only there.
func allServices() httpapi.Services {
	return httpapi.Services{
		Pods: new(pods.Service), Registries: new(registries.Service), Jobs: serverless.New(memory.NewJobs(), memory.NewEndpoints(), withSchedules(&serverless.Options{}, nil)), Volumes: new(volumes.Service),
		Templates: new(templates.Service), SSHKeys: new(sshkeys.Service), Secrets: new(secrets.Service), Accounts: new(accounts.Service), Billing: new(billing.Service),
		Budgets: budget.NewLedger(nil),
	}
}

// A described is the document that the server serves. In closed, no answer may have members
// that the document does not have; owned is closed for the lists of an operator who names an
// owner.
type described struct {
	root          map[string]any
	closed, owned map[string]any

	mu        sync.Mutex
	compilers map[string]*jsonschema.Compiler
	schemas   map[string]*jsonschema.Schema // by variant and pointer
}

var operationTable = sync.OnceValue(httpapi.Operations)

var describedOnce = sync.OnceValues(func() (*described, error) {
	rec := httptest.NewRecorder()
	httpapi.New(allServices(), nil).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v2/openapi.json", nil))
	d := &described{schemas: map[string]*jsonschema.Schema{}, compilers: map[string]*jsonschema.Compiler{}}
	for _, doc := range []*map[string]any{&d.root, &d.closed, &d.owned} {
		if err := json.Unmarshal(rec.Body.Bytes(), doc); err != nil {
			return nil, fmt.Errorf("%d %s: %w", rec.Code, rec.Body, err)
		}
	}
	for _, doc := range []map[string]any{d.closed, d.owned} {
		closeAnswers(doc, doc["components"].(map[string]any)["responses"], map[string]bool{})
		for _, ops := range doc["paths"].(map[string]any) {
			for _, op := range ops.(map[string]any) {
				closeAnswers(doc, op.(map[string]any)["responses"], map[string]bool{})
			}
		}
	}
	ownItems(d.owned)
	for variant, doc := range map[string]map[string]any{"root": d.root, "closed": d.closed, "owned": d.owned} {
		c := jsonschema.NewCompiler()
		c.AssertFormat()
		if err := c.AddResource("mem:"+variant+".json", doc); err != nil {
			return nil, err
		}
		d.compilers[variant] = c
	}
	return d, nil
})

// closeAnswers allows no members beside those that a schema names.
func closeAnswers(doc map[string]any, node any, seen map[string]bool) {
	switch x := node.(type) {
	case []any:
		for _, v := range x {
			closeAnswers(doc, v, seen)
		}
	case map[string]any:
		if ref, ok := x["$ref"].(string); ok && !seen[ref] {
			seen[ref] = true
			closeAnswers(doc, at(doc, ref), seen)
		}
		if _, ok := x["properties"].(map[string]any); ok && x["additionalProperties"] == nil {
			x["additionalProperties"] = false
		}
		for _, name := range slices.Sorted(maps.Keys(x)) {
			closeAnswers(doc, x[name], seen)
		}
	}
}

// ownItems gives lists the items of an operator who names an owner.
func ownItems(node any) {
	switch x := node.(type) {
	case []any:
		for _, v := range x {
			ownItems(v)
		}
	case map[string]any:
		if items, ok := x["x-podyard-items"]; ok {
			x["items"] = items
		}
		for _, v := range x {
			ownItems(v)
		}
	}
}

// at returns what a reference within the document names.
func at(doc map[string]any, ref string) map[string]any {
	for name := range strings.SplitSeq(strings.TrimPrefix(ref, "#/"), "/") {
		doc, _ = doc[name].(map[string]any)
	}
	return doc
}

// operation returns the operation of a request and its path in the document.
func (d *described) operation(method, target string) (path string, op map[string]any) {
	target, _, _ = strings.Cut(target, "?")
	r := httptest.NewRequest(method, "http://podyard.test"+target, nil)
	o, _ := operationTable().Find(method, r.URL)
	if o == nil || method == "HEAD" {
		return "", nil
	}
	path = strings.ReplaceAll(o.Path, "...}", "}")
	op, _ = d.root["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(method)].(map[string]any)
	return path, op
}

// schema compiles the schema at a place of a variant of the document.
func (d *described) schema(variant string, place ...string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	loc := "mem:" + variant + ".json#"
	for _, s := range place {
		loc += "/" + escape.Replace(s)
	}
	if s := d.schemas[loc]; s != nil {
		return s, nil
	}
	s, err := d.compilers[variant].Compile(loc)
	d.schemas[loc] = s
	return s, err
}

// body returns the schema of the bodies of an operation; nil if it has none.
func (d *described) body(method, target string) (*jsonschema.Schema, error) {
	path, op := d.operation(method, target)
	if op["requestBody"] == nil {
		return nil, nil
	}
	return d.schema("root", "paths", path, strings.ToLower(method), "requestBody", "content", "application/json", "schema")
}

// accepts reports whether the document allows a body. It has no opinion on what is not JSON.
func (d *described) accepts(t testing.TB, method, target, body string) error {
	t.Helper()
	s, err := d.body(method, target)
	if err != nil {
		t.Fatal(err)
	}
	if s == nil || !json.Valid([]byte(body)) {
		return nil
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return s.Validate(v)
}

// checkDescribed compares a request that was not refused, and every answer, with the served
// document.
func checkDescribed(t testing.TB, method, target, body string, a answer) {
	t.Helper()
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	path, op := d.operation(method, target)
	if op == nil {
		return
	}
	dropped := strings.HasPrefix(a.body, `{"accepted":false`) // reports of workers are refused so
	if err := d.accepts(t, method, target, body); err != nil && a.status < 300 && !dropped {
		t.Errorf("%s %s = %d, and the document refuses the body %.200s: %v", method, target, a.status, body, err)
	}
	if err := d.answers(path, strings.ToLower(method), op, strings.Contains(target, "owner="), a); err != nil {
		t.Errorf("%s %s = %d is not as the document has it: %v\n%.500s", method, target, a.status, err, a.body)
	}
}

func (d *described) answers(path, method string, op map[string]any, owned bool, a answer) error {
	responses := op["responses"].(map[string]any)
	key := strconv.Itoa(a.status)
	if responses[key] == nil {
		key = "default"
	}
	if key == "default" && a.status < 400 && a.status != http.StatusNotModified {
		return fmt.Errorf("the status is not documented")
	}
	place := []string{"paths", path, method, "responses", key}
	response := responses[key].(map[string]any)
	if ref, ok := response["$ref"].(string); ok {
		place, response = strings.Split(ref, "/")[1:], at(d.root, ref)
	}
	content, _ := response["content"].(map[string]any)
	if content == nil || a.status == http.StatusNotModified {
		if a.body != "" {
			return fmt.Errorf("there is a body where the document has none")
		}
		return nil
	}
	media := a.header.Get("Content-Type")
	switch {
	case strings.Contains(path, "/openai/"):
		return nil // the worker's answers
	case content[media] == nil:
		return fmt.Errorf("media type %q", media)
	case media == "text/event-stream":
		return nil
	}
	variant := "closed"
	if owned {
		variant = "owned"
	}
	s, err := d.schema(variant, append(place, "content", media, "schema")...)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
	if err != nil {
		return err
	}
	return s.Validate(v)
}

func TestEveryOperationIsInTheServedDocument(t *testing.T) {
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string]bool{}, map[string]bool{}
	for _, o := range httpapi.Operations() {
		for _, m := range o.Methods {
			path := strings.ReplaceAll(o.Path, "...}", "}")
			want[m+" "+path] = o.Added
			op, _ := at(d.root, "#/paths")[path].(map[string]any)[strings.ToLower(m)].(map[string]any)
			if op["summary"] == "" || op["summary"] == nil {
				t.Errorf("%s has no summary: it needs a row in the functions that descriptions joins", o.Name)
			}
			checkParameters(t, o, op)
			if o.NotOffered != "" {
				continue
			}
			success := slices.ContainsFunc(slices.Collect(maps.Keys(op["responses"].(map[string]any))), func(s string) bool { return s[0] == '2' || s == "101" })
			if !success {
				t.Errorf("%s has no successful answer", o.Name)
			}
		}
	}
	ids := map[any]bool{}
	for path, ops := range at(d.root, "#/paths") {
		for m, op := range ops.(map[string]any) {
			op := op.(map[string]any)
			got[strings.ToUpper(m)+" "+path] = op["x-podyard"] == true
			if ids[op["operationId"]] {
				t.Errorf("the operationId %v is there twice", op["operationId"])
			}
			ids[op["operationId"]] = true
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations, and which are additions (-table +document):\n%s", diff)
	}
}

// checkParameters checks that an operation has the placeholders of its path, and that a key
// is required if and only if its scope says so.
func checkParameters(t *testing.T, o httpapi.Operation, op map[string]any) {
	t.Helper()
	var inPath, want []string
	params, _ := op["parameters"].([]any)
	for _, p := range params {
		p := p.(map[string]any)
		if p["in"] == "path" {
			inPath = append(inPath, "{"+p["name"].(string)+"}")
		}
	}
	for s := range strings.SplitSeq(o.Path, "/") {
		if strings.HasPrefix(s, "{") {
			want = append(want, strings.ReplaceAll(s, "...}", "}"))
		}
	}
	if diff := cmp.Diff(want, inPath); diff != "" {
		t.Errorf("%s: parameters of the path (-table +document):\n%s", o.Name, diff)
	}
	if keyless := len(op["security"].([]any)) == 0; keyless != (o.Scope == httpapi.ScopeNone) {
		t.Errorf("%s: needs no key = %t, and its scope is %q", o.Name, keyless, o.Scope)
	}
}

func TestServedDocumentNeedsNoKeyAndIsAskedForAgain(t *testing.T) {
	bubble(t, func(w *testAPI) {
		a := w.want(200, "GET", "/v2/openapi.json", "", "Authorization:")
		etag := a.header.Get("ETag")
		if etag == "" || a.header.Get("Cache-Control") != "public, max-age=300" || a.header.Get("RateLimit") != "" {
			t.Errorf("headers of the document: %v", a.header)
		}
		same := w.want(304, "GET", "/v2/openapi.json", "", "Authorization:", `If-None-Match: "x", `+etag)
		if same.body != "" || same.header.Get("ETag") != etag {
			t.Errorf("the answer to a known ETag is %+v", same)
		}
		w.want(200, "GET", "/v2/openapi.json?owner=x", "", "Authorization: Bearer nobody")
	})
}

func TestServedDocumentHasWhatTheServerServes(t *testing.T) {
	all := allServices()
	rec := httptest.NewRecorder()
	httpapi.NewControl(httpapi.Services{Registries: all.Registries}, &httpapi.Options{PublicURL: "https://pods.example.com/"}).
		ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v2/openapi.json", nil))
	var doc struct {
		Servers []map[string]string
		Paths   map[string]any
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	want := []string{"/v2/openapi.json", "/v2/registries", "/v2/registries/delegations", "/v2/registries/delegations/{id}", "/v2/registries/{id}"}
	if diff := cmp.Diff(want, slices.Sorted(maps.Keys(doc.Paths))); diff != "" {
		t.Errorf("paths of a server of credentials (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]map[string]string{{"url": "https://pods.example.com"}}, doc.Servers); diff != "" {
		t.Errorf("servers (-want +got):\n%s", diff)
	}
}

// schemaFaults are the beginnings of faults that a schema can express.
var schemaFaults = []string{
	"must be a string", "must be an object", "must be an array", "must be an integer", "must be true or false", "is required",
	"unknown property", "must not be empty", "must be one of", "must have at least 1", "must be a number", "is there twice",
}

// What the document refuses, the server refuses, and the other way round for faults that a
// schema can express. Bounds count as these too, for all members that the document bounds.
func TestDocumentRefusesWhatTheServerRefuses(t *testing.T) {
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	checked, allowed := 0, 0
	for _, r := range slices.Concat(refusals(), moreRefusals(), absentRefusals(), queryRefusals(), endpointRefusals()) {
		method, target, _ := strings.Cut(r.request, " ")
		refused := d.accepts(t, method, target, r.body)
		if refused != nil && (r.status < 400 || r.status >= 500) {
			t.Errorf("%s %s: the document refuses what answers %d: %v", r.request, r.body, r.status, refused)
		}
		if refused != nil {
			checked++
		}
		if r.status != 422 || r.body == "" || refused != nil {
			continue
		}
		allowed++
		for fault := range strings.SplitSeq(r.want, " | ") {
			_, text, ok := strings.Cut(fault, ": ")
			for _, begin := range schemaFaults {
				if ok && strings.HasPrefix(text, begin) {
					t.Errorf("%s %.300s: the document allows what is refused as %s", r.request, r.body, fault)
				}
			}
		}
	}
	if checked < 100 || allowed > checked {
		t.Errorf("the document refuses %d bodies, and allows %d that are refused with 422", checked, allowed)
	}
}
