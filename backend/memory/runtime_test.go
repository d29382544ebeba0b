package memory_test

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
)

// simHarness has a simulated runtime. It lacks programs that read their disk, their environment
// or the network, because a simulation has none.
func simHarness(c pods.Clock, pause func(time.Duration)) podstest.Harness {
	scripts := []memory.Script{
		{Image: "stubborn", StopAfter: time.Hour, Stages: memory.DefaultScript().Stages},
		{Image: "missing", Stages: []memory.Stage{
			{Phase: pods.PhasePulling}, {Phase: pods.PhaseFailed, After: time.Second, Reason: "no such image"},
		}},
	}
	for _, code := range []int{0, 1, 3, 7, 42} {
		scripts = append(scripts, memory.Script{Image: fmt.Sprint("exits/", code), Stages: []memory.Stage{
			{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy}, {Phase: pods.PhaseExited, After: time.Millisecond, ExitCode: code},
		}})
	}
	for _, n := range []int{1, 3, 200} {
		var lines []string
		for i := range n {
			lines = append(lines, fmt.Sprint("line ", i+1))
		}
		scripts = append(scripts, memory.Script{Image: fmt.Sprint("prints/", n), Stages: []memory.Stage{
			{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy, After: time.Millisecond, Lines: lines},
		}})
	}
	scripts = append(scripts, memory.Script{Image: "any", Stages: memory.DefaultScript().Stages, Replies: []memory.Reply{
		{Command: "exit 1", ExitCode: 1},
		{Command: "exit 42", ExitCode: 42},
		{Command: "exit 255", ExitCode: 255},
		{Command: "exit 0"},
		{Command: "copy", Echo: true},
		{Command: "wait", Stdout: "ready\n", Runs: true},
	}})
	return podstest.Harness{
		Runtime: memory.NewRuntime(&memory.RuntimeOptions{Clock: c, Scripts: scripts}),
		Sleep:   pause,
		Programs: podstest.Programs{
			Runs:        &pods.Spec{Image: "any"},
			IgnoresStop: &pods.Spec{Image: "stubborn"},
			Missing:     &pods.Spec{Image: "missing"},
			Inside: func(args ...string) []string {
				if !slices.Contains([]string{"exit", "copy", "wait"}, args[0]) {
					return nil
				}
				return args
			},
			Exits:  func(code int) pods.Spec { return pods.Spec{Image: fmt.Sprint("exits/", code)} },
			Prints: func(n int) pods.Spec { return pods.Spec{Image: fmt.Sprint("prints/", n)} },
		},
	}
}

func TestRuntimeOnTheSystemClock(t *testing.T) {
	for _, c := range podstest.RuntimeCases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.Test(t, simHarness(nil, nil)) })
		})
	}
}

func TestRuntimeOnAManualClock(t *testing.T) {
	for _, c := range podstest.RuntimeCases() {
		t.Run(c.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
				c.Test(t, simHarness(m, func(d time.Duration) {
					if err := m.Advance(t.Context(), d); err != nil {
						t.Error(err)
					}
					synctest.Wait() // for goroutines of the case
				}))
			})
		})
	}
}

func TestJitterIsDecidedByTheSeed(t *testing.T) {
	began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	delays := func(seed uint64) (list []time.Duration) {
		m := clock.NewManual(began)
		r := memory.NewRuntime(&memory.RuntimeOptions{Clock: m, Seed: seed, Scripts: []memory.Script{{
			Image: "a/*:b*", Stages: []memory.Stage{{Phase: pods.PhaseHealthy, After: time.Second, Jitter: time.Second}},
		}}})
		defer r.Notify(func(st pods.ContainerState) { list = append(list, st.At.Sub(began)) })()
		for i := range 20 {
			if err := r.Ensure(t.Context(), pods.Spec{PodID: fmt.Sprint("p", i), Gen: 1, Run: 1, Image: "a/x:bc"}); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.Advance(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		return list
	}
	first := delays(1)
	if len(first) != 20 || first[0] < time.Second || first[19] > 2*time.Second {
		t.Errorf("delays = %v, want 20 of one to two seconds", first)
	}
	if diff := cmp.Diff(first, delays(1)); diff != "" {
		t.Errorf("another run with the same seed (-first +second):\n%s", diff)
	}
	if cmp.Equal(first, delays(2)) {
		t.Error("another seed has the same delays")
	}
}

func TestACurveStaysAPercentage(t *testing.T) {
	c := memory.Curve{Base: 90, Amplitude: 50, Period: time.Minute}
	low, high := 100, 0
	for d := time.Duration(0); d < time.Minute; d += time.Second {
		v := c.At(d, 0.25)
		low, high = min(low, v), max(high, v)
	}
	if low != 40 || high != 100 {
		t.Errorf("the curve goes from %d to %d, want 40 to 100", low, high)
	}
	if got := (memory.Curve{Base: 12}).At(time.Hour, 0.5); got != 12 {
		t.Errorf("without a period = %d, want 12", got)
	}
}

func TestAPodKeepsItsAddressesOverRunsAndGenerations(t *testing.T) {
	m := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := memory.NewRuntime(&memory.RuntimeOptions{Clock: m})
	up := func(s pods.Spec) (st pods.ContainerState) {
		t.Helper()
		if err := r.Ensure(t.Context(), s); err != nil {
			t.Fatal(err)
		}
		if err := m.Advance(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		list, err := r.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range list {
			if st.PodID == s.PodID && st.Phase == pods.PhaseHealthy && st.Gen == s.Gen {
				return st
			}
		}
		t.Fatalf("generation %d of pod %s is not Up: %+v", s.Gen, s.PodID, list)
		return st
	}
	s := pods.Spec{
		PodID: "a", Gen: 1, Run: 1, Image: "any", NetworkAlias: "net",
		Ports: []pods.Port{{Private: 80, Protocol: "http"}, {Private: 80, Protocol: "tcp"}},
	}
	first := up(s)
	other := s
	other.PodID = "b"
	up(other)
	s.Run = 2
	again := up(s)
	s.Gen, s.Run = 2, 3
	s.Ports = append(s.Ports, pods.Port{Private: 22, Protocol: "tcp"})
	wiped := up(s)
	for name, st := range map[string]pods.ContainerState{"the same container": again, "another one": wiped} {
		if diff := cmp.Diff(first.Ports, st.Ports[:len(first.Ports)]); diff != "" || st.IP != first.IP {
			t.Errorf("started as %s the pod has the address %s, want %s, and ports (-want +got):\n%s", name, st.IP, first.IP, diff)
		}
	}
}

func TestALaterStopGivesNoMoreTime(t *testing.T) {
	m := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	r := memory.NewRuntime(&memory.RuntimeOptions{Clock: m, Scripts: []memory.Script{{
		Image: "stubborn", StopAfter: time.Hour, Stages: []memory.Stage{{Phase: pods.PhaseHealthy}},
	}}})
	if err := r.Ensure(t.Context(), pods.Spec{PodID: "p", Image: "stubborn", Gen: 1, Run: 1}); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := r.Stop(t.Context(), "p", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if err := m.Advance(t.Context(), 5*time.Second); err != nil {
			t.Fatal(err)
		}
	}
	list, err := r.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Phase != pods.PhaseExited {
		t.Errorf("10 s after a stop with a grace of 10 s the pod is %+v, %v; want it Down", list, err)
	}
}
