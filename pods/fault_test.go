package pods_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/pods"
)

var errBroken = errors.New("the store is away")

// A faultyStore fails calls by kind while a field says so.
type faultyStore struct {
	*memory.Pods
	failList, failUpdate, failClaimed atomic.Bool
	dropHints                         bool // hints do not arrive
	gap                               chan struct{}
	beforeUpdate                      func() // what happens between a read and the next write, once
}

func (m *faultyStore) List(ctx context.Context, f pods.Filter) iter.Seq2[*pods.Pod, error] {
	if m.failList.Load() {
		return func(yield func(*pods.Pod, error) bool) { yield(nil, errBroken) }
	}
	return m.Pods.List(ctx, f)
}

func (m *faultyStore) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	if m.failUpdate.Load() {
		return nil, errBroken
	}
	if f := m.beforeUpdate; f != nil {
		m.beforeUpdate = nil
		f()
	}
	return m.Pods.Update(ctx, id, fn)
}

func (m *faultyStore) Claimed(ctx context.Context, resource string) (int64, error) {
	if m.failClaimed.Load() {
		return 0, errBroken
	}
	return m.Pods.Claimed(ctx, resource)
}

func (m *faultyStore) Watch(ctx context.Context, f func([]string)) error {
	if !m.dropHints {
		return m.Pods.Watch(ctx, f)
	}
	for {
		select {
		case <-m.gap:
			f(nil)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// onFaultyStore returns w with a service on a store that can fail.
func onFaultyStore(w *testEnv, o pods.Options) (*testEnv, *faultyStore) {
	w.t.Helper()
	m := &faultyStore{Pods: w.store, gap: make(chan struct{})}
	s, err := pods.New(m, w.Catalog(), pods.SimulatedHosts(w.Catalog(), w.runtime), &o)
	if err != nil {
		w.t.Fatal(err)
	}
	return &testEnv{s, w.t, w.clock, w.store, w.runtime}, m
}

func TestReportsOutliveAStoreThatCannotBeWritten(t *testing.T) {
	w := newTestEnv(t, nil)
	w, store := onFaultyStore(w, pods.Options{Clock: w.clock})
	r := gpuPod()
	r.Image = "ends/badly"
	p := w.create(r)
	w.advance(0)
	store.failUpdate.Store(true)
	w.advance(time.Minute)
	w.want(p.ID, pods.Provisioning)
	store.failUpdate.Store(false)
	w.advance(time.Minute)
	p = w.want(p.ID, pods.Errored)
	for _, line := range []string{"container started", "container is healthy", "container exited with code 3"} {
		if !strings.Contains(journal(p), line) {
			t.Errorf("the journal does not say %q:\n%s", line, journal(p))
		}
	}
}

func TestTheServiceWaitsForAStoreThatCannotBeRead(t *testing.T) {
	w := newTestEnv(t, nil)
	w, store := onFaultyStore(w, pods.Options{Clock: w.clock})
	p := w.create(gpuPod())
	store.failList.Store(true)
	if _, err := w.Step(t.Context(), w.clock.Now()); !errors.Is(err, errBroken) {
		t.Errorf("Step = %v, want the error of the store", err)
	}
	if _, err := w.List(t.Context(), alice); !errors.Is(err, errBroken) {
		t.Errorf("List = %v, want the error of the store", err)
	}
	store.failList.Store(false)
	w.advance(time.Minute)
	w.want(p.ID, pods.Running)
	store.failClaimed.Store(true)
	if _, err := w.Create(t.Context(), alice, gpuPod()); !errors.Is(err, errBroken) {
		t.Errorf("Create = %v, want the error of the store", err)
	}
}

func TestRunOutlivesAStoreThatIsAwayAtTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, func(s *envConfig) { s.options.Clock, s.runtime.Clock = nil, nil })
		w, store := onFaultyStore(w, pods.Options{})
		store.failList.Store(true)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		p := w.create(gpuPod())
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.want(p.ID, pods.Provisioning)
		store.failList.Store(false)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		w.want(p.ID, pods.Running)
		cancel()
		<-ended
	})
}

// A change of another server comes with a hint; where hints were lost, everything is read
// again.
func TestChangesOfAnotherServerAreTakenUp(t *testing.T) {
	for _, lost := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestEnv(t, func(s *envConfig) { s.options.Clock, s.runtime.Clock = nil, nil })
			other := w
			w, store := onFaultyStore(w, pods.Options{})
			store.dropHints = lost
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- w.Run(ctx) }()
			synctest.Wait()
			p := other.create(gpuPod())
			if lost {
				time.Sleep(time.Minute)
				synctest.Wait()
				w.want(p.ID, pods.Provisioning)
				store.gap <- struct{}{}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			w.want(p.ID, pods.Running)
			cancel()
			<-ended
		})
	}
}

func TestAStrayThatCannotBeRemovedIsTriedAgain(t *testing.T) {
	spy := &recorder{refuse: true}
	w := newTestEnv(t, withRecorder(spy))
	if err := w.runtime.Ensure(t.Context(), pods.Spec{PodID: "stray", Gen: 1, Run: 1, Image: "img"}); err != nil {
		t.Fatal(err)
	}
	w.advance(10 * time.Second)
	spy.refuse = false
	w.advance(10 * time.Second)
	if list, _ := w.runtime.List(t.Context()); len(list) != 0 || spy.refused < 2 {
		t.Errorf("after %d refusals the stray is still there: %+v", spy.refused, list)
	}
}

func TestWaitingPodsOutliveAStoreThatCannotBeRead(t *testing.T) {
	w := newTestEnv(t, nil)
	w, store := onFaultyStore(w, pods.Options{Clock: w.clock, WaitForCapacity: true})
	all := gpuPod()
	all.GPU = &pods.GPURequest{ID: "NVIDIA GeForce RTX 4080", Count: new(4)}
	all.Cloud = pods.Community
	first, second := w.create(all), w.create(all)
	third := w.create(all)
	w.advance(time.Minute)
	w.want(third.ID, pods.Provisioning)
	store.failClaimed.Store(true)
	for _, p := range []*pods.Pod{first, second} {
		w.act(p.ID, pods.Stop)
	}
	w.advance(time.Minute)
	w.want(third.ID, pods.Provisioning)
	store.failClaimed.Store(false)
	w.advance(time.Minute)
	w.want(third.ID, pods.Running)
}

func TestAResetOfAPodThatHasJustEndedClaimsItsComputeAgain(t *testing.T) {
	w := newTestEnv(t, nil)
	w, store := onFaultyStore(w, pods.Options{Clock: w.clock})
	p := w.running(gpuPod())
	store.beforeUpdate = func() {
		_, err := w.store.Update(t.Context(), p.ID, func(p *pods.Pod) error {
			p.Seen.Status, p.Seen.Phase, p.Placement.Claims = pods.Exited, pods.PhaseExited, nil
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if p = w.act(p.ID, pods.Reset); len(p.Placement.Claims) == 0 {
		t.Error("the pod is to run and claims nothing of its host: another may be given its GPU")
	}
	w.advance(5 * time.Minute)
	w.want(p.ID, pods.Running)
}

// Without this a follower at one of several servers waited for the next change of its pod.
func TestAFollowerSeesALineWhoseHintWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTestEnv(t, nil)
		w, store := onFaultyStore(w, pods.Options{Clock: w.clock})
		store.dropHints = true
		p := w.create(cpuPod())
		watching, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.Run(watching) }()
		defer func() { cancel(); <-ended }()
		seq, err := w.Logs(watching, alice, p.ID, pods.SystemLog, pods.LogQuery{Tail: -1, Follow: true})
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan string, 9)
		go func() {
			for line := range seq {
				got <- line.Text
			}
		}()
		synctest.Wait()
		_, err = w.store.Update(t.Context(), p.ID, func(p *pods.Pod) error { // another server
			p.Journal = append(p.Journal, pods.LogLine{Seq: p.Journal[len(p.Journal)-1].Seq + 1, Text: "made elsewhere"})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		store.gap <- struct{}{}
		synctest.Wait()
		lines := []string{}
		for len(got) > 0 {
			lines = append(lines, <-got)
		}
		if !slices.Contains(lines, "made elsewhere") {
			t.Errorf("the follower has %q, and not the line of the other server", lines)
		}
	})
}

func TestSecretsAreNotPrinted(t *testing.T) {
	c := pods.Credential{Registry: "r", Username: "u", Password: "hunter2"}
	text, err := c.Password.MarshalText()
	if err != nil {
		t.Fatal(err)
	}
	texts := []string{fmt.Sprint(c), string(text), c.Password.LogValue().String()}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		texts = append(texts, fmt.Sprintf(verb, c))
	}
	for _, s := range texts {
		if strings.Contains(s, "hunter2") {
			t.Errorf("a credential prints as %s", s)
		}
	}
}
