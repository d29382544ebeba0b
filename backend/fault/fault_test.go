package fault_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/accounts/accountstest"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/billing/billingtest"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/secrets/secretstest"
	"github.com/podyard/podyard/pods/sshkeys"
	"github.com/podyard/podyard/pods/sshkeys/sshkeystest"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/templates/templatestest"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/pods/volumes/volumestest"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
	"github.com/podyard/podyard/serverless/batches"
	"github.com/podyard/podyard/serverless/batches/batchestest"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/joblog"
	"github.com/podyard/podyard/serverless/joblog/joblogtest"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/schedules"
	"github.com/podyard/podyard/serverless/schedules/schedulestest"
	"github.com/podyard/podyard/serverless/serverlesstest"
)

// Without rules a wrapper behaves as what it wraps.
func TestWithoutRulesNothingFails(t *testing.T) {
	p := fault.NewPlan(1)
	t.Run("Pods", func(t *testing.T) {
		podstest.TestStore(t, func(*testing.T) pods.PodStore { return fault.Pods(memory.NewPods(), p) })
	})
	t.Run("Registries", func(t *testing.T) {
		registriestest.TestStore(t, func(*testing.T) registries.Store { return fault.Registries(memory.NewRegistries(), p) })
	})
	t.Run("Templates", func(t *testing.T) {
		templatestest.TestStore(t, func(*testing.T) templates.Store { return fault.Templates(memory.NewTemplates(), p) })
	})
	t.Run("Volumes", func(t *testing.T) {
		volumestest.TestStore(t, func(*testing.T) volumes.Store { return fault.Volumes(memory.NewVolumes(), p) })
	})
	t.Run("Secrets", func(t *testing.T) {
		secretstest.TestStore(t, func(*testing.T) secrets.Store { return fault.Secrets(memory.NewSecrets(), p) })
	})
	t.Run("Schedules", func(t *testing.T) {
		schedulestest.TestStore(t, func(*testing.T) schedules.Store { return fault.Schedules(memory.NewSchedules(), p) })
	})
	t.Run("Batches", func(t *testing.T) {
		batchestest.TestStore(t, func(*testing.T) batches.Store { return fault.Batches(memory.NewBatches(), p) })
	})
	t.Run("JobLogs", func(t *testing.T) {
		joblogtest.TestStore(t, func(*testing.T) joblog.Store { return fault.JobLogs(memory.NewJobLogs(), p) })
	})
	t.Run("Accounts", func(t *testing.T) {
		accountstest.TestStore(t, func(*testing.T) accounts.Store { return fault.Accounts(memory.NewAccounts(), p) })
	})
	t.Run("SSHKeys", func(t *testing.T) {
		sshkeystest.TestStore(t, func(*testing.T) sshkeys.Store { return fault.SSHKeys(memory.NewSSHKeys(), p) })
	})
	t.Run("Billing", func(t *testing.T) {
		billingtest.TestStore(t, func(*testing.T) billing.Store { return fault.Billing(memory.NewBilling(), p) })
	})
	t.Run("Endpoints", func(t *testing.T) {
		serverlesstest.TestEndpointStore(t, func(*testing.T) endpoints.Store { return fault.Endpoints(memory.NewEndpoints(), p) })
	})
	t.Run("Jobs", func(t *testing.T) {
		serverlesstest.TestJobQueue(t, func(*testing.T) queue.JobQueue { return fault.Jobs(memory.NewJobs(), p) })
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
	if _, err := q.Stats(t.Context(), 1, "e", nil); !errors.Is(err, fault.ErrCrashed) || !p.Crashed() {
		t.Errorf("Stats after a crash = %v, want ErrCrashed", err)
	}
	p.Restart()
	if err := s.Create(t.Context(), pod("a")); err != nil {
		t.Errorf("Create after Restart = %v", err)
	}
}

func TestRulesCountAndAreTurnedOnAndOff(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Name: "slow death", Call: "pods.*", Skip: 1, Times: 2, Disabled: true})
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
		s := fault.Pods(memory.NewPods(), fault.NewPlan(seed, fault.Rule{Call: "*", Probability: 0.5}))
		for range 64 {
			if _, err := s.Claimed(t.Context(), "r"); err == nil {
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

type tenant struct{}

func TestWhenSaysWhichCallsARuleIsFor(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Call: "pods.*", Times: 1, When: func(ctx context.Context, resource string) bool {
		return ctx.Value(tenant{}) == "alice" && resource != "spare"
	}})
	s := fault.Pods(memory.NewPods(), p)
	alice := context.WithValue(t.Context(), tenant{}, "alice")
	if err := s.Create(t.Context(), pod("a")); err != nil {
		t.Errorf("Create for nobody = %v, want nil: the rule is for alice", err)
	}
	if _, err := s.Claimed(alice, "spare"); err != nil {
		t.Errorf("Used of what the rule leaves out = %v, want nil", err)
	}
	if err := s.Create(alice, pod("b")); !errors.Is(err, fault.ErrInjected) {
		t.Errorf("Create for alice = %v, want ErrInjected: the other calls did not count", err)
	}
}

func TestAPlanTellsItsSeedAndWhatHappened(t *testing.T) {
	p := fault.NewPlan(42, fault.Rule{Name: "full disk", Call: "pods.Create"}, fault.Rule{Call: "jobs.*"})
	_ = fault.Pods(memory.NewPods(), p).Create(t.Context(), pod("a"))
	if got, want := p.String(), "faults of seed 42: full disk 1 times, jobs.* 0 times"; got != want {
		t.Errorf("plan = %q, want %q", got, want)
	}
}

// If a fault makes hosts full, they refuse a pod as full hosts do.
func TestFullRefusesAPodAsFullHostsDo(t *testing.T) {
	cat := catalog.Sample()
	create := func(rules ...fault.Rule) (*pods.Pod, error) {
		store := fault.Pods(memory.NewPods(), fault.NewPlan(1, rules...))
		s, err := pods.New(store, cat, pods.SimulatedHosts(cat, memory.NewRuntime(nil)), nil)
		if err != nil {
			t.Fatal(err)
		}
		return s.Create(t.Context(), "alice", pods.CreateRequest{Name: "n", Image: "i", CPU: &pods.CPURequest{ID: "cpu3c", VCPU: 2}})
	}
	first, err := create()
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range []fault.Rule{{Call: "pods.Claimed", Kind: fault.Full}, {Call: "pods.Claimed", Err: pods.ErrNoCapacity}} {
		if _, err := create(rule); !errors.Is(err, pods.ErrNoCapacity) || problem.KindOf(err) != problem.BadRequest {
			t.Errorf("Create with %+v = %v, want ErrNoRoom", rule, err)
		}
	}
	// If one host is full, the pod goes to another one.
	host := first.Placement.Host
	full := func(_ context.Context, resource string) bool { return strings.Contains(resource, "/"+host+"/") }
	p, err := create(fault.Rule{Call: "pods.Claimed", Kind: fault.Full, When: full})
	if err != nil || p.Placement.Host == host {
		t.Errorf("Create with %s full = %+v, %v, want it on another host", host, p, err)
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

// optional is an optional interface.
type optional interface{ Slowly() }

type withOptional struct{ pods.Runtime }

func (withOptional) Slowly() {}

func TestOptionalPowersAreFoundBehindAWrapper(t *testing.T) {
	p := fault.NewPlan(1, fault.Rule{Call: "runtime.*"})
	rt := fault.Containers(fault.Containers(withOptional{}, p), p)
	if _, ok := pods.As[optional](rt); !ok {
		t.Error("the power is not found")
	}
	if err := rt.Ensure(t.Context(), pods.Spec{}); !errors.Is(err, fault.ErrInjected) {
		t.Errorf("Ensure = %v, want ErrInjected", err)
	}
}

// With one fault for every call, no acknowledged operation is lost.
func TestALedgerAgreesWithAQueueThatFails(t *testing.T) {
	under := memory.NewJobs()
	q := fault.Jobs(under, fault.NewPlan(5, fault.Rule{Call: "jobs.*", Kind: fault.Before, Probability: 0.2}, fault.Rule{Call: "jobs.*", Kind: fault.After, Probability: 0.2}))
	l := serverlesstest.NewLedger(q)
	ctx := t.Context()
	for i := range 200 {
		now := queue.Instant(1_780_000_000_000 + i)
		j := queue.Job{Ref: queue.Ref{Endpoint: "e", ID: queue.JobID(fmt.Sprint("j", i))}, Input: []byte("{}")}
		j.State = queue.State{Submitted: now, Queued: now, Expires: now + 1e6, Terms: queue.Terms{ExecTimeout: 1e5 * time.Millisecond, Retain: 1e5 * time.Millisecond}}
		_ = l.Enqueue(ctx, []queue.Job{j})
		jobs, err := l.Claim(ctx, now, []queue.Slot{{Endpoint: "e", Worker: "w", N: 1, Until: now + 1000}}, nil)
		if err != nil {
			continue
		}
		for _, j := range jobs {
			op := queue.Op{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: "w", Token: j.Token, Payload: []byte(`1`)}
			_ = l.Apply(ctx, now, []queue.Op{op}, make([]queue.Result, 1))
		}
	}
	if err := l.Err(); err != nil {
		t.Fatal(err)
	}
}
