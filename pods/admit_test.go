package pods_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

// For the image strict, a strict runtime refuses args and the variable BAD.
type strict struct {
	pods.Runtime

	asked   []pods.Spec
	refused bool // the image is not for its owner any more
}

func (s *strict) Unwrap() pods.Runtime { return s.Runtime }

func (s *strict) Admit(spec pods.Spec, faults *problem.Violations) {
	s.asked = append(s.asked, spec)
	if spec.Image != "strict" {
		return
	}
	if s.refused {
		faults.Add(problem.BadRequest, "/image", "no")
	}
	if _, bad := spec.Env["BAD"]; bad {
		faults.Add(problem.BadRequest, "/env/BAD", "no")
	}
	if len(spec.Args) > 0 {
		faults.Add(problem.BadRequest, "/args", "no")
	}
}

func strictEnv(t *testing.T) (*testEnv, *strict) {
	t.Helper()
	rt := &strict{}
	return newTestEnv(t, func(s *envConfig) {
		withDependencies(s)
		s.hosts = func(inner pods.Runtime) []pods.Host {
			rt.Runtime = inner
			return pods.SimulatedHosts(s.catalog, rt)
		}
	}), rt
}

// wantRefusal wants a 400 with these faults, or no error if there are none.
func wantRefusal(t *testing.T, what string, err error, want ...string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("%s: %v, want nil", what, err)
		}
		return
	}
	doc := problem.Of(err)
	if diff := cmp.Diff(want, doc.Errors); diff != "" || doc.Status != 400 {
		t.Errorf("%s: status %d, faults (-want +got):\n%s", what, doc.Status, diff)
	}
}

func TestARuntimeRefusesBeforeAPodIsStored(t *testing.T) {
	w, rt := strictEnv(t)
	r := gpuPod()
	r.Image, r.Args, r.Env = "strict", new("a 'b c'"), map[string]string{"BAD": "1", "GOOD": "2"}
	_, err := w.Create(t.Context(), alice, r)
	wantRefusal(t, "create", err, "/args: no", "/env/BAD: no")
	if len(rt.asked) != 1 { // the hosts share it
		t.Fatalf("the runtime was asked %d times, want once", len(rt.asked))
	}
	want := pods.Spec{Owner: alice, Image: "strict", Args: []string{"a", "b c"}, Env: r.Env}
	if diff := cmp.Diff(want, rt.asked[0]); diff != "" {
		t.Errorf("the runtime was asked about (-want +got):\n%s", diff)
	}
	if list, err := w.List(t.Context(), alice); err != nil || len(list) > 0 {
		t.Errorf("List = %v, %v, want no pod", list, err)
	}
	r.Image = "another"
	_, err = w.Create(t.Context(), alice, r)
	wantRefusal(t, "create of another image", err)
}

func TestARuntimeRefusesWhatAPodWouldBecome(t *testing.T) {
	w, rt := strictEnv(t)
	r := gpuPod()
	r.Env = map[string]string{"BAD": "1"}
	p := w.create(r)
	for _, row := range []struct {
		what string
		r    pods.UpdateRequest
		want []string
	}{
		{"an image for which its variable is bad", pods.UpdateRequest{Image: new("strict")}, []string{"/env/BAD: no"}},
		{"with args as well", pods.UpdateRequest{Image: new("strict"), Args: new("x")}, []string{"/args: no", "/env/BAD: no"}},
		{"without the variable", pods.UpdateRequest{Image: new("strict"), Env: map[string]string{}}, nil},
		{"the variable again", pods.UpdateRequest{Env: map[string]string{"BAD": "1"}}, []string{"/env/BAD: no"}},
	} {
		_, err := w.Update(t.Context(), alice, p.ID, row.r)
		wantRefusal(t, row.what, err, row.want...)
	}
	asked := len(rt.asked)
	if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Name: new("new"), Disk: new(60)}); err != nil || len(rt.asked) != asked {
		t.Errorf("a change of what the runtime does not judge: %v, asked %d times more", err, len(rt.asked)-asked)
	}
	if got := w.get(p.ID).Config; got.Image != "strict" || len(got.Env) != 0 || got.Args != "" {
		t.Errorf("after what was refused the pod is %+v", got)
	}
}

func TestOnlyHostsThatMayTakeAPodAreAsked(t *testing.T) {
	rt := &strict{}
	w := newTestEnv(t, func(s *envConfig) {
		s.hosts = func(inner pods.Runtime) []pods.Host {
			hosts := pods.SimulatedHosts(s.catalog, inner)
			rt.Runtime = inner
			for i := range hosts {
				if hosts[i].DataCenter == "EU-RO-1" {
					hosts[i].Runtime = rt
				}
			}
			return hosts
		}
	})
	r := gpuPod()
	r.Image, r.Args, r.DataCenterIDs = "strict", new("x"), []string{"EU-RO-1"}
	_, err := w.Create(t.Context(), alice, r)
	wantRefusal(t, "in the place of the host", err, "/args: no")
	for _, d := range w.Catalog().DataCenters {
		if d.ID != "EU-RO-1" {
			r.DataCenterIDs = []string{d.ID}
		}
	}
	if _, err = w.Create(t.Context(), alice, r); problem.KindOf(err) == problem.BadRequest && problem.Of(err).Errors != nil {
		t.Errorf("elsewhere: %v, want no refusal", err)
	}
}

func TestASpecSaysWhichVariablesAreThePlatforms(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, func(s *envConfig) {
		s.options.Keys = fixedKeys{"ssh-ed25519 AAAA"}
		withRecorder(spy)(s)
	})
	r := gpuPod()
	r.StartSSH, r.StartJupyter = new(true), new(true)
	r.Env = map[string]string{"A": "1", "JUPYTER_PASSWORD": "mine", "RUNPOD_POD_ID": "mine"}
	w.create(r)
	w.advance(0)
	got := spy.specs()[0]
	want := []string{"PUBLIC_KEY", "RUNPOD_DC_ID", "RUNPOD_GPU_COUNT", "RUNPOD_POD_HOSTNAME", "RUNPOD_POD_ID"}
	if diff := cmp.Diff(want, got.PlatformEnv); diff != "" {
		t.Errorf("PlatformEnv (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "JUPYTER_PASSWORD": "mine"}, got.OwnerEnv()); diff != "" {
		t.Errorf("OwnerEnv (-want +got):\n%s", diff)
	}
	if got.Env["PUBLIC_KEY"] == "" || got.Env["JUPYTER_PASSWORD"] != "mine" || got.Env["RUNPOD_POD_ID"] == "mine" {
		t.Errorf("Env = %v", got.Env)
	}
}

func TestAPodWhoseImageIsRefusedByNowGoesOnAndDoesNotStart(t *testing.T) {
	w, rt := strictEnv(t)
	r := gpuPod()
	r.Image = "strict"
	p := w.running(r)
	rt.refused = true
	if got, err := w.Get(t.Context(), alice, p.ID); err != nil || got.Config.Image != "strict" {
		t.Errorf("Get = %+v, %v, want the pod with its image", got, err)
	}
	for _, a := range []pods.Action{pods.Restart, pods.Stop, pods.Start, pods.Reset} {
		_, err := w.Act(t.Context(), alice, p.ID, a)
		if a == pods.Stop {
			wantRefusal(t, string(a), err)
			w.advance(time.Minute)
			continue
		}
		if doc := problem.Of(err); doc.Status != 400 {
			t.Errorf("%s = %v, want a 400", a, err)
		}
	}
	if got, err := w.ActAsOperator(t.Context(), alice, p.ID, pods.Start); err != nil || got.Want.Power != pods.PowerOn {
		t.Errorf("a start by an operator = %+v, %v, want the pod to start", got, err)
	}
}
