package pods_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/pods"
)

func withKeys(spy *recorder, url string) func(*envConfig) {
	return func(s *envConfig) {
		s.options.KeySecret, s.options.KeyURL = []byte("secret"), func() string { return url }
		withRecorder(spy)(s)
	}
}

// wantKey checks whether a key is good for a pod.
func (w *testEnv) wantKey(when, key, id string, good bool) {
	w.t.Helper()
	p, ok, err := w.PodOfKey(w.t.Context(), key)
	if err != nil || ok != good || good && p.ID != id {
		w.t.Errorf("%s: the key of %s is good: %v, %v, want %v", when, id, ok, err, good)
	}
}

func TestTheKeyOfAPodIsGoodForItsContainerAndDiesWithThePod(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, withKeys(spy, "http://here:1"))
	p, other := w.running(gpuPod()), w.running(gpuPod())
	keys := map[string]string{}
	for _, s := range spy.specs() {
		keys[s.PodID] = s.Env["RUNPOD_API_KEY"]
		if s.Env["RUNPOD_API_BASE_URL"] != "http://here:1" {
			t.Errorf("RUNPOD_API_BASE_URL = %q", s.Env["RUNPOD_API_BASE_URL"])
		}
	}
	key := keys[p.ID]
	w.wantKey("at first", key, p.ID, true)
	w.wantKey("at first", keys[other.ID], other.ID, true)
	_, mac, _ := strings.Cut(key, ".")
	for name, k := range map[string]string{
		"nothing": "", "no pod": "pk_.", "no MAC": "pk_" + p.ID, "an empty MAC": "pk_" + p.ID + ".", "another pod's MAC": "pk_" + other.ID + "." + mac,
		"a pod that is not there": "pk_aaaaaaaaaaaaaa." + mac, "more": key + "A", "another kind": "wk_" + p.ID + "." + mac,
	} {
		w.wantKey(name, k, p.ID, false)
	}
	if _, err := w.Act(t.Context(), alice, p.ID, pods.Stop); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.wantKey("while the pod is stopped", key, p.ID, true)
	if _, err := w.Act(t.Context(), alice, p.ID, pods.Start); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	if _, err := w.Act(t.Context(), alice, p.ID, pods.Reset); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Minute)
	w.wantKey("after a reset, with a new container", key, p.ID, false)
	for _, s := range spy.specs() {
		if s.PodID == p.ID {
			key = s.Env["RUNPOD_API_KEY"]
		}
	}
	w.wantKey("of the new container", key, p.ID, true)
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.wantKey("after the pod was terminated", key, p.ID, false)
	w.advance(time.Hour)
	w.wantKey("when the pod is gone", key, p.ID, false)
}

func TestAKeyThatTheUserHasChosenStays(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, withKeys(spy, "http://here:1"))
	r := gpuPod()
	r.Env = map[string]string{"RUNPOD_API_KEY": "mine"}
	w.running(r)
	s := spy.specs()[0]
	if s.Env["RUNPOD_API_KEY"] != "mine" || s.Env["RUNPOD_API_BASE_URL"] == "" || s.OwnerEnv()["RUNPOD_API_KEY"] != "mine" {
		t.Errorf("Env = %v, want the user's key, as the user's", s.Env)
	}
}

func TestAPodThatDoesNotReachTheAPIHasNoKey(t *testing.T) {
	spy := &recorder{}
	w := newTestEnv(t, withKeys(spy, ""))
	w.running(gpuPod())
	if s := spy.specs()[0]; s.Env["RUNPOD_API_KEY"] != "" || s.Env["RUNPOD_API_BASE_URL"] != "" {
		t.Errorf("Env = %v, want no key", s.Env)
	}
}
