package problem_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/podyard/podyard/problem"
)

var order = []string{"name", "image", "gpu", "gpu/id", "gpu/count", "ports", "mounts"}

func TestNoViolationsAreNoError(t *testing.T) {
	var v problem.Violations
	if err := v.Err(order); err != nil {
		t.Errorf("Err of the zero value = %v", err)
	}
	if err := (*problem.Violations)(nil).Err(order); err != nil {
		t.Errorf("Err of nil = %v", err)
	}
}

func TestViolationsComeInTheOrderOfTheDocumentedFields(t *testing.T) {
	var v problem.Violations
	for _, path := range []string{"/zebra", "/ports/10", "/ports/2", "/gpu/count", "/gpu/colour", "/apple", "/gpu/id", "/name"} {
		v.Add(problem.Invalid, path, "bad")
	}
	want := []string{
		"/name: bad", // in the order of the fields,
		"/gpu/colour: bad",
		"/gpu/id: bad",
		"/gpu/count: bad",
		"/ports/10: bad", // those within one field as they were found,
		"/ports/2: bad",
		"/zebra: bad", // and those of no field last
		"/apple: bad",
	}
	if diff := cmp.Diff(want, problem.Of(v.Err(order)).Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestFieldIsNotConfusedWithOneThatBeginsLikeIt(t *testing.T) {
	var v problem.Violations
	v.Add(problem.Invalid, "/portsmouth", "unknown property")
	v.Add(problem.Invalid, "/mounts", "must be an object")
	want := []string{"/mounts: must be an object", "/portsmouth: unknown property"}
	if diff := cmp.Diff(want, problem.Of(v.Err(order)).Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
	if v.Has("/mountsx") || v.Has("/mount") {
		t.Error("a fault at /mounts is seen at a field whose name begins like it, or that it begins like")
	}
}

func TestFaultsOfTheSchemaHideRulesAcrossFields(t *testing.T) {
	var v problem.Violations
	v.Add(problem.BadRequest, "/gpu", "exactly one of gpu and cpu must be set")
	v.Add(problem.BadRequest, "/mounts", "only one kind of mount")
	rules := problem.Of(v.Err(order))
	want := problem.Document{
		Title: "Bad Request", Status: 400,
		Detail: "/gpu: exactly one of gpu and cpu must be set; /mounts: only one kind of mount",
		Errors: []string{"/gpu: exactly one of gpu and cpu must be set", "/mounts: only one kind of mount"},
	}
	if diff := cmp.Diff(want, rules); diff != "" {
		t.Errorf("rules across fields alone (-want +got):\n%s", diff)
	}
	v.Add(problem.Invalid, "/name", "is required")
	want = problem.Document{
		Title: "Unprocessable Entity", Status: 422, Detail: "Request validation failed.",
		Errors: []string{"/name: is required"},
	}
	if diff := cmp.Diff(want, problem.Of(v.Err(order))); diff != "" {
		t.Errorf("with a fault of the schema (-want +got):\n%s", diff)
	}
}

func TestFirstFaultOfAPlaceWins(t *testing.T) {
	var v problem.Violations
	v.Add(problem.Invalid, "/gpu", "must be an object")
	v.Add(problem.Invalid, "/gpu", "is required")
	v.Add(problem.Invalid, "/gpu/id", "is required") // within a place that has one
	v.Add(problem.BadRequest, "/gpu/count", "too many")
	if diff := cmp.Diff([]string{"/gpu: must be an object"}, problem.Of(v.Err(order)).Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestFaultOfTheWholeBodyHidesNoField(t *testing.T) {
	var v problem.Violations
	v.Add(problem.Invalid, "", "must have at least 1 property")
	v.Add(problem.Invalid, "/name", "is required")
	want := []string{"/name: is required", "must have at least 1 property"}
	if diff := cmp.Diff(want, problem.Of(v.Err(order)).Errors); diff != "" {
		t.Errorf("errors (-want +got):\n%s", diff)
	}
}

func TestErrLeavesTheViolationsAsTheyWere(t *testing.T) {
	var v problem.Violations
	v.Add(problem.BadRequest, "/ports", "b")
	v.Add(problem.Invalid, "/image", "a")
	first := problem.Of(v.Err(order))
	v.Add(problem.Invalid, "/name", "c")
	second := problem.Of(v.Err(order))
	if len(first.Errors) != 1 || len(second.Errors) != 2 {
		t.Errorf("errors = %q, then with one more %q", first.Errors, second.Errors)
	}
}

func TestOneFaultAPlaceWhateverIsAdded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var v problem.Violations
		places := map[string]string{} // what was said first
		for i := range rapid.IntRange(0, 12).Draw(t, "faults") {
			path := rapid.SampledFrom([]string{"/name", "/gpu", "/gpu/id", "/gpu/id/x", "/ports/0", "/other"}).Draw(t, "path")
			if !v.Has(path) {
				places[path] = fmt.Sprintf("%s: %d", path, i)
			}
			v.Add(problem.Invalid, path, "%d", i)
		}
		got := problem.Of(v.Err(order)).Errors
		if len(places) == 0 {
			return
		}
		if len(got) != len(places) {
			t.Fatalf("%d errors at %d places: %q", len(got), len(places), got)
		}
		for _, want := range places {
			if !slices.Contains(got, want) {
				t.Fatalf("%q is missing from %q", want, got)
			}
		}
		at := func(s string) int {
			path, _, _ := strings.Cut(s, ":")
			for _, f := range []string{"gpu/id", "name", "gpu", "ports"} {
				if path == "/"+f || strings.HasPrefix(path, "/"+f+"/") {
					return slices.Index(order, f)
				}
			}
			return len(order)
		}
		if !slices.IsSortedFunc(got, func(a, b string) int { return at(a) - at(b) }) {
			t.Fatalf("not in the order of the fields: %q", got)
		}
	})
}

func TestFaultsBeyondTheListedOnesAreOnlyMentioned(t *testing.T) {
	var v problem.Violations
	for i := range 200_000 {
		v.Add(problem.BadRequest, fmt.Sprintf("/a/%d", i), "bad")
	}
	if got := problem.KindOf(v.Err(nil)); got != problem.BadRequest {
		t.Errorf("kind = %d, want Malformed", got)
	}
	v.Add(problem.Invalid, "/late", "decides")
	got := problem.Of(v.Err(nil))
	if diff := cmp.Diff([]string{"/late: decides", "there are more faults than these"}, got.Errors); got.Status != 422 || diff != "" {
		t.Errorf("status %d, errors (-want +got):\n%s", got.Status, diff)
	}
	for i := range 200_000 {
		v.Add(problem.Invalid, fmt.Sprintf("/b/%d", i), "bad")
	}
	if n := len(problem.Of(v.Err(nil)).Errors); n > problem.MaxViolations+1 {
		t.Errorf("%d errors are listed, want at most %d", n, problem.MaxViolations+1)
	}
}

func TestLongTextsOfTheClientAreTruncated(t *testing.T) {
	var v problem.Violations
	long := strings.Repeat("ü", 100_000)
	v.Add(problem.BadRequest, "/flavor", "unknown flavor %q", long)
	v.Add(problem.BadRequest, "/"+long, "unknown property")
	got := problem.Of(v.Err(nil))
	if len(got.Errors) != 2 || !strings.HasPrefix(got.Errors[0], `/flavor: unknown flavor "ü`) || !strings.HasSuffix(got.Errors[1], "ü...: unknown property") {
		t.Errorf("errors = %.200q, want each with its place and what is wrong", got.Errors)
	}
	if n := len(got.Detail); n > 2000 || !utf8.ValidString(got.Detail) {
		t.Errorf("the detail has %d bytes (valid: %v), want the beginnings only", n, utf8.ValidString(got.Detail))
	}
}
