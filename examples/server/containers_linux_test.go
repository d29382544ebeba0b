package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/process"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

// A router of two runtimes is a runtime, whichever of them has the image.
func TestARouterIsARuntime(t *testing.T) {
	t.Parallel()
	for _, prefix := range []string{"named", "other"} {
		t.Run(prefix, func(t *testing.T) {
			podstest.TestRuntime(t, func(t *testing.T) podstest.Harness {
				rt, _, _ := twoSides(t)
				runs, missing := pods.Spec{Image: prefix + "/runs"}, pods.Spec{Image: "no/such:image"}
				return podstest.Harness{Runtime: rt, Programs: podstest.Programs{
					Runs: &runs, Missing: &missing,
					Exits: func(code int) pods.Spec {
						return pods.Spec{Image: prefix + "/exits", Args: []string{strconv.Itoa(code)}}
					},
					Prints: func(n int) pods.Spec { return pods.Spec{Image: prefix + "/prints", Args: []string{strconv.Itoa(n)}} },
				}}
			})
		})
	}
}

// twoSides is a router of processes and, in the place of containers, of other processes.
func twoSides(t *testing.T) (rt *router, named, other *process.Runtime) {
	t.Helper()
	sides := map[string]*process.Runtime{}
	images := map[string]map[string]process.Image{}
	for _, prefix := range []string{"named", "other"} {
		images[prefix] = map[string]process.Image{
			prefix + "/runs":   {Command: []string{"sleep", "1000"}},
			prefix + "/exits":  {Command: []string{"sh", "-c", "exit $0"}},
			prefix + "/prints": {Command: []string{"sh", "-c", "i=0; while [ $i -lt $0 ]; do i=$((i+1)); echo line $i; done; exec sleep 1000"}},
		}
		side, err := process.Open(t.TempDir(), &process.Options{Images: images[prefix], Logger: slog.New(slog.NewTextHandler(t.Output(), nil))})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = side.Close(context.WithoutCancel(t.Context())) })
		sides[prefix] = side
	}
	return &router{isProcess: isNamed(images["named"]), processes: parting{sides["named"]}, containers: parting{sides["other"]}}, sides["named"], sides["other"]
}

func TestAPodThatChangesItsImageChangesSides(t *testing.T) {
	rt, named, other := twoSides(t)
	s := pods.Spec{PodID: "moves", Gen: 1, Run: 1, Image: "named/runs"}
	for i, want := range []struct{ has, lacks *process.Runtime }{{named, other}, {other, named}, {named, other}} {
		s.Gen, s.Run = uint64(i+1), uint64(i+1)
		s.Image = []string{"named/runs", "other/runs"}[i%2]
		if err := rt.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		eventually(t, fmt.Sprintf("generation %d is Up", s.Gen), func() bool {
			list, err := rt.List(t.Context())
			return err == nil && len(list) == 1 && list[0].Gen == s.Gen && list[0].Phase == pods.Up
		})
		if has, _ := want.has.List(t.Context()); len(has) != 1 {
			t.Errorf("generation %d: the runtime of its image has %+v", s.Gen, has)
		}
		if left, _ := want.lacks.List(t.Context()); len(left) != 0 {
			t.Errorf("generation %d: the other runtime still has %+v", s.Gen, left)
		}
	}
	if err := rt.Remove(t.Context(), "moves", time.Second); err != nil {
		t.Fatal(err)
	}
}
