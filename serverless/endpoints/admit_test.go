package endpoints_test

import (
	"slices"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// strict refuses the variable BAD of users.
type strict struct{}

func (strict) AdmitWorker(owner string, c endpoints.Container, faults *problem.Violations) {
	if _, bad := c.Env["BAD"]; bad && owner != "" {
		faults.Add(problem.BadRequest, "/env/BAD", "no")
	}
}

func TestWhatTheFleetRefusesMakesNoEndpointAndNoRelease(t *testing.T) {
	s := endpoints.New(memory.NewEndpoints(), &endpoints.Options{Catalog: testCatalog{}, Registries: testRegistries{}, Admission: strict{}})
	wantRefusal := func(what string, err error) {
		t.Helper()
		if kind, list := faults(t, err); kind != problem.BadRequest || !slices.Equal(list, []string{"/env/BAD: no"}) {
			t.Errorf("%s: %v %v, want a 400 that names the variable", what, kind, list)
		}
	}
	r := cpuEndpoint()
	r.Env = map[string]string{"BAD": "1"}
	_, err := s.Create(t.Context(), "alice", r)
	wantRefusal("create", err)
	if list, err := s.List(t.Context(), "alice"); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v, want none", list, err)
	}
	r.Env = nil
	e, err := s.Create(t.Context(), "alice", r)
	if err != nil {
		t.Fatal(err)
	}
	_, err = s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: endpoints.Settings{Env: map[string]string{"BAD": "1"}}})
	wantRefusal("update", err)
	if got, err := s.Get(t.Context(), "alice", e.ID); err != nil || len(got.Container.Env) > 0 || got.Version != e.Version {
		t.Errorf("the endpoint is %+v, %v, want it as it was", got, err)
	}
	r.Env = map[string]string{"BAD": "1"}
	if _, err := s.Declare(t.Context(), "shared-one", r); err != nil {
		t.Errorf("Declare = %v: the program may ask for anything", err)
	}
}
