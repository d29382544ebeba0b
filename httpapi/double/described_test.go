package double_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/podyard/podyard/httpapi"
)

// schemaOf returns the schema of an answer in the document that a server serves, or nil if the
// answer has no JSON.
func schemaOf(t *testing.T, doc any, o *httpapi.Operation, method string, status int) *jsonschema.Schema {
	t.Helper()
	path := strings.ReplaceAll(o.Path, "...}", "}")
	node := doc
	for _, name := range []string{"paths", path, strings.ToLower(method), "responses", strconv.Itoa(status), "content", "application/json"} {
		m, _ := node.(map[string]any)
		if node = m[name]; node == nil && name != "content" && name != "application/json" {
			t.Fatalf("the document has no answer %d of %s", status, o.Name)
		}
	}
	if node == nil {
		return nil
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	if err := c.AddResource("mem:doc.json", doc); err != nil {
		t.Fatal(err)
	}
	escape := strings.NewReplacer("/", "~1", "{", "%7B", "}", "%7D")
	s, err := c.Compile("mem:doc.json#/paths/" + escape.Replace(path) + "/" + strings.ToLower(method) + "/responses/" + strconv.Itoa(status) + "/content/application~1json/schema")
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A success of every operation is as the served document has it. The tests of httpapi compare
// all their answers; here no operation is left out.
func TestASuccessOfEveryOperationIsAsTheServedDocumentHasIt(t *testing.T) {
	compared := map[string]bool{"getPodLogs": true, "getWorkerLogs": true, "jobEvents": true, "jobStop": true, "podTerminal": true, "getPodFiles": true, "putPodFiles": true} // streams, what a simulation has not, and an answer without a body
	var doc any
	for _, tt := range scenarios {
		if compared[tt.operation] && tt.operation != "status" {
			continue
		}
		m := everything(t)
		if doc == nil {
			var err error
			if doc, err = jsonschema.UnmarshalJSON(strings.NewReader(call(t, m.Server, http.MethodGet, "/v2/openapi.json", "").body)); err != nil {
				t.Fatal(err)
			}
		}
		o := httpapi.Operations().Named(tt.operation)
		if tt.status >= http.StatusBadRequest {
			continue
		}
		a := call(t, m.Server, tt.method, m.fill(tt.path), m.fill(tt.body))
		compared[tt.operation] = true
		s := schemaOf(t, doc, o, tt.method, a.code)
		if s == nil {
			continue
		}
		v, err := jsonschema.UnmarshalJSON(strings.NewReader(a.body))
		if err == nil {
			err = s.Validate(v)
		}
		if err != nil {
			t.Errorf("%s %s = %d %.300s is not as the document has it: %v", tt.method, tt.path, a.code, a.body, err)
		}
	}
	// Successes that the double does not have, which the tests of httpapi and of the server
	// compare.
	for _, name := range []string{"reload", "deleteUser", "redriveDeadLetter", "deleteDeadLetter", "getDeadLetter", "stopWorker", "getEndpointBuild"} {
		compared[name] = true
	}
	for _, o := range httpapi.Operations() {
		if o.NotOffered == "" && o.API != httpapi.APIBalance && !compared[o.Name] { // the double has no workers for it
			t.Errorf("no success of %s was compared", o.Name)
		}
	}
}
