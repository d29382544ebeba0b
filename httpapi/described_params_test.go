package httpapi_test

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi"
)

// A parameter is one of the served document.
type parameter struct {
	Name, In string
	Schema   struct {
		Type             any
		Enum             []string
		Minimum, Maximum *float64
		Items            *struct{ Enum []string }
	}
}

// refusedValues are values that the document does not allow.
func (p *parameter) refusedValues() (list []string) {
	if p.Schema.Minimum != nil {
		list = append(list, strconv.FormatInt(int64(*p.Schema.Minimum)-1, 10), strconv.FormatInt(int64(*p.Schema.Maximum)+1, 10), "x")
	}
	if len(p.Schema.Enum) > 0 || p.Schema.Items != nil && len(p.Schema.Items.Enum) > 0 {
		list = append(list, "no-such-value", "")
	}
	if p.Schema.Type == "boolean" {
		list = append(list, "maybe", "")
	}
	return list
}

func parametersInDocument(t *testing.T, d *described, path, method string) (list []parameter) {
	t.Helper()
	b, err := json.Marshal(d.root["paths"].(map[string]any)[path].(map[string]any)[strings.ToLower(method)].(map[string]any)["parameters"])
	if err == nil {
		err = json.Unmarshal(b, &list)
	}
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// Bounds, closed sets and flags of the query are refused as the document says.
func TestParametersOfTheDocumentAreTheServers(t *testing.T) {
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	withEndpoints(t, nil, func(w *testAPI) {
		pod := w.want(201, "POST", "/v2/pods", gpuPod, "Authorization: Bearer "+adminFree).field("id")
		private := w.want(201, "POST", "/v2/serverless", gpuEndpoint, "Authorization: Bearer "+adminFree).field("id")
		job := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+adminFree).field("id")
		gpu, cpu := url.PathEscape("NVIDIA H200"), "cpu3c"
		checked := 0
		for _, o := range httpapi.Operations() {
			if o.API == httpapi.APIWorkers || o.NotOffered != "" || o.Name == "getWorkerLogs" {
				continue // workers get no 4xx; the log has no worker here, and the parameters of the pod's
			}
			path := strings.NewReplacer("{endpoint}", "idle", "{job}", job, "/cpus/{id}", "/cpus/"+cpu, "/gpus/{id}", "/gpus/"+gpu,
				"/datacenters/{id}", "/datacenters/US-KS-2", "/pods/{id}", "/pods/"+pod, "/serverless/{id}", "/serverless/"+private).Replace(o.Path)
			for _, p := range parametersInDocument(t, d, strings.ReplaceAll(o.Path, "...}", "}"), o.Methods[0]) {
				if p.In != "query" {
					continue
				}
				for _, v := range p.refusedValues() {
					body := ""
					if o.Methods[0] == "POST" {
						body = `{"input":{}}`
					}
					a := w.call(o.Methods[0], path+"?"+p.Name+"="+v, body, "Authorization: Bearer "+operatorFree)
					checked++
					if a.status != 422 {
						t.Errorf("%s %s?%s=%s = %d %.200s, and the document refuses it", o.Methods[0], path, p.Name, v, a.status, a.body)
					}
				}
			}
		}
		if checked < 90 {
			t.Errorf("only %d values were tried", checked)
		}
	})
}

// Every name of a parameter that the handlers read is in the document.
func TestParametersOfTheServerAreInTheDocument(t *testing.T) {
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	var known []string
	for _, o := range httpapi.Operations() {
		for _, p := range parametersInDocument(t, d, strings.ReplaceAll(o.Path, "...}", "}"), o.Methods[0]) {
			known = append(known, p.Name)
		}
	}
	for name, where := range namesOfParameters(t) {
		if !slices.Contains(known, name) {
			t.Errorf("%s reads the parameter %s, which no operation of the document has", where, name)
		}
	}
}

// namesOfParameters returns the names that the handlers give to the functions of query.go.
func namesOfParameters(t *testing.T) map[string]string {
	t.Helper()
	files, err := fs.Glob(os.DirFS("."), "*.go")
	if err != nil {
		t.Fatal(err)
	}
	names, set := map[string]string{}, token.NewFileSet()
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") || file == "query.go" {
			continue
		}
		f, err := parser.ParseFile(set, file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(f, func(n ast.Node) bool {
			c, ok := n.(*ast.CallExpr)
			if !ok {
				return true
			}
			if !strings.HasPrefix(calledName(c), "query") {
				return true
			}
			for _, a := range c.Args[:min(2, len(c.Args))] {
				if lit, ok := a.(*ast.BasicLit); ok && lit.Kind == token.STRING {
					name, _ := strconv.Unquote(lit.Value)
					names[name] = file
					break
				}
			}
			return true
		})
	}
	if len(names) < 25 {
		t.Errorf("only %d names were found: %v", len(names), names)
	}
	return names
}

func calledName(c *ast.CallExpr) string {
	switch f := c.Fun.(type) {
	case *ast.Ident:
		return f.Name
	case *ast.SelectorExpr:
		return f.Sel.Name
	case *ast.IndexExpr:
		if id, ok := f.X.(*ast.Ident); ok {
			return id.Name
		}
	}
	return ""
}

// The served document has the published operations of the control API, with the members of
// bodies that the published ones require, and no others.
func TestServedDocumentAgreesWithThePublishedOne(t *testing.T) {
	d, err := describedOnce()
	if err != nil {
		t.Fatal(err)
	}
	p, err := published()
	if err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("the documents are not compared: %v", err)
	}
	for path, ops := range p.paths {
		for method, op := range ops {
			if op["operationId"] == nil {
				continue
			}
			ours, _ := at(d.root, "#/paths")[path].(map[string]any)
			mine, _ := ours[strings.ToLower(method)].(map[string]any)
			if mine["operationId"] != op["operationId"] {
				t.Errorf("%s %s is %v, published as %v", method, path, mine["operationId"], op["operationId"])
				continue
			}
			if mine["x-podyard-not-offered"] == true {
				continue
			}
			name := fmt.Sprint(op["operationId"])
			compareMembers(t, name+" request", p.root, d.root, bodyOf(p.root, op["requestBody"]), bodyOf(d.root, mine["requestBody"]))
			for status, answer := range op["responses"].(map[string]any) {
				if status[0] != '2' {
					continue
				}
				ours, ok := mine["responses"].(map[string]any)[status]
				if !ok {
					t.Errorf("%s has no answer %s", name, status)
				}
				compareMembers(t, name+" "+status, p.root, d.root, bodyOf(p.root, answer), bodyOf(d.root, ours))
			}
		}
	}
}

// bodyOf returns the JSON schema of a body or an answer.
func bodyOf(root map[string]any, node any) map[string]any {
	m, _ := node.(map[string]any)
	if ref, ok := m["$ref"].(string); ok {
		m = at(root, ref)
	}
	content, _ := m["content"].(map[string]any)
	media, _ := content["application/json"].(map[string]any)
	s, _ := media["schema"].(map[string]any)
	return s
}

// compareMembers compares the names of required members, at all depths that both have.
func compareMembers(t *testing.T, where string, theirRoot, ourRoot map[string]any, theirs, ours map[string]any) {
	t.Helper()
	want, wantMembers := requiredOf(theirRoot, theirs, 0)
	got, gotMembers := requiredOf(ourRoot, ours, 0)
	if ours == nil && theirs != nil && len(want) > 0 {
		t.Errorf("%s: no schema", where)
		return
	}
	for name := range want {
		if !got[name] && !alternatives(ours)[name] {
			t.Errorf("%s: %s is required there and not here", where, name)
		}
	}
	for name, m := range wantMembers {
		if g, ok := gotMembers[name]; ok {
			compareMembers(t, where+"/"+name, theirRoot, ourRoot, m, g)
		}
	}
	if len(wantMembers) > 0 && len(gotMembers) == 0 {
		t.Errorf("%s: has members there and none here", where)
	}
}

// alternatives are the members of which a body has one.
func alternatives(s map[string]any) map[string]bool {
	names := map[string]bool{}
	list, _ := s["anyOf"].([]any)
	for _, x := range list {
		required, _ := x.(map[string]any)["required"].([]any)
		for _, n := range required {
			names[n.(string)] = true
		}
	}
	return names
}

// requiredOf returns the required members of a schema and the schemas of all, through
// references, allOf and arrays.
func requiredOf(root, s map[string]any, depth int) (required map[string]bool, members map[string]map[string]any) {
	required, members = map[string]bool{}, map[string]map[string]any{}
	if s == nil || depth > 8 {
		return required, members
	}
	add := func(next map[string]any) {
		r, m := requiredOf(root, next, depth+1)
		for n := range r {
			required[n] = true
		}
		maps.Copy(members, m)
	}
	if ref, ok := s["$ref"].(string); ok {
		add(at(root, ref))
	}
	all, _ := s["allOf"].([]any)
	for _, x := range all {
		add(x.(map[string]any))
	}
	if items, ok := s["items"].(map[string]any); ok {
		add(items)
	}
	list, _ := s["required"].([]any)
	for _, n := range list {
		required[n.(string)] = true
	}
	props, _ := s["properties"].(map[string]any)
	for n, x := range props {
		members[n], _ = x.(map[string]any)
	}
	return required, members
}
