package httpapi_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/podyard/podyard/serverless/endpoints"
)

// deviations are answers that the published description does not have, each with the
// reason. All other answers must match the description.
var deviations = []struct {
	status int
	reason string
}{
	{405, "the description has the component and names it nowhere; default covers it"},
	{413, "sizes are a limit of ours (docs/decisions.md 10); default covers it"},
	{415, "media types are looked at (docs/decisions.md 10); default covers it"},
}

// A description is the OpenAPI document of the control API.
type description struct {
	compiler *jsonschema.Compiler
	paths    map[string]map[string]map[string]any // path, method, operation
	root     map[string]any

	mu      sync.Mutex                    // tests have concurrent callers, a compiler has one
	schemas map[string]*jsonschema.Schema // by location
}

// publishedDocument reads the published description and adds what is newer. If it is missing, the
// error names the place.
func publishedDocument() (map[string]any, error) {
	file := filepath.Join("..", "..", "shared", "spec", "openapi-v2.json")
	if dir := os.Getenv("PODYARD_SPEC"); dir != "" {
		file = filepath.Join(dir, "openapi-v2.json")
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	if b, err = os.ReadFile(filepath.Join("testdata", "newer.json")); err != nil {
		return nil, err
	}
	var changes []change
	if err := json.Unmarshal(b, &changes); err != nil {
		return nil, err
	}
	for _, c := range changes {
		if err := c.apply(doc); err != nil {
			return nil, err
		}
	}
	return doc.(map[string]any), nil
}

// A change is a difference between the description that was published as a file and the public API
// since. testdata/newer.json has all of them.
type change struct {
	Why   string `json:"why"`
	At    string `json:"at"` // a JSON pointer
	Value any    `json:"value"`
}

// apply sets the member at c.At of doc; a list there gets the value at its end.
func (c *change) apply(doc any) error {
	unescape := strings.NewReplacer("~1", "/", "~0", "~")
	set := func(any) {}
	for name := range strings.SplitSeq(strings.TrimPrefix(c.At, "/"), "/") {
		switch parent := doc.(type) {
		case map[string]any:
			name = unescape.Replace(name)
			doc, set = parent[name], func(v any) { parent[name] = v }
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i >= len(parent) {
				return fmt.Errorf("the change at %s has no place in the description", c.At)
			}
			doc, set = parent[i], func(v any) { parent[i] = v }
		default:
			return fmt.Errorf("the change at %s has no place in the description", c.At)
		}
	}
	if list, ok := doc.([]any); ok {
		c.Value = append(list, c.Value)
	}
	set(c.Value)
	return nil
}

const documentURL = "mem:openapi.json"

// published reads the description.
var published = sync.OnceValues(func() (*description, error) {
	doc, err := publishedDocument()
	if err != nil {
		return nil, err
	}
	d := &description{compiler: jsonschema.NewCompiler(), schemas: map[string]*jsonschema.Schema{}, root: doc}
	if err := d.compiler.AddResource(documentURL, doc); err != nil {
		return nil, err
	}
	d.compiler.AssertFormat()
	d.paths = map[string]map[string]map[string]any{}
	for path, ops := range d.root["paths"].(map[string]any) {
		d.paths[path] = map[string]map[string]any{}
		for method, op := range ops.(map[string]any) {
			if m, ok := op.(map[string]any); ok {
				d.paths[path][strings.ToUpper(method)] = m
			}
		}
	}
	return d, nil
})

func TestDescriptionOfTheControlAPIIsThere(t *testing.T) {
	_, err := published()
	switch {
	case err == nil:
	case os.Getenv("PODYARD_CI") == "1":
		t.Errorf("answers cannot be compared with the published description: %v", err)
	default:
		t.Skipf("answers are not compared with the published description: %v", err)
	}
}

// checkOpenAPI compares the status, media type and body of an answer of the control API
// with the published description.
func checkOpenAPI(t testing.TB, method, target string, a answer) {
	if strings.Contains(target, "owner=") {
		return // an addition: the items have owners
	}
	t.Helper()
	d, err := published()
	path, _, _ := strings.Cut(target, "?")
	if err != nil || method == "HEAD" {
		return
	}
	template, ops := d.find(path)
	if ops == nil {
		return
	}
	op := ops[method]
	if op == nil {
		if a.status != 405 && a.status != 404 {
			t.Errorf("%s %s = %d: the description has no such operation", method, path, a.status)
		}
		return
	}
	if err := d.check(template, strings.ToLower(method), op, a); err != nil {
		t.Errorf("%s %s = %d is not as the description has it: %v\n%s", method, target, a.status, err, a.body)
	}
}

// find returns the path of the description that matches. A path without parameters has
// precedence.
func (d *description) find(path string) (string, map[string]map[string]any) {
	if ops, ok := d.paths[path]; ok {
		return path, ops
	}
	got := strings.Split(path, "/")
	for template, ops := range d.paths {
		want := strings.Split(template, "/")
		same := len(want) == len(got)
		for i := 0; same && i < len(want); i++ {
			same = want[i] == got[i] || strings.HasPrefix(want[i], "{") && got[i] != ""
		}
		if same && isControlPath(path) {
			return template, ops
		}
	}
	return "", nil
}

// isControlPath reports whether a path belongs to the control API and not to an endpoint.
func isControlPath(path string) bool {
	area, _, _ := strings.Cut(strings.TrimPrefix(path, "/v2/"), "/")
	return endpoints.IsReserved(area)
}

func (d *description) check(template, method string, op map[string]any, a answer) error {
	responses := op["responses"].(map[string]any)
	key := strconv.Itoa(a.status)
	if _, ok := responses[key]; !ok {
		key = "default"
		if a.status < 400 {
			return errors.New("the status is not documented")
		}
	}
	at := []string{"paths", template, method, "responses", key}
	node := responses[key].(map[string]any)
	if ref, ok := node["$ref"].(string); ok {
		at = strings.Split(strings.TrimPrefix(ref, "#/"), "/")
		node = d.root[at[0]].(map[string]any)[at[1]].(map[string]any)[at[2]].(map[string]any)
	}
	content, _ := node["content"].(map[string]any)
	if content == nil {
		if a.body != "" {
			return errors.New("there is a body where the description has none")
		}
		return nil
	}
	media := a.header.Get("Content-Type")
	if _, ok := content[media]; !ok {
		return errors.New("media type " + media)
	}
	if media == "text/event-stream" {
		return nil
	}
	return d.validate(append(at, "content", media, "schema"), a.body)
}

func (d *description) validate(at []string, body string) error {
	sch, err := d.schema(at)
	if err != nil {
		return err
	}
	v, err := jsonschema.UnmarshalJSON(strings.NewReader(body))
	if err != nil {
		return err
	}
	return sch.Validate(v)
}

func (d *description) schema(at []string) (*jsonschema.Schema, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	escape := strings.NewReplacer("~", "~0", "/", "~1", "{", "%7B", "}", "%7D")
	loc := documentURL + "#"
	for _, s := range at {
		loc += "/" + escape.Replace(s)
	}
	if s := d.schemas[loc]; s != nil {
		return s, nil
	}
	s, err := d.compiler.Compile(loc)
	d.schemas[loc] = s
	return s, err
}

func TestDeviationsFromTheDescriptionAreProblemsWithAReason(t *testing.T) {
	bubble(t, func(w *testAPI) {
		got := map[int]answer{
			405: w.call("PUT", "/v2/pods", ""),
			413: w.call("POST", "/v2/registries", strings.Repeat(" ", 1<<20+1)),
			415: w.call("POST", "/v2/registries", "x", "Content-Type: text/plain"),
		}
		for _, d := range deviations {
			var doc struct {
				Title  string `json:"title"`
				Status int    `json:"status"`
				Detail string `json:"detail"`
			}
			a := got[d.status]
			if err := json.Unmarshal([]byte(a.body), &doc); err != nil || a.status != d.status || doc.Status != d.status || doc.Title == "" || doc.Detail == "" {
				t.Errorf("the answer with %d (%s) is %d %s", d.status, d.reason, a.status, a.body)
			}
		}
	})
}
