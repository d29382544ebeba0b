package templates_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

//go:fix inline
func ptr[T any](v T) *T { return new(v) }

func good() templates.Settings {
	return templates.Settings{Name: new("t"), Image: new("org/image")}
}

// secrets are those of alice.
type secrets struct{}

func (secrets) PullSecret(_ context.Context, owner, id string) (registry, username, password string, err error) {
	if owner != "alice" || id != "reg" {
		return "", "", "", problem.New(problem.NotFound, "registry not found")
	}
	return "", "u", "p", nil
}

func mustCreate(t *testing.T, s *templates.Service, owner string, r templates.Settings) templates.Template {
	t.Helper()
	v, err := s.Create(t.Context(), owner, r)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestAbsentSettingsHaveTheirDefaults(t *testing.T) {
	s := templates.New(memory.NewTemplates(), &templates.Options{Clock: clock.NewManual(start)})
	got := mustCreate(t, s, "alice", good())
	want := templates.Template{
		ID: got.ID, Owner: "alice", Name: "t", Category: templates.NVIDIA, Created: start,
		Template: pods.Template{Image: "org/image", Disk: 50, StartSSH: true, StartJupyter: true},
	}
	if diff := cmp.Diff(want, got); diff != "" || len(got.ID) != 14 {
		t.Errorf("Create (-want +got):\n%s", diff)
	}
}

func TestAnUpdateChangesWhatItNames(t *testing.T) {
	s := templates.New(memory.NewTemplates(), &templates.Options{Secrets: secrets{}})
	r := good()
	r.Env, r.Registry, r.AllowedCUDAVersions = map[string]string{"A": "1"}, new("reg"), []string{"12.8"}
	want := mustCreate(t, s, "alice", r)
	got, err := s.Update(t.Context(), "alice", want.ID, templates.Settings{
		Image: new("org/image:2"), Registry: new(""), AllowedCUDAVersions: []string{}, StartSSH: new(false),
		Persistent: &pods.PersistentMount{Size: 10, Path: "/w"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want.Image, want.Registry, want.AllowedCUDAVersions, want.StartSSH = "org/image:2", "", []string{}, false
	want.Persistent = &pods.PersistentMount{Size: 10, Path: "/w"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Update (-want +got):\n%s", diff)
	}
}

func TestFaultsOfARequestAreReportedTogetherAndChangeNothing(t *testing.T) {
	s := templates.New(memory.NewTemplates(), &templates.Options{Secrets: secrets{}})
	_, err := s.Create(t.Context(), "alice", templates.Settings{Disk: new(0), Category: ptr(templates.Category("TPU")), AllowedCUDAVersions: []string{"x"}})
	want := []string{
		"/name: is required", "/image: is required", "/disk: must be 1 to 1048576 GB",
		"/category: must be one of CPU, NVIDIA, AMD", "/allowedCudaVersions/0: must be a CUDA version, major.minor",
	}
	if diff := cmp.Diff(want, problem.Of(err).Errors); diff != "" || problem.Of(err).Status != 422 {
		t.Errorf("faults (-want +got):\n%s", diff)
	}
	r := good()
	r.Registry = new("reg")
	if _, err := s.Create(t.Context(), "bob", r); problem.Of(err).Status != 400 {
		t.Errorf("another user's credential = %v, want a 400", err)
	}
	for _, user := range []string{"alice", "bob"} {
		if list, err := s.List(t.Context(), user); err != nil || len(list) != 0 {
			t.Errorf("after refused requests: %v, %v; want nothing", list, err)
		}
	}
}

func TestAPublicTemplateCanBeReadAndUsedByEverybodyButChangedByItsOwnerOnly(t *testing.T) {
	s, ctx := templates.New(memory.NewTemplates(), &templates.Options{Secrets: secrets{}}), t.Context()
	r := good()
	r.Public, r.Registry = new(true), new("reg")
	public, private := mustCreate(t, s, "alice", r), mustCreate(t, s, "alice", good())
	got, err := s.Get(ctx, "bob", public.ID)
	if err != nil || got.Registry != "" || got.Image != "org/image" {
		t.Errorf("Get by bob = %+v, %v; want it without the credential", got, err)
	}
	if p, err := s.PodTemplate(ctx, "alice", public.ID); err != nil || p.Registry != "reg" {
		t.Errorf("PodTemplate for alice = %+v, %v; want it with her credential", p, err)
	}
	_, get := s.Get(ctx, "bob", private.ID)
	_, use := s.PodTemplate(ctx, "bob", private.ID)
	_, update := s.Update(ctx, "bob", public.ID, templates.Settings{})
	_, official := s.Update(ctx, "bob", "podyard-web", templates.Settings{})
	for name, err := range map[string]error{
		"Get of a private one": get, "PodTemplate of a private one": use, "Update": update, "Update of an official one": official,
		"Delete": s.Delete(ctx, "bob", public.ID), "Delete of an official one": s.Delete(ctx, "bob", "podyard-web"),
	} {
		if !errors.Is(err, templates.ErrNotFound) || problem.Of(err).Status != 404 {
			t.Errorf("%s by bob = %v, want ErrNotFound", name, err)
		}
	}
	for user, want := range map[string]int{"alice": 0, "bob": 1} {
		if list, err := s.Catalog(ctx, user, templates.FromCommunity); err != nil || len(list) != want || want == 1 && list[0].Registry != "" {
			t.Errorf("the community's templates for %s = %+v, %v; want %d without credentials", user, list, err, want)
		}
	}
}

func TestTheCatalogIsBounded(t *testing.T) {
	s := templates.New(memory.NewTemplates(), nil)
	r := good()
	r.Public = new(true)
	for range templates.MaxCatalog + 1 {
		mustCreate(t, s, "alice", r)
	}
	if list, err := s.Catalog(t.Context(), "bob", templates.FromCommunity); err != nil || len(list) != templates.MaxCatalog {
		t.Errorf("the catalog has %d templates, %v; want %d", len(list), err, templates.MaxCatalog)
	}
	if list, err := s.Catalog(t.Context(), "bob", templates.FromVerified); err != nil || len(list) != 0 {
		t.Errorf("the verified templates are %v, %v; want none", list, err)
	}
}

func TestOfficialTemplatesKeepTheRulesOfPods(t *testing.T) {
	for _, o := range templates.Official() {
		var faults problem.Violations
		v := container.Rules{Violations: &faults}
		v.Name(o.Name)
		v.Image(o.Image)
		v.Command(container.CommandChange{Args: &o.Args})
		v.Disk(o.Disk)
		v.Ports(o.Ports)
		v.Env(o.Env)
		if m := o.Persistent; m != nil {
			v.PersistentMount(m.Size, m.Path)
		}
		if err := faults.Err(nil); err != nil || o.ID == "" || !o.Public {
			t.Errorf("%s: %v", o.ID, err)
		}
	}
}

type inUse bool

func (u inUse) TemplateInUse(context.Context, string, string) (bool, error) { return bool(u), nil }

func TestATemplateInUseIsNotDeleted(t *testing.T) {
	used := new(inUse)
	s := templates.New(memory.NewTemplates(), &templates.Options{InUse: used})
	*used = true
	v := mustCreate(t, s, "alice", good())
	if err := s.Delete(t.Context(), "alice", v.ID); !errors.Is(err, templates.ErrInUse) || problem.Of(err).Status != 400 {
		t.Errorf("Delete while a pod was made from it = %v, want ErrInUse, a 400", err)
	}
	*used = false
	if err := s.Delete(t.Context(), "alice", v.ID); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Get(t.Context(), "alice", v.ID); !errors.Is(err, templates.ErrNotFound) {
		t.Errorf("Get of a deleted template = %v, want ErrNotFound", err)
	}
}
