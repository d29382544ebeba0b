package pods_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

// withExtras is r with settings that only this service has.
func withExtras(r pods.CreateRequest, x pods.ExtrasChange) pods.CreateRequest {
	r.Extras = x
	return r
}

// ofImage is r with another image.
func ofImage(r pods.CreateRequest, image string) pods.CreateRequest {
	r.Image = image
	return r
}

func TestAPodStartsAgainAfterTheEndsThatItsPolicyNames(t *testing.T) {
	for _, c := range []struct {
		image  string
		policy pods.RestartPolicy
		runs   uint64
		ends   pods.Status
	}{
		{"ends/well", "", 1, pods.Exited},
		{"ends/well", pods.RestartNever, 1, pods.Exited},
		{"ends/well", pods.RestartOnFailure, 1, pods.Exited},
		{"ends/well", pods.RestartAlways, 4, pods.Exited},
		{"ends/badly", pods.RestartNever, 1, pods.Errored},
		{"ends/badly", pods.RestartOnFailure, 4, pods.Errored},
		{"ends/badly", pods.RestartAlways, 4, pods.Errored},
		{"ends/hungry", pods.RestartOnFailure, 4, pods.Errored},
		{"ends/orderly", pods.RestartAlways, 1, pods.Exited},
		{"ends/unpulled", pods.RestartAlways, 1, pods.Errored},
	} {
		w := newTestEnv(t, nil)
		p := w.create(withExtras(ofImage(gpuPod(), c.image), pods.ExtrasChange{Restart: &c.policy, MaxRestarts: new(3)}))
		w.advance(time.Hour)
		got := w.want(p.ID, c.ends)
		if got.Want.Run != c.runs || got.Want.Gen != 1 || len(got.Placement.Claims) != 0 {
			t.Errorf("%s with %q: run %d of generation %d, %d claims; want run %d of the first one and none; journal:\n%s", c.image, c.policy, got.Want.Run, got.Want.Gen, len(got.Placement.Claims), c.runs, journal(got))
		}
	}
}

func TestPausesBetweenRestartsGrowAndKeepTheCompute(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(withExtras(ofImage(gpuPod(), "ends/badly"), pods.ExtrasChange{Restart: new(pods.RestartOnFailure)}))
	for n, pause := range []time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second} {
		w.advance(3 * time.Second) // the run
		got := w.want(p.ID, pods.Starting)
		if wait := got.Seen.RetryAt.Sub(w.clock.Now()); wait <= pause-2*time.Second || wait > pause || len(got.Placement.Claims) == 0 {
			t.Fatalf("restart %d comes in %v with %d claims, want within %v with its GPU; journal:\n%s", n+1, wait, len(got.Placement.Claims), pause, journal(got))
		}
		w.advance(got.Seen.RetryAt.Sub(w.clock.Now()))
	}
}

func TestAStopDuringAPauseEndsTheRestarts(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(withExtras(ofImage(gpuPod(), "ends/badly"), pods.ExtrasChange{Restart: new(pods.RestartAlways)}))
	w.advance(5 * time.Second)
	w.act(p.ID, pods.Stop)
	w.advance(time.Hour)
	if got := w.want(p.ID, pods.Exited); got.Seen.Reason != "stopped by its user" || len(got.Placement.Claims) != 0 {
		t.Errorf("reason %q, %d claims; want stopped by its user, without any", got.Seen.Reason, len(got.Placement.Claims))
	}
	w.act(p.ID, pods.Start)
	w.advance(5 * time.Second)
	if got := w.want(p.ID, pods.Starting); got.Seen.Restarts != 1 {
		t.Errorf("after a start of its user it has started again %d times, want 1: the count begins anew", got.Seen.Restarts)
	}
}

func TestAPodWhoseHostWentAwayStartsAgain(t *testing.T) {
	w := newTestEnv(t, func(c *envConfig) {
		c.runtime.Scripts = append(c.runtime.Scripts, memory.Script{Image: "rebooted", Stages: []memory.Stage{
			{Phase: pods.PhaseStarting}, {Phase: pods.PhaseHealthy},
			{Phase: pods.PhaseExited, After: time.Minute, Stopped: true, HostWent: true, Reason: "its host was restarted"},
		}})
	})
	p := w.create(ofImage(gpuPod(), "rebooted"))
	w.advance(90 * time.Second)
	got := w.want(p.ID, pods.Running)
	if got.Want.Run != 2 || got.Want.Gen != 1 || !strings.Contains(journal(got), "its host was restarted; it starts again") {
		t.Errorf("run %d of generation %d, journal:\n%swant another run of the same container and the reason", got.Want.Run, got.Want.Gen, journal(got))
	}
	w.act(p.ID, pods.Stop)
	w.advance(time.Hour)
	w.want(p.ID, pods.Exited)
}

func TestAPodEndsAfterItsTime(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.create(withExtras(gpuPod(), pods.ExtrasChange{StopAfter: new(time.Hour)}))
	w.advance(time.Hour)
	w.want(p.ID, pods.Running)
	w.advance(time.Second)
	got := w.want(p.ID, pods.Exited)
	if want := "stopped 1h0m0s after its start, as its stopAfter says"; got.Seen.Reason != want || got.Cost() != 0 {
		t.Errorf("reason %q, cost %v; want %q and none", got.Seen.Reason, got.Cost(), want)
	}
	w.act(p.ID, pods.Start)
	w.advance(30 * time.Minute)
	w.want(p.ID, pods.Running) // its time begins anew
	if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Extras: pods.ExtrasChange{StopAfter: new(time.Duration(0))}}); err != nil {
		t.Fatal(err)
	}
	w.advance(2 * time.Hour)
	w.want(p.ID, pods.Running)
}

func TestAPodThatIdlesIsStopped(t *testing.T) {
	load := func(gpu, cpu float64) memory.Load {
		return memory.Load{GPU: memory.Curve{Base: gpu}, CPU: memory.Curve{Base: cpu}}
	}
	stages := memory.DefaultScript().Stages
	w := newTestEnv(t, func(c *envConfig) {
		c.runtime.Scripts = []memory.Script{
			{Image: "idle", Stages: stages, Load: load(2, 3)},
			{Image: "reads", Stages: stages, Load: load(2, 60)},
			{Image: "trains", Stages: stages, Load: load(90, 3)},
		}
	})
	idle := &pods.Idle{For: 10 * time.Minute, GPU: 5, CPU: 5}
	ids := map[string]string{}
	for _, image := range []string{"idle", "reads", "trains"} {
		ids[image] = w.create(withExtras(ofImage(gpuPod(), image), pods.ExtrasChange{Idle: idle})).ID
	}
	cpu := w.create(withExtras(ofImage(cpuPod(), "trains"), pods.ExtrasChange{Idle: idle})).ID
	w.advance(9 * time.Minute)
	w.want(ids["idle"], pods.Running)
	w.advance(3 * time.Minute)
	if got, want := w.want(ids["idle"], pods.Exited).Seen.Reason, "stopped because it did nothing for 10m0s: its GPUs were at 2 %, its CPU at 3 % last"; got != want {
		t.Errorf("reason = %q, want %q", got, want)
	}
	w.want(cpu, pods.Exited)
	w.advance(24 * time.Hour)
	w.want(ids["reads"], pods.Running)
	w.want(ids["trains"], pods.Running)
}

func TestAStopTellsAKillFromAnEnd(t *testing.T) {
	w := newTestEnv(t, func(c *envConfig) {
		for _, end := range []struct {
			image string
			after time.Duration
		}{{"quick", 9 * time.Second}, {"stubborn", time.Hour}} {
			c.runtime.Scripts = append(c.runtime.Scripts, memory.Script{Image: end.image, StopAfter: end.after, Stages: memory.DefaultScript().Stages})
		}
	})
	for _, c := range []struct {
		image string
		grace *time.Duration
		takes time.Duration
		want  string
	}{
		{"quick", nil, 9 * time.Second, "stopped by its user"},
		{"stubborn", nil, 10 * time.Second, "stopped by its user; it did not end in 10s and was killed"},
		{"quick", new(2 * time.Second), 2 * time.Second, "stopped by its user; it did not end in 2s and was killed"},
		{"quick", new(-time.Second), 0, "stopped by its user; it did not end in 0s and was killed"},
	} {
		p := w.running(withExtras(ofImage(gpuPod(), c.image), pods.ExtrasChange{StopGrace: c.grace}))
		w.act(p.ID, pods.Stop)
		w.advance(max(c.takes-time.Millisecond, 0))
		if c.takes > 0 {
			w.want(p.ID, pods.Running)
		}
		w.advance(time.Millisecond)
		if got := w.want(p.ID, pods.Exited).Seen.Reason; got != c.want {
			t.Errorf("%s after %v: reason = %q, want %q", c.image, c.takes, got, c.want)
		}
	}
}

func TestAChangeOfExtrasGoesMemberByMember(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(withExtras(gpuPod(), pods.ExtrasChange{
		StopGrace: new(time.Minute), User: new("1000:100"), Restart: new(pods.RestartAlways),
		Idle: &pods.Idle{For: time.Hour, CPU: 1}, ShmSize: new(512),
	}))
	change := func(x pods.ExtrasChange) *pods.Pod {
		p, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Extras: x})
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	change(pods.ExtrasChange{StopGrace: new(time.Duration(0)), Idle: &pods.Idle{}})
	got := change(pods.ExtrasChange{ShmSize: new(1024)}).Config.Extras
	want := pods.Extras{User: "1000:100", Restart: pods.RestartAlways, ShmSize: 1024}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("after two changes (-want +got):\n%s", diff)
	}
	if applied := w.get(p.ID).Want.Applied.Extras.ShmSize; applied != 512 {
		t.Errorf("the running container has %d MB, want 512 until its next start", applied)
	}
	w.act(p.ID, pods.Stop)
	w.advance(time.Minute)
	w.act(p.ID, pods.Start)
	if got := w.get(p.ID).Want; got.Gen != 2 || got.Applied.Extras.ShmSize != 1024 {
		t.Errorf("the next start is generation %d with %d MB, want the second one with 1024", got.Gen, got.Applied.Extras.ShmSize)
	}
}

func TestExtrasOutOfBoundsAreRefused(t *testing.T) {
	w := newTestEnv(t, nil)
	for place, x := range map[string]pods.ExtrasChange{
		"/podyard/stopGrace":   {StopGrace: new(pods.MaxStopGrace + 1)},
		"/podyard/shmSize":     {ShmSize: new(-1)},
		"/podyard/user":        {User: new("root shell")},
		"/podyard/maxRestarts": {MaxRestarts: new(1001)},
		"/podyard/stopAfter":   {StopAfter: new(time.Millisecond)},
		"/podyard/idle/for":    {Idle: &pods.Idle{For: time.Second}},
		"/podyard/idle/gpu":    {Idle: &pods.Idle{For: time.Hour, GPU: 101}},
		"/podyard/idle/cpu":    {Idle: &pods.Idle{For: time.Hour, CPU: -1}},
	} {
		_, err := w.Create(t.Context(), alice, withExtras(gpuPod(), x))
		got := problem.Of(err)
		if got.Status != 422 || len(got.Errors) != 1 || !strings.HasPrefix(got.Errors[0], place+":") {
			t.Errorf("%s: %+v, want a 422 that names it", place, got)
		}
	}
	for _, user := range []string{"", "0", "1000:1000", "app", "www-data", "a.b_c:d"} {
		if _, err := w.Create(t.Context(), alice, withExtras(cpuPod(), pods.ExtrasChange{User: &user})); err != nil {
			t.Errorf("user %q: %v", user, err)
		}
	}
}

// A GPU pod has its share of the host's memory alone, and so has everybody who comes after it.
func TestTheShareOfAGPUPodIsReservedAndALimit(t *testing.T) {
	var spy recorder
	w := newTestEnv(t, func(c *envConfig) {
		c.hosts = func(rt pods.Runtime) []pods.Host {
			spy.Runtime = rt
			return []pods.Host{{
				ID: "h", DataCenter: "EU-RO-1", Runtime: &spy, Memory: 64, VCPU: map[string]int{"cpu3c": 16},
				GPUs: []pods.HostGPUs{{Type: rtx4090, Count: 4}},
			}}
		}
	})
	r := gpuPod()
	r.GPU = &pods.GPURequest{ID: rtx4090, Count: new(2)}
	p := w.create(r)
	w.advance(time.Minute)
	if s := spy.specs()[0]; s.VCPU != 8 || s.Memory != 32 {
		t.Errorf("limits = %d vCPUs and %d GB, want 8 and 32: half of the host", s.VCPU, s.Memory)
	}
	if n, err := w.store.Claimed(t.Context(), "memory/h"); n != 32 || err != nil {
		t.Errorf("reserved = %d GB, %v; want 32", n, err)
	}
	flavor, _ := catalog.Sample().CPU("cpu3c")
	each, taken := flavor.Memory(2), 0
	for range 32/each + 1 {
		if _, err := w.Create(t.Context(), alice, cpuPod()); err == nil {
			taken += each
		}
	}
	if taken != 32/each*each {
		t.Errorf("CPU pods got %d GB beside it, want %d", taken, 32/each*each)
	}
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	if n, _ := w.store.Claimed(t.Context(), "memory/h"); n != int64(taken) {
		t.Errorf("reserved after it has gone = %d GB, want %d", n, taken)
	}
}
