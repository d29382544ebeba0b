package pods_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func TestHowAContainerEndsDecidesTheStatus(t *testing.T) {
	for image, want := range map[string]struct {
		status pods.Status
		reason string
	}{
		"ends/well":     {pods.Exited, "container exited with code 0"},
		"ends/badly":    {pods.Errored, "container exited with code 3"},
		"ends/hungry":   {pods.Errored, "container ran out of memory and was killed"},
		"ends/orderly":  {pods.Exited, "the host was shut down"},
		"ends/unpulled": {pods.Errored, "no such image"},
	} {
		w := newTestEnv(t, nil)
		r := gpuPod()
		r.Image = image
		p := w.create(r)
		w.advance(time.Minute)
		p = w.want(p.ID, want.status)
		if last := p.Journal[len(p.Journal)-1].Text; last != want.reason || p.Seen.Reason != want.reason {
			t.Errorf("%s: last line %q and reason %q, want %q", image, last, p.Seen.Reason, want.reason)
		}
		if len(p.Placement.Claims) != 0 || p.Cost() != 0 || p.Placement.Host == "" {
			t.Errorf("%s: claims %v, cost %v, host %q; want its compute free and its host kept", image, p.Placement.Claims, p.Cost(), p.Placement.Host)
		}
	}
}

func TestStopFreesComputeAndStartTakesTheSameContainer(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(gpuPod())
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	stopped := w.want(p.ID, pods.Exited)
	if len(stopped.Placement.Claims) != 0 || stopped.Cost() != 0 {
		t.Errorf("a stopped pod holds %v at %v USD", stopped.Placement.Claims, stopped.Cost())
	}
	if !stopped.Seen.Started.Equal(p.Seen.Started) {
		t.Errorf("startedAt = %v after a stop, want the last start, %v", stopped.Seen.Started, p.Seen.Started)
	}
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	again := w.want(p.ID, pods.Running)
	if again.Seen.Gen != 1 || again.Seen.Run != 2 || again.Placement.Host != p.Placement.Host || len(again.Placement.Claims) == 0 {
		t.Errorf("started pod: generation %d, run %d, host %q, claims %v; want the same container on the same host",
			again.Seen.Gen, again.Seen.Run, again.Placement.Host, again.Placement.Claims)
	}
	if !again.Seen.Started.After(p.Seen.Started) {
		t.Errorf("startedAt = %v, want the last start", again.Seen.Started)
	}
}

func TestRestartAndResetMakeAnotherContainerOnTheSameHost(t *testing.T) {
	for _, a := range []pods.Action{pods.Restart, pods.Reset} {
		w := newTestEnv(t, nil)
		p := w.running(gpuPod())
		got := w.act(p.ID, a)
		if got.Want.Gen != 2 || got.Want.Pull != (a == pods.Reset) {
			t.Errorf("%s wants generation %d, pull %t; want another container, pulled for a reset only", a, got.Want.Gen, got.Want.Pull)
		}
		if got.Cost() != p.Cost() {
			t.Errorf("%s costs %v, want %v: compute stays held", a, got.Cost(), p.Cost())
		}
		w.advance(time.Minute)
		got = w.want(p.ID, pods.Running)
		if diff := cmp.Diff(p.Placement, got.Placement); diff != "" {
			t.Errorf("%s moved the pod (-before +after):\n%s", a, diff)
		}
	}
}

func TestAnUpdateTakesEffectWithTheNextContainer(t *testing.T) {
	for _, how := range []string{"start", "restart", "reset"} {
		w := newTestEnv(t, nil)
		p := w.running(gpuPod())
		if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Image: new("img:2")}); err != nil {
			t.Fatal(err)
		}
		w.advance(time.Minute)
		if got := w.get(p.ID); got.Want.Applied.Image != "img" || got.Config.Image != "img:2" {
			t.Errorf("after the update the pod shows %q and runs %q", got.Config.Image, got.Want.Applied.Image)
		}
		switch how {
		case "start":
			w.act(p.ID, pods.Stop)
			w.advance(time.Minute)
			w.act(p.ID, pods.Start)
		case "restart":
			w.act(p.ID, pods.Restart)
		case "reset":
			w.act(p.ID, pods.Reset)
		}
		w.advance(time.Minute)
		got := w.want(p.ID, pods.Running)
		if got.Want.Applied.Image != "img:2" || got.Seen.Gen != 2 {
			t.Errorf("%s: generation %d of %q, want generation 2 of img:2", how, got.Seen.Gen, got.Want.Applied.Image)
		}
	}
}

func TestATerminatedPodIsGoneAtOnceAndFreeWhenItsHostSaysSo(t *testing.T) {
	for status, bring := range podsByStatus {
		w := newTestEnv(t, func(s *envConfig) { s.options.Grace = time.Second })
		p := w.want(bring(w).ID, status)
		claims := w.get(p.ID).Placement.Claims
		if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Get(t.Context(), alice, p.ID); !errors.Is(err, pods.ErrNotFound) {
			t.Errorf("%s: Get of a terminated pod = %v, want ErrNotFound", status, err)
		}
		if err := w.Terminate(t.Context(), alice, p.ID); !errors.Is(err, pods.ErrNotFound) {
			t.Errorf("%s: second Terminate = %v, want ErrNotFound", status, err)
		}
		if list, _ := w.List(t.Context(), alice); len(list) != 0 {
			t.Errorf("%s: a terminated pod is listed", status)
		}
		for _, c := range claims {
			if n, _ := w.store.Claimed(t.Context(), c.Resource); n == 0 {
				t.Errorf("%s: %s is free before its host removed the pod", status, c.Resource)
			}
		}
		w.advance(0)
		if list, _ := w.runtime.List(t.Context()); len(list) != 0 {
			t.Errorf("%s: the host still has %+v", status, list)
		}
		for _, c := range claims {
			if n, _ := w.store.Claimed(t.Context(), c.Resource); n != 0 {
				t.Errorf("%s: %d of %s are claimed after the removal", status, n, c.Resource)
			}
		}
		if _, err := w.store.Get(t.Context(), p.ID); !errors.Is(err, pods.ErrNotFound) {
			t.Errorf("%s: the record is still there: %v", status, err)
		}
	}
}

func TestThePlatformsVariablesWin(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, func(s *envConfig) {
		withDependencies(s)
		s.hosts = func(rt pods.Runtime) []pods.Host {
			spy.Runtime = rt
			return pods.SimulatedHosts(s.catalog, spy)
		}
	})
	r := gpuPod()
	r.GPU.Count, r.Args, r.Ports, r.Registry = new(2), new("serve 'a b'"), []string{"80/http", "53/udp"}, new("reg")
	r.Env = map[string]string{"RUNPOD_POD_ID": "mine", "A": "b"}
	r.GlobalNetworking = true
	network("vol")(&r)
	p := w.create(r)
	w.advance(0)
	got := spy.specs()[0]
	want := pods.Spec{
		PodID: p.ID, Owner: alice, Gen: 1, Run: 1, Image: "img", Args: []string{"serve", "a b"},
		Env: map[string]string{
			"A": "b", "RUNPOD_POD_ID": p.ID, "RUNPOD_POD_HOSTNAME": p.ID, "RUNPOD_DC_ID": "EU-RO-1",
			"RUNPOD_GPU_COUNT": "2", "RUNPOD_VOLUME_ID": "vol",
		},
		PlatformEnv: []string{"RUNPOD_DC_ID", "RUNPOD_GPU_COUNT", "RUNPOD_POD_HOSTNAME", "RUNPOD_POD_ID", "RUNPOD_VOLUME_ID"},
		Ports:       []pods.Port{{Private: 80, Protocol: "http"}, {Private: 53, Protocol: "udp"}},
		Disk:        50, Mounts: []pods.Mount{{VolumeID: "vol", Path: "/v"}}, GPUType: rtx4090, GPUs: 2, NetworkAlias: p.ID + ".podyard.internal",
		Credential: pods.Credential{Registry: "registry.example", Username: "user", Password: "secret"}, Grace: pods.DefaultStopGrace,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("spec (-want +got):\n%s", diff)
	}
	c := w.create(cpuPod())
	w.advance(0)
	got = spy.specs()[1]
	if got.VCPU != 2 || got.Memory != 4 || got.Env["RUNPOD_CPU_COUNT"] != "2" || got.Env["RUNPOD_GPU_COUNT"] != "" || got.PodID != c.ID {
		t.Errorf("spec of a CPU pod is %+v, want its vCPUs and memory", got)
	}
}

func TestACredentialThatIsGoneFailsThePod(t *testing.T) {
	keys := credentials{"reg": "secret"}
	w := newTestEnv(t, func(s *envConfig) { s.options.Secrets = keys })
	r := gpuPod()
	r.Registry = new("reg")
	p := w.create(r)
	delete(keys, "reg")
	w.advance(time.Minute)
	if p = w.want(p.ID, pods.Errored); !strings.Contains(p.Seen.Reason, "registry credential reg") {
		t.Errorf("reason = %q, want it to name the credential", p.Seen.Reason)
	}
	keys["reg"] = "secret"
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
	delete(keys, "reg")
	w.act(p.ID, pods.Restart)
	w.advance(time.Minute)
	w.want(p.ID, pods.Errored)
	if list, _ := w.runtime.List(t.Context()); list[0].Phase != pods.PhaseExited {
		t.Errorf("a container of a pod that failed still runs: %+v", list[0])
	}
}

func TestACallThatTheHostDidNotTakeIsRepeatedWithGrowingPauses(t *testing.T) {
	spy := &recorder{refuse: true}
	w := newTestEnv(t, withRecorder(spy))
	p := w.create(gpuPod())
	for _, want := range []int{1, 2, 3, 4} { // at 0, 1, 3 and 7 seconds
		w.advance(0)
		if spy.refused != want {
			t.Errorf("at %v the host was called %d times, want %d", w.clock.Now().Sub(start), spy.refused, want)
		}
		w.advance(time.Second << (want - 1))
	}
	got := w.get(p.ID)
	if n := strings.Count(journal(got), "did not take the call"); n != 1 {
		t.Errorf("the journal says %d times that calls fail, want once:\n%s", n, journal(got))
	}
	if strings.Contains(journal(got), errRefused.Error()) {
		t.Error("the journal shows the host's own error to the user")
	}
	spy.refuse = false
	w.advance(time.Minute)
	if got = w.want(p.ID, pods.Running); got.Seen.Tries != 0 || !got.Seen.RetryAt.IsZero() {
		t.Errorf("tries %d, next at %v after a success; want none", got.Seen.Tries, got.Seen.RetryAt)
	}
}

func TestANewOrderDoesNotWaitForRetriesOfAnOldOne(t *testing.T) {
	spy := &recorder{refuse: true}
	w := newTestEnv(t, withRecorder(spy))
	p := w.create(gpuPod())
	w.advance(40 * time.Second)
	spy.refuse = false
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	if _, err := w.store.Get(t.Context(), p.ID); !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("the pod is still there: %v", err)
	}
}

func TestRunDoesWhatStepDoes(t *testing.T) {
	for _, silent := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			spy := &recorder{}
			w := newTestEnv(t, func(s *envConfig) {
				s.options.Clock, s.runtime.Clock = nil, nil
				s.hosts = func(rt pods.Runtime) []pods.Host {
					spy.Runtime = rt
					if silent {
						spy.Runtime = struct{ pods.Runtime }{rt}
					}
					return pods.SimulatedHosts(s.catalog, spy)
				}
			})
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			p := w.create(gpuPod())
			time.Sleep(2 * time.Second)
			synctest.Wait()
			w.want(p.ID, pods.Running)
			w.act(p.ID, pods.Stop)
			synctest.Wait()
			w.want(p.ID, pods.Exited)
			w.act(p.ID, pods.Start)
			time.Sleep(time.Second)
			synctest.Wait()
			w.want(p.ID, pods.Running)
			if err := w.Terminate(ctx, alice, p.ID); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if list, _ := w.runtime.List(ctx); len(list) != 0 {
				t.Errorf("silent %t: the host still has %+v", silent, list)
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("silent %t: Run = %v, want nil", silent, err)
			}
		})
	}
}

func TestOnePodIsInOnePairOfHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		spy := &recorder{}
		w := newTestEnv(t, func(s *envConfig) {
			s.options.Clock, s.runtime.Clock = nil, nil
			withRecorder(spy)(s)
		})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		var wg sync.WaitGroup
		for range 8 {
			p := w.create(gpuPod())
			for range 4 {
				wg.Go(func() {
					for range 10 {
						for _, a := range []pods.Action{pods.Stop, pods.Start, pods.Restart, pods.Reset} {
							_, err := w.Act(ctx, alice, p.ID, a)
							if err != nil && !errors.Is(err, pods.ErrInvalidStatus) && !errors.Is(err, pods.ErrNoCapacity) {
								t.Errorf("%s = %v", a, err)
							}
							time.Sleep(100 * time.Millisecond)
						}
					}
				})
			}
		}
		wg.Wait()
		time.Sleep(time.Minute)
		synctest.Wait()
		list, err := w.List(ctx, alice)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range list {
			if s := p.Status(); s != pods.Running && s != pods.Exited {
				t.Errorf("pod rests at %s, want RUNNING or EXITED; journal:\n%s", s, journal(p))
			}
			if (p.Status() == pods.Running) != (len(p.Placement.Claims) > 0) {
				t.Errorf("pod that is %s claims %v", p.Status(), p.Placement.Claims)
			}
		}
		if spy.overlapping {
			t.Error("a runtime was called twice at once for one pod")
		}
		cancel()
		<-ended
	})
}
