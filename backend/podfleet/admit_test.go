package podfleet_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

// strict is a runtime that accepts no variables from users.
type strict struct {
	*memory.Runtime

	asked []pods.Spec
}

func (s *strict) Admit(spec pods.Spec, faults *problem.Violations) {
	s.asked = append(s.asked, spec)
	if len(spec.OwnerEnv()) > 0 && spec.Owner != "" {
		faults.Add(problem.BadRequest, "/env", "no")
	}
}

func TestHostsJudgeWhatWorkersAreMadeOf(t *testing.T) {
	rt := &strict{Runtime: memory.NewRuntime(nil)}
	second := cpuHost(rt)
	second.ID = "h2"
	f := newFleet(t, []pods.Host{cpuHost(rt), second}, nil)
	service := serverless.New(memory.NewJobs(), memory.NewEndpoints(), &serverless.Options{Fleet: f})
	r := endpoints.CreateRequest{Type: endpoints.QueueType, Settings: endpoints.Settings{
		Name: new("e"), Image: new("img"), Args: new("a 'b c'"), Env: map[string]string{"A": "1"},
		CPU:     []endpoints.CPUSettings{{ID: "cpu", VCPU: 2}},
		Scaling: &endpoints.Scaling{Type: endpoints.RequestCount, Count: 1},
	}}
	_, err := service.CreateEndpoint(t.Context(), "alice", r)
	if doc := problem.Of(err); doc.Status != 400 || doc.Detail != "/env: no" {
		t.Errorf("create: %v, want what the host says", err)
	}
	if len(rt.asked) != 1 || !podfleet.IsWorker(rt.asked[0].PodID) {
		t.Fatalf("the runtime was asked about %+v, want one worker", rt.asked)
	}
	want := pods.Spec{PodID: rt.asked[0].PodID, Owner: "alice", Image: "img", Args: []string{"a", "b c"}, Env: r.Env}
	if diff := cmp.Diff(want, rt.asked[0]); diff != "" {
		t.Errorf("the runtime was asked about (-want +got):\n%s", diff)
	}
	if _, err := service.DeclareEndpoint(t.Context(), "shared-one", r); err != nil {
		t.Errorf("declare: %v, want nil", err)
	}
}

func TestAWorkersSpecSaysWhichVariablesAreThePlatforms(t *testing.T) {
	us := newRecorder()
	f := newFleet(t, []pods.Host{cpuHost(us)}, nil)
	w := worker("w")
	w.Container.Env = map[string]string{"A": "1", "RUNPOD_POD_ID": "mine"}
	w.Env = map[string]string{"RUNPOD_POD_ID": "w"}
	if err := f.Start(t.Context(), w); err != nil {
		t.Fatal(err)
	}
	s := us.specs[podfleet.PodID("ep", "w")]
	if diff := cmp.Diff([]string{"RUNPOD_CPU_COUNT", "RUNPOD_DC_ID", "RUNPOD_POD_ID"}, s.PlatformEnv); diff != "" {
		t.Errorf("PlatformEnv (-want +got):\n%s", diff)
	}
	if s.Env["RUNPOD_POD_ID"] != "w" || s.OwnerEnv()["A"] != "1" {
		t.Errorf("Env = %v", s.Env)
	}
}
