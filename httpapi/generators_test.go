package httpapi_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/podyard/podyard/httpapi"
)

// Generators of clients make a type of each body. One with a default becomes required, and an object
// without a word on its members takes none: then nobody can submit a job. oapi-codegen makes nothing at
// all of a document in which a value has two types beside null, unless they stand in anyOf.
func TestBodiesOfRequestsCanBeFilledInByGeneratedClients(t *testing.T) {
	doc := map[string]any{}
	rec := httptest.NewRecorder()
	httpapi.New(allServices(), nil).ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/v2/openapi.json", nil))
	if err := json.Unmarshal(rec.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	bodies, inputs := 0, 0
	var look func(at string, v any)
	look = func(at string, v any) {
		switch v := v.(type) {
		case []any:
			for _, x := range v {
				look(at, x)
			}
		case map[string]any:
			types, _ := v["type"].([]any)
			if v["type"] == "object" || slices.Contains(types, any("object")) {
				_, listed := v["properties"]
				if open := v["additionalProperties"]; !listed && (open == nil || open == false) {
					t.Errorf("%s is an object that takes no members", at)
				}
			}
			if len(types) > 2 || len(types) == 2 && !slices.Contains(types, any("null")) {
				t.Errorf("%s has the types %v: want anyOf", at, types)
			}
			if _, ok := v["default"]; ok {
				t.Errorf("%s has a default", at)
			}
			for name, x := range v {
				if name == "input" {
					inputs++
				}
				look(at+"/"+name, x)
			}
		}
	}
	paths, _ := doc["paths"].(map[string]any)
	for path, methods := range paths {
		for method, op := range methods.(map[string]any) {
			op, _ := op.(map[string]any)
			if body, ok := op["requestBody"]; ok {
				bodies++
				look(method+" "+path, body)
			}
		}
	}
	components, _ := doc["components"].(map[string]any)
	look("components", components["schemas"])
	if bodies < 30 || inputs == 0 {
		t.Errorf("%d bodies with %d inputs were looked at", bodies, inputs)
	}
}
