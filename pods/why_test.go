package pods_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/telemetry"
)

func (w *testEnv) why(id string) telemetry.Explanation {
	w.t.Helper()
	e, err := w.Why(w.t.Context(), alice, id)
	if err != nil {
		w.t.Fatalf("Why = %v", err)
	}
	return e
}

func TestAPodThatHasEndedSaysWhyAndSinceWhen(t *testing.T) {
	for image, want := range map[string]string{
		"ends/well":     "It has ended: container exited with code 0. That was 2s after its start: its log may say why.",
		"ends/badly":    "It has failed: container exited with code 3. That was 2s after its start: its log may say why.",
		"ends/hungry":   "It has failed: container ran out of memory and was killed. That was 2s after its start: its log may say why.",
		"ends/orderly":  "It has ended: the host was shut down. That was 2s after its start: its log may say why.",
		"ends/unpulled": "It has failed: no such image.",
	} {
		w := newTestEnv(t, nil)
		r := gpuPod()
		r.Image = image
		p := w.create(r)
		w.advance(time.Hour)
		after := 3 * time.Second
		if image == "ends/unpulled" {
			after = time.Second
		}
		if e := w.why(p.ID); e.Text != want || !e.Since.Equal(start.Add(after)) {
			t.Errorf("%s: %q since %v, want %q since %v", image, e.Text, e.Since.Sub(start), want, after)
		}
	}
}

func TestAPodSaysWhatItWaitsForAtEachStep(t *testing.T) {
	w := newTestEnv(t, nil)
	r := gpuPod()
	r.Image = "slow/one"
	p := w.create(r)
	step := func(when, want string, since time.Duration) {
		t.Helper()
		if e := w.why(p.ID); e.Text != want || !e.Since.Equal(start.Add(since)) {
			t.Errorf("%s: %q since %v, want %q since %v", when, e.Text, e.Since.Sub(start), want, since)
		}
	}
	step("created", "Its host was not asked yet to start it.", 0)
	w.advance(time.Second)
	step("accepted", "Its host makes the container, and first pulls the image slow/one if it is not there.", 0)
	w.advance(time.Minute)
	step("started", "Its container has started, and is not healthy yet.", time.Minute)
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
	if e := w.why(p.ID); e.Text != "" || !e.Since.IsZero() {
		t.Errorf("a pod that runs says %+v", e)
	}
	w.act(p.ID, pods.Stop)
	step("stopping", "It is being stopped, and its container has not ended yet.", 121*time.Second)
	w.advance(time.Hour)
	step("stopped", "It has ended: stopped by its user.", 121*time.Second+500*time.Millisecond)
	if _, err := w.Why(t.Context(), bob, p.ID); !errors.Is(err, pods.ErrNotFound) {
		t.Errorf("Why of another user's pod = %v, want ErrNotFound", err)
	}
}

func TestAPodSaysHowFarThePullOfItsImageIs(t *testing.T) {
	w := newTestEnv(t, nil)
	r := gpuPod()
	r.Image = "busy/one"
	p := w.create(r)
	w.advance(time.Second)
	w.advance(10 * time.Second)
	want := "Its host makes the container, and first pulls the image busy/one if it is not there. " +
		"It says: pull failed, try 1: 503 Service Unavailable; next try in 2s."
	if e := w.why(p.ID); e.Text != want {
		t.Errorf("while its registry is busy: %q, want %q", e.Text, want)
	}
	w.advance(time.Minute)
	told := 0
	for _, l := range w.want(p.ID, pods.Running).Journal {
		if strings.HasPrefix(l.Text, "pull failed, try 1") {
			told++
		}
	}
	if told != 1 {
		t.Errorf("%d lines of the system log tell of the pull, want 1: %v", told, w.get(p.ID).Journal)
	}
}

func TestAPodSaysHowOftenItsHostWasCalledAndWhenNext(t *testing.T) {
	spy := &recorder{refuse: true}
	w := newTestEnv(t, withRecorder(spy))
	p := w.create(gpuPod())
	w.advance(5 * time.Second) // tries at 0, 1, 3
	e := w.why(p.ID)
	want := telemetry.Explanation{
		Text:  "Its host did not take the call to start the container. It is tried again.",
		Since: start, Tries: 3, NextTry: start.Add(7 * time.Second), Failure: errRefused.Error(),
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("Why (-want +got):\n%s", diff)
	}
	spy.refuse = false
	w.advance(time.Minute)
	if e := w.why(p.ID); e.Text != "" || e.Tries != 0 || e.Failure != "" {
		t.Errorf("when it runs: %+v", e)
	}
}

// inside returns an environment with hosts of the flavor cpu3c.
func inside(t *testing.T, vcpus map[string]int) *testEnv {
	t.Helper()
	return newTestEnv(t, func(c *envConfig) {
		c.options.WaitForCapacity, c.options.Overcommit = true, 1
		c.hosts = func(rt pods.Runtime) (list []pods.Host) {
			for _, id := range []string{"a", "b", "c"} {
				if n := vcpus[id]; n > 0 {
					list = append(list, pods.Host{ID: id, DataCenter: "US-TX-3", Runtime: rt, VCPU: map[string]int{"cpu3c": n}})
				}
			}
			return list
		}
	})
}

func sizedPod(vcpus int) pods.CreateRequest {
	r := cpuPod()
	r.CPU.VCPU = vcpus
	return r
}

func TestAPodWithoutAHostSaysWhatEachHostLacks(t *testing.T) {
	w := inside(t, map[string]int{"a": 2, "b": 8, "c": 16})
	w.create(sizedPod(8)) // takes b
	if err := w.Cordon(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	if err := w.Cordon(t.Context(), "c"); err != nil { // it is cordoned since the first call
		t.Fatal(err)
	}
	p := w.create(sizedPod(8))
	w.advance(time.Hour)
	e := w.why(p.ID)
	want := []telemetry.Refusal{
		{Host: "a", Kind: telemetry.HostTooSmall, Text: "is too small: it has 2 vCPUs of cpu3c, and the pod needs 8"},
		{Host: "b", Kind: telemetry.HostFull, Text: "is full: 0 of its 8 vCPUs of cpu3c are free, and the pod needs 8"},
		{Host: "c", Kind: telemetry.HostCordoned, Since: start, Text: "takes nothing new, because an operator has cordoned it at 2026-01-01T00:00:00Z"},
	}
	if diff := cmp.Diff(want, e.Hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}
	const text = "It waits for a host with room: it needs 8 vCPUs of cpu3c in any data center on the SECURE cloud. " +
		"1 host takes nothing new, because an operator has cordoned it, 1 host is full, 1 host is too small, even when it is empty."
	if e.Text != text || !e.Since.Equal(start.Add(time.Minute)) {
		t.Errorf("%q since %v, want %q since 1m", e.Text, e.Since.Sub(start), text)
	}
	if err := w.Uncordon(t.Context(), "c"); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
}

func TestAPodThatNoHostCanEverTakeSaysSo(t *testing.T) {
	w := inside(t, map[string]int{"a": 2, "b": 4})
	elsewhere := sizedPod(4)
	elsewhere.DataCenterIDs = []string{"US-KS-2"}
	gpu := gpuPod()
	for _, r := range []pods.CreateRequest{sizedPod(32), elsewhere, gpu} {
		e := w.why(w.create(r).ID)
		if !strings.HasSuffix(e.Text, "No host of this service can take it: it would wait for ever.") || len(e.Hosts) != 2 {
			t.Errorf("%+v says %q of %+v, want that it would wait for ever", r, e.Text, e.Hosts)
		}
	}
}

func TestAStoppedPodSaysWhyItsHostDoesNotTakeItBack(t *testing.T) {
	w := inside(t, map[string]int{"a": 8})
	p := w.running(sizedPod(8))
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	if e := w.why(p.ID); e.Text != "It has ended: stopped by its user." {
		t.Errorf("with room on its host: %q", e.Text)
	}
	if err := w.Cordon(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	if e := w.why(p.ID); !strings.HasSuffix(e.Text, " It cannot start now: its host takes nothing new, because an operator has cordoned it at 2026-01-01T00:05:01Z.") {
		t.Errorf("on a cordoned host: %q", e.Text)
	}
	if err := w.Uncordon(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	w.running(sizedPod(2))
	if e := w.why(p.ID); !strings.HasSuffix(e.Text, " It cannot start now: its host is full: 6 of its 8 vCPUs of cpu3c are free, and the pod needs 8.") {
		t.Errorf("on a full host: %q", e.Text)
	}
}

func TestAPodWhoseHostHasGoneSaysSo(t *testing.T) {
	w := inside(t, map[string]int{"a": 8})
	p := w.running(sizedPod(2))
	other, err := pods.New(w.store, catalog.Sample(), nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	e, err := other.Why(t.Context(), alice, p.ID)
	if err != nil || e.Text != "Its host is not there: the configuration of the server does not have it any more." {
		t.Errorf("Why = %q, %v", e.Text, err)
	}
}

func TestHostStatesSayWhoHasWhatAndWhichCallsFailed(t *testing.T) {
	spy := &recorder{}
	w, o := observedEnv(t, withRecorder(spy), func(c *envConfig) { c.options.Overcommit = 1 })
	cpu, gpu := w.running(cpuPod()), w.running(gpuPod())
	worker := pods.Reservation{
		Holder: "worker.e.w", Image: "img", Endpoint: "e", Owner: bob, CPU: &pods.CPU{ID: "cpu3c", VCPU: 1},
		Placement: pods.Placement{Host: cpu.Placement.Host, Claims: []pods.Claim{{Resource: cpu.Placement.Claims[0].Resource, Units: 1, Limit: cpu.Placement.Claims[0].Limit}}},
	}
	if err := w.store.Reserve(t.Context(), worker); err != nil {
		t.Fatal(err)
	}
	spy.refuse = true
	w.act(cpu.ID, pods.Stop)
	w.advance(10 * time.Second)
	states, err := w.HostStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	type claim struct{ who, whose, what string }
	var claims []claim
	n := map[string]int{}
	for _, h := range states {
		for _, p := range h.Pods {
			claims = append(claims, claim{p.ID, p.Owner, fmt.Sprint(h.Named(p.Placement.Claims))})
		}
		for _, r := range h.Workers {
			claims = append(claims, claim{r.Holder, r.Owner + " " + r.Endpoint, fmt.Sprint(h.Named(r.Placement.Claims))})
		}
		n["all"] += int(h.Calls.Calls)
		n["failed"] += int(h.Calls.Failed)
		if h.ID == cpu.Placement.Host && (h.Calls.Last.Call != "stop" || h.Calls.Last.Error != errRefused.Error() || h.Calls.Last.At.IsZero()) {
			t.Errorf("the last failure is %+v", h.Calls.Last)
		}
	}
	want := []claim{
		{cpu.ID, alice, "[{vcpu/cpu3c 2 0}]"}, {gpu.ID, alice, "[{gpu/" + rtx4090 + " 1 0}]"}, {"worker.e.w", "bob e", "[{vcpu/cpu3c 1 0}]"},
	}
	if diff := cmp.Diff(fmt.Sprint(want), fmt.Sprint(claims)); diff != "" {
		t.Errorf("claims (-want +got):\n%s", diff)
	}
	all, failed := 0, 0
	for call, k := range o.calls {
		if all += k; strings.HasSuffix(call, "false") {
			failed += k
		}
	}
	if n["all"] != all || n["failed"] != failed || failed == 0 {
		t.Errorf("the hosts count %v, and the observer %d calls of which %d failed", n, all, failed)
	}
}
