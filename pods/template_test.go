package pods_test

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// fixedTemplates are templates of everybody.
type fixedTemplates map[string]pods.Template

func (p fixedTemplates) PodTemplate(_ context.Context, _, id string) (pods.Template, error) {
	t, ok := p[id]
	if !ok {
		return t, problem.New(problem.NotFound, "template not found")
	}
	return t, nil
}

// fixedKeys is the keys of alice.
type fixedKeys []string

func (k fixedKeys) PublicKeys(_ context.Context, owner string) ([]string, error) {
	if owner != alice {
		return nil, nil
	}
	return k, nil
}

func withTemplates(s *envConfig) {
	withDependencies(s)
	s.options.Keys = fixedKeys{"ssh-rsa AAA", "ssh-rsa BBB"}
	s.options.Templates = fixedTemplates{
		"full": {
			Image: "tpl", Args: "from template", Disk: 7, Ports: []string{"1/tcp"}, Env: map[string]string{"A": "t", "B": "t"}, Registry: "reg",
			Persistent: &pods.PersistentMount{Size: 11, Path: "/t"}, StartSSH: true, StartJupyter: true, AllowedCUDAVersions: []string{"12.8"},
		},
		"plain":  {Image: "tpl", Disk: 7},
		"worker": {Image: "tpl", Disk: 7, Serverless: true},
	}
}

func TestABodyOverridesItsTemplateAndVariablesAreMerged(t *testing.T) {
	w := newTestEnv(t, withTemplates)
	r := gpuPod()
	r.Image, r.TemplateID = "", "full"
	p := w.create(r)
	want := pods.Config{
		Image: "tpl", Args: "from template", Disk: 7, Ports: []string{"1/tcp"}, Env: map[string]string{"A": "t", "B": "t"},
		Registry: "reg", Mounts: pods.Mounts{Persistent: &pods.PersistentMount{Size: 11, Path: "/t"}},
	}
	if diff := cmp.Diff(want, p.Config); diff != "" || p.Template != "full" {
		t.Errorf("a pod of the template %q (-want +got):\n%s", p.Template, diff)
	}
	if diff := cmp.Diff(pods.CUDAVersions{Allowed: []string{"12.8"}}, p.CUDA); diff != "" {
		t.Errorf("its hosts (-want +got):\n%s", diff)
	}
	r = gpuPod()
	r.TemplateID, r.Args, r.Disk, r.Ports, r.Registry = "full", new(""), new(9), []string{}, new("")
	r.Env = map[string]string{"B": "b", "C": "c"}
	r.Mounts.Network = []pods.NetworkMount{{VolumeID: "vol", Path: "/n"}}
	r.GPU.AllowedCUDAVersions, r.StartSSH, r.StartJupyter = []string{}, new(false), new(false)
	p = w.create(r)
	want = pods.Config{
		Image: "img", Disk: 9, Ports: []string{}, Env: map[string]string{"A": "t", "B": "b", "C": "c"},
		Mounts: pods.Mounts{Network: []pods.NetworkMount{{VolumeID: "vol", Path: "/n"}}},
	}
	if diff := cmp.Diff(want, p.Config); diff != "" {
		t.Errorf("a pod that says everything (-want +got):\n%s", diff)
	}
	if len(p.CUDA.Allowed) != 0 || len(p.Injected) != 0 {
		t.Errorf("hosts %v and injected %v, want what the body says: none", p.CUDA, p.Injected)
	}
}

func TestACPUPodTakesNeitherTheMountNorTheVersionsOfItsTemplate(t *testing.T) {
	w := newTestEnv(t, withTemplates)
	r := cpuPod()
	r.TemplateID = "full"
	p := w.create(r)
	if p.Config.Mounts.Persistent != nil || len(p.CUDA.Allowed) != 0 {
		t.Errorf("a CPU pod has %+v and %+v of its template", p.Config.Mounts, p.CUDA)
	}
}

func TestATemplateThatIsNotForPodsIsRefused(t *testing.T) {
	w := newTestEnv(t, withTemplates)
	for id, status := range map[string]int{"worker": 422, "none": 404} {
		r := gpuPod()
		r.TemplateID = id
		_, err := w.Create(t.Context(), alice, r)
		if got := problem.Of(err).Status; got != status {
			t.Errorf("Create from %s = %d %v, want %d", id, got, err, status)
		}
		p := w.create(gpuPod())
		_, err = w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{TemplateID: id})
		if got := problem.Of(err).Status; got != status {
			t.Errorf("Update from %s = %d %v, want %d", id, got, err, status)
		}
	}
}

func TestAnUpdateAppliesATemplateAsIfItWereInTheBody(t *testing.T) {
	w := newTestEnv(t, withTemplates)
	r := gpuPod()
	r.Env, r.Args = map[string]string{"OLD": "1"}, new("old")
	p := w.create(r)
	p, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{TemplateID: "full", Disk: new(9), Env: map[string]string{"B": "b"}})
	if err != nil {
		t.Fatal(err)
	}
	want := pods.Config{
		Image: "tpl", Args: "from template", Disk: 9, Ports: []string{"1/tcp"}, Env: map[string]string{"A": "t", "B": "b"}, Registry: "reg",
	}
	if diff := cmp.Diff(want, p.Config); diff != "" || p.Template != "" {
		t.Errorf("after the update, made from %q (-want +got):\n%s", p.Template, diff)
	}
	p, err = w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{TemplateID: "plain"})
	if err != nil || len(p.Config.Env) != 0 || len(p.Config.Ports) != 0 || p.Config.Registry != "" || p.Config.Args != "" {
		t.Errorf("after an update from a template that has nothing: %+v, %v; want nothing of before", p.Config, err)
	}
}

func TestKeysAndAPasswordAreInjectedUnlessTheUserSetsThem(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, func(s *envConfig) {
		withTemplates(s)
		s.hosts = func(rt pods.Runtime) []pods.Host {
			spy.Runtime = rt
			return pods.SimulatedHosts(s.catalog, spy)
		}
	})
	env := func(r pods.CreateRequest) map[string]string {
		t.Helper()
		r.StartSSH, r.StartJupyter = new(true), new(true)
		p := w.running(r)
		if p.Config.Env["PUBLIC_KEY"] != r.Env["PUBLIC_KEY"] || p.Config.Env["JUPYTER_PASSWORD"] != r.Env["JUPYTER_PASSWORD"] {
			t.Errorf("the settings of the pod show what was injected: %v", p.Config.Env)
		}
		specs := spy.specs()
		return specs[len(specs)-1].Env
	}
	got := env(gpuPod())
	if got["PUBLIC_KEY"] != "ssh-rsa AAA\nssh-rsa BBB" || len(got["JUPYTER_PASSWORD"]) < 14 {
		t.Errorf("the container finds PUBLIC_KEY %q and JUPYTER_PASSWORD %q", got["PUBLIC_KEY"], got["JUPYTER_PASSWORD"])
	}
	if again := env(gpuPod()); again["JUPYTER_PASSWORD"] == got["JUPYTER_PASSWORD"] {
		t.Error("two pods have one password")
	}
	r := gpuPod()
	r.Env = map[string]string{"PUBLIC_KEY": "mine", "JUPYTER_PASSWORD": ""}
	if got := env(r); got["PUBLIC_KEY"] != "mine" || got["JUPYTER_PASSWORD"] != "" {
		t.Errorf("the user's variables were replaced: %q, %q", got["PUBLIC_KEY"], got["JUPYTER_PASSWORD"])
	}
	r = gpuPod()
	r.StartSSH = new(true)
	p, err := w.Create(t.Context(), bob, r)
	if _, has := p.Injected["PUBLIC_KEY"]; err != nil || has {
		t.Errorf("a user without keys has PUBLIC_KEY injected, %v", err)
	}
}

func TestVersionsOfCUDASelectHosts(t *testing.T) {
	w := newTestEnv(t, nil) // its hosts have 12.8
	for name, row := range map[string]struct {
		allowed []string
		floor   *string
		fits    bool
	}{
		"its own":             {[]string{"11.8", "12.8"}, nil, true},
		"others":              {[]string{"12.4", "12.80"}, nil, false},
		"none":                {[]string{}, nil, true},
		"a floor below":       {nil, new("9.9"), true},
		"the floor itself":    {[]string{}, new("12.8"), true},
		"a floor above":       {nil, new("12.11"), false},
		"a floor far above":   {nil, new("13.0"), false},
		"a floor with zeroes": {nil, new("012.08"), true},
	} {
		r := gpuPod()
		r.GPU.AllowedCUDAVersions, r.GPU.MinCUDAVersion = row.allowed, row.floor
		if _, err := w.Create(t.Context(), alice, r); (err == nil) != row.fits || err != nil && !errors.Is(err, pods.ErrNoCapacity) {
			t.Errorf("%s: %v, want a place: %t", name, err, row.fits)
		}
	}
	r := gpuPod()
	r.GPU.AllowedCUDAVersions, r.GPU.MinCUDAVersion = []string{"12.8"}, new("12.8")
	if _, err := w.Create(t.Context(), alice, r); problem.Of(err).Status != 400 || errors.Is(err, pods.ErrNoCapacity) {
		t.Errorf("both constraints = %v, want a 400 that says so", err)
	}
}
