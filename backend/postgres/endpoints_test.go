package postgres_test

import (
	"slices"
	"testing"

	"github.com/podyard/podyard/serverless"
)

// A list decodes only what has changed since the list before. It returns what is stored all the same,
// whoever changed it, and every caller has records of its own.
func TestAListOfEndpointsHasWhatIsStored(t *testing.T) {
	url := postgresql.Database(t)
	eps, other := openURL(t, url).Endpoints(), openURL(t, url).Endpoints()
	list := func() (names []string) {
		t.Helper()
		for e, err := range eps.List(t.Context()) {
			must(t, err)
			names = append(names, e.ID+" "+e.Name+" "+e.Container.Env["a"])
			e.Name, e.Container.Env["a"] = "changed by a caller", "too"
		}
		slices.Sort(names)
		return names
	}
	want := func(want ...string) {
		t.Helper()
		for range 2 {
			if got := list(); !slices.Equal(got, want) {
				t.Fatalf("List has %q, want %q", got, want)
			}
		}
	}
	add := func(id, name string) {
		t.Helper()
		e := &serverless.Endpoint{ID: id, Name: name}
		e.Container.Env = map[string]string{"a": "b"}
		must(t, other.Create(t.Context(), e))
	}
	want()
	add("x", "one")
	add("y", "two")
	want("x one b", "y two b")
	_, err := other.Update(t.Context(), "x", func(e *serverless.Endpoint) error { e.Name = "three"; return nil })
	must(t, err)
	want("x three b", "y two b")
	must(t, other.Delete(t.Context(), "x"))
	want("y two b")
	add("x", "four")
	want("x four b", "y two b")
}
