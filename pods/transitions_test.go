package pods_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

var actions = []pods.Action{pods.Start, pods.Stop, pods.Restart, pods.Terminate, pods.Reset}

// podsByStatus are pods brought to each status that a user can see.
var podsByStatus = map[pods.Status]func(w *testEnv) *pods.Pod{
	pods.Provisioning: func(w *testEnv) *pods.Pod { return w.create(slow()) },
	pods.Starting: func(w *testEnv) *pods.Pod {
		p := w.create(slow())
		w.advance(90 * time.Second)
		return p
	},
	pods.Running: func(w *testEnv) *pods.Pod { return w.running(gpuPod()) },
	pods.Exited: func(w *testEnv) *pods.Pod {
		p := w.running(gpuPod())
		w.act(p.ID, pods.Stop)
		w.advance(0)
		return p
	},
	pods.Errored: func(w *testEnv) *pods.Pod {
		r := gpuPod()
		r.Image = "ends/badly"
		p := w.create(r)
		w.advance(time.Minute)
		return p
	},
}

// slow is a pod of an image that takes a minute to pull and one to start.
func slow() pods.CreateRequest {
	r := gpuPod()
	r.Image = "slow/img"
	return r
}

// allowed has the actions of each status (docs/decisions.md 17 to 19).
var allowed = map[pods.Status][]pods.Action{
	pods.Provisioning: {pods.Stop, pods.Terminate},
	pods.Starting:     {pods.Stop, pods.Terminate, pods.Reset},
	pods.Running:      {pods.Stop, pods.Restart, pods.Terminate, pods.Reset},
	pods.Exited:       {pods.Start, pods.Terminate, pods.Reset},
	pods.Errored:      {pods.Start, pods.Terminate, pods.Reset},
}

func TestEachStatusAllowsItsActionsAndNoOthers(t *testing.T) {
	for status, bring := range podsByStatus {
		for _, locked := range []bool{false, true} {
			for _, a := range actions {
				w := newTestEnv(t, nil)
				p := w.want(bring(w).ID, status)
				if locked {
					if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Locked: new(true)}); err != nil {
						t.Fatal(err)
					}
				}
				var want error
				switch {
				case !slices.Contains(allowed[status], a):
					want = pods.ErrInvalidStatus
				case locked && (a == pods.Stop || a == pods.Restart || a == pods.Reset):
					want = pods.ErrLocked
				}
				before := w.get(p.ID)
				_, err := w.Act(t.Context(), alice, p.ID, a)
				if !errors.Is(err, want) || want != nil && problem.Of(err).Status != 409 {
					t.Errorf("%s of a pod that is %s, locked %t: %v, want %v (409)", a, status, locked, err, want)
				}
				if want == nil {
					continue
				}
				if diff := cmp.Diff(before, w.get(p.ID)); diff != "" {
					t.Errorf("refused %s changed the pod (-before +after):\n%s", a, diff)
				}
			}
		}
	}
}

func TestActionsListWhatCanBeAsked(t *testing.T) {
	for status, bring := range podsByStatus {
		w := newTestEnv(t, nil)
		p := w.want(bring(w).ID, status)
		want := slices.DeleteFunc(slices.Clone(allowed[status]), func(a pods.Action) bool { return a == pods.Reset })
		if diff := cmp.Diff(want, pods.Actions(p)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", status, diff)
		}
		p.Locked = true
		want = slices.DeleteFunc(want, func(a pods.Action) bool { return a == pods.Stop || a == pods.Restart })
		if diff := cmp.Diff(want, pods.Actions(p)); diff != "" {
			t.Errorf("%s and locked (-want +got):\n%s", status, diff)
		}
		p.Want.Power = pods.PowerTerminated
		if got := pods.Actions(p); got == nil || len(got) != 0 || p.Status() != pods.Terminated {
			t.Errorf("actions of a terminated pod = %v, want an empty list", got)
		}
	}
}

// An accepted stop cannot be cancelled, in any status.
func TestAnAcceptedStopAllowsNothingButTerminate(t *testing.T) {
	for _, from := range []pods.Status{pods.Provisioning, pods.Starting, pods.Running} {
		for _, a := range actions {
			w := newTestEnv(t, nil)
			p := w.act(w.want(podsByStatus[from](w).ID, from).ID, pods.Stop)
			if diff := cmp.Diff([]pods.Action{pods.Terminate}, pods.Actions(p)); diff != "" {
				t.Errorf("actions of a pod that is %s and being stopped (-want +got):\n%s", from, diff)
			}
			_, err := w.Act(t.Context(), alice, p.ID, a)
			if a == pods.Terminate {
				if err != nil {
					t.Errorf("terminate of a pod that is %s and being stopped = %v, want nil", from, err)
				}
				continue
			}
			if !errors.Is(err, pods.ErrInvalidStatus) {
				t.Errorf("%s of a pod that is %s and being stopped = %v, want ErrStatus", a, from, err)
			}
			w.advance(10 * time.Minute)
			w.want(p.ID, pods.Exited)
		}
	}
}

func TestAStartThatIsStoppedIsNotStartedAgainBeforeItsComputeIsFree(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.want(podsByStatus[pods.Exited](w).ID, pods.Exited)
	w.act(p.ID, pods.Start)
	w.act(p.ID, pods.Stop)
	if _, err := w.Act(t.Context(), alice, p.ID, pods.Start); !errors.Is(err, pods.ErrInvalidStatus) {
		t.Errorf("start of a pod that is being stopped = %v, want ErrStatus", err)
	}
	w.advance(time.Minute)
	w.want(p.ID, pods.Exited)
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
}

func TestAnUnknownActionIsInvalid(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(cpuPod())
	if _, err := w.Act(t.Context(), alice, p.ID, "explode"); problem.Of(err).Status != 422 {
		t.Errorf("Act = %v, want a 422", err)
	}
}

// The transitions (docs/decisions.md 18): the status right after an action, and the final one.
func TestActionsMoveThePod(t *testing.T) {
	for _, tt := range []struct {
		from       pods.Status
		action     pods.Action
		once, then pods.Status
	}{
		{pods.Provisioning, pods.Stop, pods.Provisioning, pods.Exited},
		{pods.Starting, pods.Stop, pods.Starting, pods.Exited},
		{pods.Running, pods.Stop, pods.Running, pods.Exited},
		{pods.Exited, pods.Start, pods.Starting, pods.Running},
		{pods.Errored, pods.Start, pods.Starting, pods.Errored},
		{pods.Running, pods.Restart, pods.Starting, pods.Running},
		{pods.Starting, pods.Reset, pods.Starting, pods.Running},
		{pods.Running, pods.Reset, pods.Starting, pods.Running},
		{pods.Exited, pods.Reset, pods.Starting, pods.Running},
		{pods.Errored, pods.Reset, pods.Starting, pods.Errored},
	} {
		w := newTestEnv(t, nil)
		p := w.want(podsByStatus[tt.from](w).ID, tt.from)
		if got := w.act(p.ID, tt.action).Status(); got != tt.once {
			t.Errorf("%s of a pod that is %s answers %s, want %s", tt.action, tt.from, got, tt.once)
		}
		w.advance(10 * time.Minute)
		w.want(p.ID, tt.then)
	}
}
