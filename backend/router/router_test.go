package router_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/router"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/problem"
)

// scripts are what images below prefix do.
func scripts(prefix string) []memory.Script {
	list := []memory.Script{
		{Image: prefix + "/stubborn", StopAfter: time.Hour, Stages: memory.DefaultScript().Stages},
		{Image: prefix + "/missing", Stages: []memory.Stage{{Phase: pods.PhasePulling}, {Phase: pods.PhaseFailed, After: time.Second, Reason: "no such image"}}},
	}
	for _, code := range []int{0, 1, 3, 7, 42} {
		list = append(list, memory.Script{Image: fmt.Sprint(prefix, "/exits/", code), Stages: []memory.Stage{
			{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy}, {Phase: pods.PhaseExited, After: time.Millisecond, ExitCode: code},
		}})
	}
	for _, n := range []int{1, 3, 200} {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprint("line ", i+1))
		}
		list = append(list, memory.Script{Image: fmt.Sprint(prefix, "/prints/", n), Stages: []memory.Stage{
			{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy, After: time.Millisecond, Lines: lines},
		}})
	}
	return list
}

// sides is a router of three simulated runtimes: images below "a" and "b" have one each, by
// a rule, and all others have the third.
func sides() (rt *router.Runtime, of map[string]*memory.Runtime) {
	of = map[string]*memory.Runtime{}
	for _, prefix := range []string{"a", "b", "rest"} {
		of[prefix] = memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts(prefix)})
	}
	below := func(prefix string) router.Rule {
		return router.Rule{Runtime: of[prefix], Match: func(s pods.Spec) bool { return strings.HasPrefix(s.Image, prefix+"/") }}
	}
	return router.New(of["rest"], below("a"), below("b")), of
}

func TestARouterIsARuntimeWhicheverSideHasTheImage(t *testing.T) {
	for _, prefix := range []string{"a", "b", "rest"} {
		t.Run(prefix, func(t *testing.T) {
			for _, c := range podstest.RuntimeCases() {
				t.Run(c.Name, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						rt, _ := sides()
						spec := func(name string) *pods.Spec { return &pods.Spec{Image: prefix + "/" + name} }
						c.Test(t, podstest.Harness{Runtime: rt, Programs: podstest.Programs{
							Runs: spec("any"), IgnoresStop: spec("stubborn"), Missing: spec("missing"),
							Exits:  func(code int) pods.Spec { return *spec(fmt.Sprint("exits/", code)) },
							Prints: func(n int) pods.Spec { return *spec(fmt.Sprint("prints/", n)) },
						}})
					})
				})
			}
		})
	}
}

func TestAPodThatChangesItsImageChangesSides(t *testing.T) {
	rt, of := sides()
	has := func(prefix string) bool {
		list, err := of[prefix].List(t.Context())
		return err == nil && slices.ContainsFunc(list, func(s pods.ContainerState) bool { return s.PodID == "moves" })
	}
	for i, prefix := range []string{"a", "rest", "b", "a"} {
		s := pods.Spec{PodID: "moves", Gen: uint64(i + 1), Run: uint64(i + 1), Image: prefix + "/any"}
		if err := rt.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		for side := range of {
			if got, want := has(side), side == prefix; got != want {
				t.Errorf("generation %d with an image of side %q: side %q has it: %v, want %v", s.Gen, prefix, side, got, want)
			}
		}
		if list, err := rt.List(t.Context()); err != nil || len(list) != 1 || list[0].Gen != s.Gen {
			t.Errorf("generation %d: the list is %+v, %v, want the pod once", s.Gen, list, err)
		}
	}
}

// A movedPod lists a pod in some generation.
type movedPod struct {
	*memory.Runtime
	gen uint64
}

func (m movedPod) List(context.Context) ([]pods.ContainerState, error) {
	return []pods.ContainerState{{PodID: "moves", Gen: m.gen}}, nil
}

func TestAPodOnTwoSidesIsListedOnceAsTheNewerGeneration(t *testing.T) {
	for _, gens := range [][2]uint64{{1, 2}, {2, 1}} {
		rt := router.New(movedPod{gen: gens[0]}, router.Rule{Runtime: movedPod{gen: gens[1]}})
		if list, err := rt.List(t.Context()); err != nil || len(list) != 1 || list[0].Gen != 2 {
			t.Errorf("generations %v: the list is %+v, %v, want generation 2 alone", gens, list, err)
		}
	}
}

var errGone = errors.New("the engine is gone")

// A fragile runtime loses its engine at once. What it can do is what it is told.
type fragile struct {
	*memory.Runtime
	can     pods.Capabilities
	cuda    string
	removed *[]string
}

func (f fragile) Capabilities() pods.Capabilities                      { return f.can }
func (f fragile) CUDAVersion() string                                  { return f.cuda }
func (fragile) Watch(context.Context, func(pods.ContainerState)) error { return errGone }
func (fragile) List(context.Context) ([]pods.ContainerState, error)    { return nil, errGone }
func (fragile) Stop(context.Context, string, time.Duration) error      { return errGone }

func (f fragile) RemoveVolume(_ context.Context, id string) error {
	*f.removed = append(*f.removed, id)
	return errGone
}

var _ volumes.Storage = fragile{}

func TestAnErrorOfOneSideIsTheRoutersError(t *testing.T) {
	var removed []string
	bad := fragile{memory.NewRuntime(nil), pods.Capabilities{}, "", &removed}
	rt := router.New(memory.NewRuntime(nil), router.Rule{Match: func(pods.Spec) bool { return false }, Runtime: bad})
	if _, err := rt.List(t.Context()); !errors.Is(err, errGone) {
		t.Errorf("List = %v, want the error of the side that is gone", err)
	}
	if err := rt.Watch(t.Context(), func(pods.ContainerState) {}); !errors.Is(err, errGone) {
		t.Errorf("Watch = %v, want the error of the side that is gone, and no wait for the other", err)
	}
	if err := rt.Stop(t.Context(), "x", 0); !errors.Is(err, errGone) {
		t.Errorf("Stop = %v, want the error of the side that is gone", err)
	}
	if err := rt.RemoveVolume(t.Context(), "v"); !errors.Is(err, errGone) || !slices.Equal(removed, []string{"v"}) {
		t.Errorf("RemoveVolume = %v and removed %v, want the error of the side with a storage, asked once", err, removed)
	}
}

func TestARouterCanWhatOneSideCanAndLimitsDisksWhereAllDo(t *testing.T) {
	var none []string
	side := func(can pods.Capabilities, cuda string) fragile {
		return fragile{memory.NewRuntime(nil), can, cuda, &none}
	}
	one := side(pods.Capabilities{GPUs: true, DiskLimit: true}, "")
	two := side(pods.Capabilities{Pull: true, PrivateNetworks: true}, "12.8")
	rt := router.New(two, router.Rule{Runtime: one})
	if got, want := rt.Capabilities(), (pods.Capabilities{GPUs: true, Pull: true, PrivateNetworks: true}); got != want {
		t.Errorf("capabilities %+v, want %+v", got, want)
	}
	if got := router.New(one).Capabilities(); !got.DiskLimit {
		t.Error("a router of one runtime that limits disks does not")
	}
	if got := rt.CUDAVersion(); got != "12.8" {
		t.Errorf("CUDA version %q, want that of the side that knows one", got)
	}
}

// A strict runtime refuses every pod.
type strict struct{ *memory.Runtime }

func (strict) Admit(s pods.Spec, faults *problem.Violations) {
	faults.Add(problem.BadRequest, "/image", "not %s", s.Image)
}

func TestOnlyTheRuntimeThatAPodIsForJudgesIt(t *testing.T) {
	isA := func(s pods.Spec) bool { return s.Image == "a" }
	rt := router.New(memory.NewRuntime(nil), router.Rule{Match: isA, Runtime: strict{memory.NewRuntime(nil)}})
	for image, want := range map[string]bool{"a": true, "b": false} {
		var faults problem.Violations
		rt.Admit(pods.Spec{Image: image}, &faults)
		if faults.Has("/image") != want {
			t.Errorf("image %s: refused %t, want %t", image, !want, want)
		}
	}
}
