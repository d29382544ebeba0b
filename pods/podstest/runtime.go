// Package podstest has test suites with the rules for every [pods.PodStore] and every
// [pods.Runtime].
package podstest

import (
	"context"
	"crypto/rand"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

// A Harness is one Runtime under test and the programs that it can run. Cases that need a field
// that is not set are skipped and say why.
type Harness struct {
	// Runtime may have other pods, which the suite does not touch. The caller closes it, in a
	// t.Cleanup.
	Runtime  pods.Runtime
	Programs Programs
	// Sleep lets up to d pass. For a Runtime with a clock that stands still, it moves that
	// clock. Default: it waits, which is also right in a testing/synctest bubble.
	Sleep func(d time.Duration)
	// Timeout is how long the suite waits for something that must happen. Default 30 s.
	Timeout time.Duration
	// Seed is the seed of random calls; a failure prints it. Default: a new one each time.
	Seed uint64
	// Reopen closes Runtime in an orderly way and opens another on the same containers.
	Reopen func(t *testing.T) pods.Runtime
	// Dial connects to a published port and returns the first line that comes back.
	Dial func(m pods.PortMapping) (string, error)
}

// Programs are the programs of containers, each as a Spec with image, args and environment. The
// suite adds the rest; args that it adds follow those given.
type Programs struct {
	// Runs runs until it is asked to end. Required.
	Runs *pods.Spec
	// IgnoresStop runs, and does not end when it is asked to. It must do so from the time that
	// it is healthy.
	IgnoresStop *pods.Spec
	// Missing has an image that does not exist.
	Missing *pods.Spec
	// Exits ends at once with a code from 0 to 255.
	Exits func(code int) pods.Spec
	// Prints prints "line 1" to "line <n>" and runs on.
	Prints func(n int) pods.Spec
	// PrintsArgs prints `arg "<value>"` for each arg added, then `env <NAME>="<value>"` for each
	// variable whose name begins with TELL_, by name, values quoted as Go does; then "told",
	// and runs on.
	PrintsArgs *pods.Spec
	// PrintsArgsByEntrypoint does the same. Its Entrypoint has the program; an image may name another.
	PrintsArgsByEntrypoint *pods.Spec
	// Counts adds one to a number in a file on its disk and prints "disk <n>". It does the same
	// with a file in each mount and prints "mount <n>". Then it prints "counted" and runs on.
	Counts *pods.Spec
	// Serves answers every connection to a tcp port of its Spec with "port <private>" and
	// a new line.
	Serves *pods.Spec
	// Dials connects to each address host:port that is added as an arg, again and again. When
	// one answers for the first time, it prints "reached <address> <line>" with the first line
	// of the answer. When each was tried three times, it prints "tried". It runs on.
	Dials *pods.Spec
	// Inside returns the argv of a command for a container of Runs, nil where the runtime has none of
	// this name: see insideCases.
	Inside func(args ...string) []string
}

// A RuntimeCase is one rule of pods.Runtime.
type RuntimeCase struct {
	Name string
	Why  string // the rule, printed when it is broken
	Run  func(t *testing.T, h Harness)
}

// TestRuntime runs every case on a Harness of its own.
func TestRuntime(t *testing.T, harness func(t *testing.T) Harness) {
	for _, c := range RuntimeCases() {
		t.Run(c.Name, func(t *testing.T) { c.Test(t, harness(t)) })
	}
}

// RuntimeCases returns the rules, for callers that must wrap each: a testing/synctest bubble
// has to be entered inside t.Run.
func RuntimeCases() []RuntimeCase {
	return slices.Concat(lifeCases(), diskCases(), networkCases(), logCases(), watchCases(), insideCases())
}

// Test runs the case and prints its rule when it is broken.
func (c RuntimeCase) Test(t *testing.T, h Harness) {
	t.Helper()
	suite.Explain(t, c.Why)
	if h.Programs.Runs == nil {
		t.Fatal("Harness.Programs.Runs is required")
	}
	if h.Timeout == 0 {
		h.Timeout = 30 * time.Second
	}
	c.Run(t, h)
}

// pollInterval is the time between two checks.
const pollInterval = 10 * time.Millisecond

func (h Harness) poll() {
	if h.Sleep != nil {
		h.Sleep(pollInterval)
		return
	}
	t := time.NewTimer(pollInterval)
	<-t.C
}

// until waits until done holds.
func (h Harness) until(t *testing.T, what string, done func() bool) {
	t.Helper()
	for waited := time.Duration(0); !done(); waited += pollInterval {
		if waited > h.Timeout {
			t.Fatalf("waited %s: %s", h.Timeout, what)
		}
		h.poll()
	}
}

// newID returns a new id for a pod or a volume. Hosts are shared with other tests.
func newID() string { return strings.ToLower(rand.Text()[:14]) }

// pod makes a spec of a program: generation 1, run 1. The pod is removed at the end.
func (h Harness) pod(t *testing.T, program *pods.Spec, change ...func(*pods.Spec)) pods.Spec {
	t.Helper()
	if program == nil {
		t.Skip("this runtime has no program for the case")
	}
	s := *program
	s.PodID, s.Owner, s.Gen, s.Run, s.Disk = newID(), "user-1", 1, 1, 1
	s.Args = slices.Clone(s.Args)
	for _, f := range change {
		f(&s)
	}
	rt := h.Runtime
	t.Cleanup(func() {
		// It fails when another Runtime has taken over and was closed.
		_ = rt.Remove(context.WithoutCancel(t.Context()), s.PodID, 0)
	})
	return s
}

func (h Harness) exits(t *testing.T, code int) pods.Spec {
	t.Helper()
	if h.Programs.Exits == nil {
		t.Skip("this runtime has no program that exits with a code")
	}
	s := h.Programs.Exits(code)
	return h.pod(t, &s)
}

func (h Harness) ensure(t *testing.T, s pods.Spec) {
	t.Helper()
	if err := h.Runtime.Ensure(t.Context(), s); err != nil {
		t.Fatalf("Ensure(gen %d, run %d) = %v, want nil", s.Gen, s.Run, err)
	}
}

func (h Harness) stop(t *testing.T, id string, grace time.Duration) {
	t.Helper()
	if err := h.Runtime.Stop(t.Context(), id, grace); err != nil {
		t.Fatalf("Stop = %v, want nil", err)
	}
}

func (h Harness) remove(t *testing.T, id string) {
	t.Helper()
	if err := h.Runtime.Remove(t.Context(), id, time.Second); err != nil {
		t.Fatalf("Remove = %v, want nil", err)
	}
}

// listed returns the state of a pod if it is listed, and fails the test if it is listed twice.
func (h Harness) listed(t *testing.T, id string) (state pods.ContainerState, ok bool) {
	t.Helper()
	all, err := h.Runtime.List(t.Context())
	if err != nil {
		t.Fatalf("List = %v, want nil", err)
	}
	for _, s := range all {
		if s.PodID != id {
			continue
		}
		if ok {
			t.Fatalf("List has pod %s twice: %+v and %+v", id, state, s)
		}
		state, ok = s, true
	}
	return state, ok
}

// await waits until the generation and run of s are in a phase. It fails the test at another
// end.
func (h Harness) await(t *testing.T, s pods.Spec, phase pods.Phase) pods.ContainerState {
	t.Helper()
	var last pods.ContainerState
	h.until(t, "for phase "+phaseNames[phase], func() bool {
		var ok bool
		last, ok = h.listed(t, s.PodID)
		if !ok || last.Gen != s.Gen || last.Run != s.Run {
			return false
		}
		if last.Phase != phase && last.Phase >= pods.PhaseExited {
			t.Fatalf("pod is %s, want %s: %+v", phaseNames[last.Phase], phaseNames[phase], last)
		}
		return last.Phase == phase
	})
	return last
}

var phaseNames = [...]string{
	pods.PhasePulling: "Pulling", pods.PhaseStarting: "Coming", pods.PhaseHealthy: "Up", pods.PhaseExited: "Down", pods.PhaseFailed: "Failed",
}

// up ensures s and waits until it is healthy.
func (h Harness) up(t *testing.T, s pods.Spec) pods.ContainerState {
	t.Helper()
	h.ensure(t, s)
	return h.await(t, s, pods.PhaseHealthy)
}
