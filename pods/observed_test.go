package pods_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/telemetry"
)

// An observer writes a line for each event of a pod, and counts calls.
type observer struct {
	mu    sync.Mutex
	pods  []string
	calls map[string]int
	loops []string
}

func (o *observer) Pod(e telemetry.PodEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Change == telemetry.Started {
		o.pods = append(o.pods, fmt.Sprint("started after ", e.Took))
		return
	}
	o.pods = append(o.pods, "ended: "+e.Cause)
}

func (o *observer) Call(e telemetry.CallEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.calls == nil {
		o.calls = map[string]int{}
	}
	o.calls[fmt.Sprint(e.Call, " ", e.Err == nil)]++
}

func (o *observer) Loop(e telemetry.LoopEvent) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if e.Err != nil {
		o.loops = append(o.loops, e.Loop)
	}
}

func observedEnv(t *testing.T, more ...func(*envConfig)) (*testEnv, *observer) {
	t.Helper()
	o := &observer{}
	w := newTestEnv(t, func(c *envConfig) {
		c.options.Observer = o
		for _, f := range more {
			f(c)
		}
	})
	return w, o
}

func TestAnObserverSeesWhyAPodHasEnded(t *testing.T) {
	for image, want := range map[string]string{
		"ends/well": telemetry.ByExit, "ends/badly": telemetry.ByError, "ends/hungry": telemetry.ByOOM,
		"ends/orderly": telemetry.ByHost, "ends/unpulled": telemetry.ByImage,
	} {
		w, o := observedEnv(t)
		r := gpuPod()
		r.Image = image
		w.create(r)
		w.advance(time.Minute)
		if n := len(o.pods); n == 0 || o.pods[n-1] != "ended: "+want {
			t.Errorf("%s: %q, want the cause %s last", image, o.pods, want)
		}
	}
}

func TestAnObserverSeesEachRunOfAPodOnce(t *testing.T) {
	w, o := observedEnv(t)
	p := w.running(gpuPod())
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	w.act(p.ID, pods.Start)
	w.advance(time.Minute)
	w.act(p.ID, pods.Terminate)
	w.advance(time.Minute)
	if diff := cmp.Diff([]string{"started after 1s", "ended: user", "started after 500ms", "ended: user"}, o.pods); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if o.calls["ensure true"] != 2 || o.calls["stop true"] != 1 || o.calls["remove true"] != 1 {
		t.Errorf("calls: %v", o.calls)
	}
}

func TestAnObserverSeesCallsThatFail(t *testing.T) {
	spy := &recorder{refuse: true}
	w, o := observedEnv(t, withRecorder(spy))
	w.create(gpuPod())
	w.advance(3 * time.Second)
	if o.calls["ensure false"] == 0 || o.calls["ensure true"] != 0 {
		t.Errorf("calls: %v, want only ones that have failed", o.calls)
	}
}
