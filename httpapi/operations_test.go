package httpapi_test

import (
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/ratelimit"
)

// requestsOf returns the operations that keep accepts, once for each method, with
// placeholders as {}.
func requestsOf(keep func(httpapi.Operation) bool) (list []string) {
	for _, o := range httpapi.Operations() {
		if !keep(o) {
			continue
		}
		for _, m := range o.Methods {
			list = append(list, m+" "+blank(o.Path))
		}
	}
	return list
}

// blank replaces the placeholders of a path by {}.
func blank(path string) string {
	segments := strings.Split(path, "/")
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			segments[i] = "{}"
		}
	}
	return strings.Join(segments, "/")
}

func TestEveryOperationHasItsRow(t *testing.T) {
	var unlimited []string
	names := map[string]bool{}
	for _, o := range httpapi.Operations() {
		if o.Name == "" || names[o.Name] {
			t.Errorf("the name %q is empty or there twice", o.Name)
		}
		names[o.Name] = true
		if o.API == "" || o.Area == "" || o.Scope == "" || len(o.Methods) == 0 || !strings.HasPrefix(o.Path, "/v") && o.API != httpapi.APIBalance {
			t.Errorf("%s lacks a part of its row: %+v", o.Name, o)
		}
		if (o.Limit == httpapi.LimitRate) != (o.Rate != ratelimit.Unlimited) {
			t.Errorf("%s has limit %q and rate %q", o.Name, o.Limit, o.Rate)
		}
		counted := o.API == httpapi.APIControl || o.API == httpapi.APILegacy
		switch {
		case (counted && o.Scope != httpapi.ScopeNone) != (o.Limit == httpapi.LimitWindows), o.Limit == "":
			t.Errorf("%s of the API %s has limit %q", o.Name, o.API, o.Limit)
		case o.Limit == httpapi.LimitNone && o.API != httpapi.APIWorkers:
			unlimited = append(unlimited, o.Name)
		}
		if (o.API == httpapi.APIWorkers) != (o.Scope == httpapi.ScopeWorker) {
			t.Errorf("%s of the API %s has scope %q", o.Name, o.API, o.Scope)
		}
		if o.SideEffects && !slices.Contains(o.Methods, "GET") {
			t.Errorf("%s has no GET to have side effects", o.Name)
		}
	}
	// These have no rate (docs/decisions.md 33, 46).
	if diff := cmp.Diff([]string{"openapi", "retry", "health", "metrics"}, unlimited); diff != "" {
		t.Errorf("operations of the jobs API without a limit (-want +got):\n%s", diff)
	}
}

func TestOperationsAreTheCallers(t *testing.T) {
	ops := httpapi.Operations()
	ops[0].Name, ops[0].Methods[0] = "changed", "BREW"
	if o := httpapi.Operations()[0]; o.Name != "listPods" || o.Methods[0] != "GET" {
		t.Errorf("a caller changed the table: %+v", o)
	}
	if o := ops.Named("run"); o == nil || o.Path != "/v2/{endpoint}/run" {
		t.Errorf("Named(run) = %+v", o)
	}
	if o := ops.Named("jump"); o != nil {
		t.Errorf("Named(jump) = %+v, want none", o)
	}
}

// The table has the control API of the published description, name by name. All other
// operations of the control API are marked as additions.
func TestTableHasThePublishedOperations(t *testing.T) {
	doc, err := publishedDocument()
	if err != nil {
		if os.Getenv("PODYARD_CI") == "1" {
			t.Fatal(err)
		}
		t.Skipf("the table is not compared with the published description: %v", err)
	}
	want, got := map[string]string{}, map[string]string{}
	for path, methods := range doc["paths"].(map[string]any) {
		for method, op := range methods.(map[string]any) {
			if o, ok := op.(map[string]any); ok { // otherwise it is what the methods share
				want[o["operationId"].(string)] = strings.ToUpper(method) + " " + blank(path)
			}
		}
	}
	for _, o := range httpapi.Operations() {
		if o.API == httpapi.APIControl && !o.Added {
			got[o.Name] = o.Methods[0] + " " + blank(o.Path)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("operations of the control API (-published +table):\n%s", diff)
	}
}

// For random paths and methods, the handlers know an operation if and only if Find does.
// Without a key, an operation answers 401, or 200 if it needs no key, and nothing else does.
func TestOnlyTheTableIsServed(t *testing.T) {
	suite.SkipUnlessLong(t)
	bubble(t, func(w *testAPI) {
		whole := httpapi.New(w.services, nil)
		ops := httpapi.Operations()
		random := rand.New(rand.NewPCG(1, 2))
		words := vocabulary(ops)
		found := map[string]bool{}
		for range 60_000 {
			method, path := someRequest(random, ops, words)
			u, err := url.ParseRequestURI(path)
			if err != nil {
				t.Fatal(err)
			}
			o, values := ops.Find(method, u)
			r := httptest.NewRequest(method, "/", nil)
			r.URL = u
			rec := httptest.NewRecorder()
			whole.ServeHTTP(rec, r)
			if (rec.Code == http.StatusUnauthorized || rec.Code == http.StatusOK) != (o != nil) {
				t.Fatalf("%s %s = %d %s, and the operation is %+v", method, path, rec.Code, rec.Body, o)
			}
			if o == nil {
				continue
			}
			found[o.Name] = true
			if back := fill(o.Path, values); back != u.Path {
				t.Fatalf("%s with %q is %s, want %s", o.Path, values, back, u.Path)
			}
		}
		for _, o := range ops {
			if !found[o.Name] {
				t.Errorf("no request found %s", o.Name)
			}
		}
	})
}

// vocabulary returns the path segments of the table, and some other segments.
func vocabulary(ops httpapi.OperationTable) []string {
	words := []string{"x", "a%2Fb", "%2e", "..", "", "v3", "account", "openapi.json", "p%6Fds"}
	for _, o := range ops {
		for s := range strings.SplitSeq(o.Path, "/") {
			if !strings.HasPrefix(s, "{") {
				words = append(words, s)
			}
		}
	}
	slices.Sort(words)
	return slices.Compact(words)
}

// someRequest returns a request to an operation, as it should be or with a segment
// replaced, added or removed.
func someRequest(random *rand.Rand, ops httpapi.OperationTable, words []string) (method, path string) {
	some := func(list []string) string { return list[random.IntN(len(list))] }
	o := ops[random.IntN(len(ops))]
	segments := strings.Split(o.Path, "/")[1:]
	for i, s := range segments {
		if strings.HasPrefix(s, "{") {
			segments[i] = some(words)
			if random.IntN(2) == 0 {
				segments[i] = "some"
			}
		}
	}
	switch random.IntN(6) {
	case 0:
		segments[random.IntN(len(segments))] = some(words)
	case 1:
		segments = slices.Insert(segments, random.IntN(len(segments)+1), some(words))
	case 2:
		i := random.IntN(len(segments))
		segments = slices.Delete(segments, i, i+1)
	}
	method = some([]string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "get"})
	if random.IntN(2) == 0 {
		method = o.Methods[0]
	}
	return method, "/" + strings.Join(segments, "/")
}

// fill replaces the placeholders of a pattern by values.
func fill(pattern string, values map[string]string) string {
	for name, v := range values {
		pattern = strings.ReplaceAll(pattern, "{"+name+"...}", v)
		pattern = strings.ReplaceAll(pattern, "{"+name+"}", v)
	}
	return pattern
}
