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

// reach are pods brought to each status that a user can see.
var reach = map[pods.Status]func(w *world) *pods.Pod{
	pods.Provisioning: func(w *world) *pods.Pod { return w.create(slow()) },
	pods.Starting: func(w *world) *pods.Pod {
		p := w.create(slow())
		w.advance(90 * time.Second)
		return p
	},
	pods.Running: func(w *world) *pods.Pod { return w.running(gpuPod()) },
	pods.Exited: func(w *world) *pods.Pod {
		p := w.running(gpuPod())
		w.act(p.ID, pods.Stop)
		w.advance(0)
		return p
	},
	pods.Errored: func(w *world) *pods.Pod {
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

// allowed is decisions 17 to 19.
var allowed = map[pods.Status][]pods.Action{
	pods.Provisioning: {pods.Stop, pods.Terminate},
	pods.Starting:     {pods.Stop, pods.Terminate, pods.Reset},
	pods.Running:      {pods.Stop, pods.Restart, pods.Terminate, pods.Reset},
	pods.Exited:       {pods.Start, pods.Terminate, pods.Reset},
	pods.Errored:      {pods.Start, pods.Terminate, pods.Reset},
}

func TestEachStatusAllowsItsActionsAndNoOthers(t *testing.T) {
	for status, bring := range reach {
		for _, locked := range []bool{false, true} {
			for _, a := range actions {
				w := newWorld(t, nil)
				p := w.want(bring(w).ID, status)
				if locked {
					if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Locked: new(true)}); err != nil {
						t.Fatal(err)
					}
				}
				var want error
				switch {
				case !slices.Contains(allowed[status], a):
					want = pods.ErrStatus
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
	for status, bring := range reach {
		w := newWorld(t, nil)
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
		p.Want.Power = pods.Gone
		if got := pods.Actions(p); got == nil || len(got) != 0 || p.Status() != pods.Terminated {
			t.Errorf("actions of a terminated pod = %v, want an empty list", got)
		}
	}
}

func TestAnUnknownActionIsInvalid(t *testing.T) {
	w := newWorld(t, nil)
	p := w.create(cpuPod())
	if _, err := w.Act(t.Context(), alice, p.ID, "explode"); problem.Of(err).Status != 422 {
		t.Errorf("Act = %v, want a 422", err)
	}
}

// The transitions of decisions 18: what an action leads to, at once and in the
// end.
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
		w := newWorld(t, nil)
		p := w.want(reach[tt.from](w).ID, tt.from)
		if got := w.act(p.ID, tt.action).Status(); got != tt.once {
			t.Errorf("%s of a pod that is %s answers %s, want %s", tt.action, tt.from, got, tt.once)
		}
		w.advance(10 * time.Minute)
		w.want(p.ID, tt.then)
	}
}
