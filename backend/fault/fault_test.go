package fault_test

import (
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// Without rules a wrapper is what it wraps.
func TestWithoutRulesNothingFails(t *testing.T) {
	p := fault.NewPlan(1)
	t.Run("Pods", func(t *testing.T) {
		podstest.TestStore(t, func(*testing.T) pods.Store { return fault.Pods(memory.NewPods(), p) })
	})
	t.Run("Registries", func(t *testing.T) {
		registriestest.TestStore(t, func(*testing.T) registries.Store { return fault.Registries(memory.NewRegistries(), p) })
	})
	t.Run("Endpoints", func(t *testing.T) {
		serverlesstest.TestEndpointStore(t, func(*testing.T) serverless.EndpointStore { return fault.Endpoints(memory.NewEndpoints(), p) })
	})
	t.Run("Jobs", func(t *testing.T) {
		serverlesstest.TestJobQueue(t, func(*testing.T) serverless.JobQueue { return fault.Jobs(memory.NewJobs(), p) })
	})
}

func TestADamagedInput(t *testing.T) {
	serverlesstest.TestDamage(t, func(*testing.T) serverlesstest.Damager {
		q := fault.Jobs(memory.NewJobs(), fault.NewPlan(1))
		return serverlesstest.Damager{Queue: q, Damage: q.Damage}
	})
}

func pod(id string) *pods.Pod { return &pods.Pod{ID: id} }

func TestBeforeHasNoEffectAndAfterHas(t *testing.T) {
	for _, c := range []struct {
		kind  fault.Kind
		err   error
		there bool
	}{
		{fault.Before, fault.ErrInjected, false},
		{fault.After, fault.ErrInjected, true},
		{fault.CrashBefore, fault.ErrCrashed, false},
		{fault.CrashAfter, fault.ErrCrashed, true},
	} {
		under := memory.NewPods()
		p := fault.NewPlan(1, fault.Rule{Call: "pods.Create", Kind: c.kind, Times: 1})
		s := fault.Pods(under, p)
		if err := s.Create(t.Context(), pod("a")); !errors.Is(err, c.err) {
			t.Errorf("kind %d: Create = %v, want %v", c.kind, err, c.err)
		}
		if _, err := under.Get(t.Context(), "a"); (err == nil) != c.there {
			t.Errorf("kind %d: the pod is there: %v, want %v", c.kind, err == nil, c.there)
		}
	}
}

func TestAfterACrashNothingAnswersUntilRestart(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Call: "pods.Create", Kind: fault.CrashBefore, Times: 1})
	s, q := fault.Pods(memory.NewPods(), p), fault.Jobs(memory.NewJobs(), p)
	_ = s.Create(t.Context(), pod("a"))
	if _, err := q.Stats(t.Context(), 1, "e"); !errors.Is(err, fault.ErrCrashed) || !p.Crashed() {
		t.Errorf("Stats after a crash = %v, want ErrCrashed", err)
	}
	p.Restart()
	if err := s.Create(t.Context(), pod("a")); err != nil {
		t.Errorf("Create after Restart = %v", err)
	}
}

func TestRulesCountAndAreTurnedOnAndOff(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Name: "slow death", Call: "pods.*", Skip: 1, Times: 2, Off: true})
	s := fault.Pods(memory.NewPods(), p)
	var got []bool
	for i := range 6 {
		if i == 1 {
			p.Enable("slow death", true)
		}
		got = append(got, s.Create(t.Context(), pod(fmt.Sprint(i))) == nil)
	}
	if diff := cmp.Diff([]bool{true, true, false, false, true, true}, got); diff != "" {
		t.Errorf("which calls went well (-want +got):\n%s", diff)
	}
	if n, calls := p.Count("slow death"), p.Calls("pods.Create"); n != 2 || calls != 6 {
		t.Errorf("Count = %d, Calls = %d, want 2 and 6", n, calls)
	}
}

func TestASeedReplays(t *testing.T) {
	draw := func(seed uint64) (got string) {
		s := fault.Pods(memory.NewPods(), fault.NewPlan(seed, fault.Rule{Call: "*", Odds: 0.5}))
		for range 64 {
			if _, err := s.Used(t.Context(), "r"); err == nil {
				got += "."
			} else {
				got += "x"
			}
		}
		return got
	}
	if a, b := draw(3), draw(3); a != b {
		t.Errorf("two plans of one seed:\n%s\n%s", a, b)
	}
	if draw(3) == draw(4) {
		t.Error("plans of two seeds are the same")
	}
}

func TestDelayMakesACallLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := fault.Pods(memory.NewPods(), fault.NewPlan(1, fault.Rule{Call: "pods.Create", Kind: fault.Delay, Delay: time.Minute}))
		begin := time.Now()
		if err := s.Create(t.Context(), pod("a")); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begin); took != time.Minute {
			t.Errorf("Create took %v, want a minute", took)
		}
	})
}

// slowly is an optional power.
type slowly interface{ Slowly() }

type powerful struct{ pods.Runtime }

func (powerful) Slowly() {}

func TestOptionalPowersAreFoundBehindAWrapper(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Call: "runtime.*"})
	rt := fault.Containers(fault.Containers(powerful{}, p), p)
	if _, ok := pods.As[slowly](rt); !ok {
		t.Error("the power is not found")
	}
	if err := rt.Ensure(t.Context(), pods.Spec{}); !errors.Is(err, fault.ErrInjected) {
		t.Errorf("Ensure = %v, want ErrInjected", err)
	}
}

// A fault of every call once: the ledger finds nothing that was acknowledged and lost.
func TestALedgerAgreesWithAQueueThatFails(t *testing.T) {
	under := memory.NewJobs()
	q := fault.Jobs(under, fault.NewPlan(5, fault.Rule{Call: "jobs.*", Kind: fault.Before, Odds: 0.2}, fault.Rule{Call: "jobs.*", Kind: fault.After, Odds: 0.2}))
	l := serverlesstest.NewLedger(q)
	ctx := t.Context()
	for i := range 200 {
		now := serverless.Instant(1_780_000_000_000 + i)
		j := serverless.Job{Ref: serverless.Ref{Endpoint: "e", ID: serverless.JobID(fmt.Sprint("j", i))}, Input: []byte("{}")}
		j.State = serverless.State{Submitted: now, Queued: now, Expires: now + 1e6, ExecTimeout: 1e5, Retain: 1e5}
		_ = l.Enqueue(ctx, []serverless.Job{j})
		jobs, err := l.Claim(ctx, now, []serverless.Slot{{Endpoint: "e", Worker: "w", N: 1, Until: now + 1000}}, nil)
		if err != nil {
			continue
		}
		for _, j := range jobs {
			op := serverless.Op{Ref: j.Ref, Kind: serverless.OpFinish, Status: serverless.Completed, Worker: "w", Token: j.Token, Payload: []byte(`1`)}
			_ = l.Apply(ctx, now, []serverless.Op{op}, make([]serverless.Result, 1))
		}
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
}
