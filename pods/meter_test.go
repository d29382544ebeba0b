package pods_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/pods"
)

// A usageRecorder is a meter that can fail.
type usageRecorder struct {
	uses []pods.Usage
	err  error
}

func (m *usageRecorder) Record(_ context.Context, uses []pods.Usage) error {
	if m.err == nil {
		m.uses = append(m.uses, uses...)
	}
	return m.err
}

func TestWhatAPodHoldsIsMeteredFromTheClaimToTheRelease(t *testing.T) {
	m := &usageRecorder{}
	w := newTestEnv(t, func(s *envConfig) { s.options.Meter = m })
	p := w.create(gpuPod())
	w.advance(time.Hour)
	disk := 50 * 0.10 / 730
	use := func(from, to time.Duration) pods.Usage {
		u := pods.Usage{Owner: alice, Kind: pods.PodUsage, ID: p.ID, From: start.Add(from), GPU: 0.69, Disk: disk}
		if to > 0 {
			u.To = start.Add(to)
		}
		return u
	}
	want := func(what string, got []pods.Usage, want ...pods.Usage) {
		t.Helper()
		if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-9), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", what, diff)
		}
	}
	uses := func() []pods.Usage {
		t.Helper()
		list, err := w.Usage(t.Context(), alice)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}
	want("while it runs", uses(), use(0, 0))
	m.err = errors.New("the meter is away")
	w.act(p.ID, pods.Stop)
	_ = w.clock.Advance(t.Context(), time.Second, w) // it cannot be metered, and is kept
	want("stopped, with the meter away", uses(), use(0, time.Hour))
	m.err = nil
	w.advance(time.Hour)
	w.act(p.ID, pods.Start)
	again := w.clock.Now().Sub(start)
	w.advance(time.Hour)
	want("what the meter has", m.uses, use(0, time.Hour))
	want("when it runs again", uses(), use(again, 0))
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	want("what the meter has in the end", m.uses, use(0, time.Hour), use(again, again+time.Hour))
	want("in the end", uses())
}

func TestAStoppedPodIsMeteredForItsPersistentMountUntilItIsGone(t *testing.T) {
	m := &usageRecorder{}
	w := newTestEnv(t, func(s *envConfig) { s.options.Meter = m })
	r := gpuPod()
	r.Mounts = pods.Mounts{Persistent: &pods.PersistentMount{Size: 20, Path: "/data"}}
	p := w.create(r)
	w.advance(time.Hour)
	w.act(p.ID, pods.Stop)
	w.advance(time.Second) // it ends
	w.advance(time.Hour)
	started := w.clock.Now()
	w.act(p.ID, pods.Start)
	w.advance(time.Hour)
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	w.advance(time.Hour)
	if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
		t.Fatal(err)
	}
	w.advance(0)
	if len(m.uses) != 4 {
		t.Fatalf("%d uses, want one each time that it was started or stopped: %+v", len(m.uses), m.uses)
	}
	const running, stopped = 70 * 0.10 / 730, 20 * 0.20 / 730
	for i, u := range m.uses {
		want := pods.Usage{Owner: alice, Kind: pods.PodUsage, ID: p.ID, From: start, To: u.To, GPU: 0.69, Disk: running}
		if i > 0 {
			want.From = m.uses[i-1].To
		}
		if i%2 == 1 {
			want.GPU, want.Disk = 0, stopped
		}
		if diff := cmp.Diff(want, u, cmpopts.EquateApprox(0, 1e-9)); diff != "" || u.To.Sub(u.From) < time.Hour {
			t.Errorf("use %d, until %v (-want +got):\n%s", i, u.To, diff)
		}
	}
	if !m.uses[1].To.Equal(started) || !m.uses[3].To.Equal(w.clock.Now()) {
		t.Errorf("stopped until %v and %v, want %v and now", m.uses[1].To, m.uses[3].To, started)
	}
}

func TestADiskThatGrowsIsMeteredFromTheContainerThatHasIt(t *testing.T) {
	for _, actions := range [][]pods.Action{{pods.Restart}, {pods.Reset}, {pods.Restart, pods.Reset}} {
		t.Run(fmt.Sprint(actions), func(t *testing.T) {
			m := &usageRecorder{}
			w := newTestEnv(t, func(s *envConfig) { s.options.Meter = m })
			p := w.running(gpuPod())
			w.advance(time.Hour)
			grown := w.clock.Now()
			for i, a := range actions { // at the same time
				if _, err := w.Update(t.Context(), alice, p.ID, pods.UpdateRequest{Disk: new(500 - (len(actions)-1-i)*100)}); err != nil {
					t.Fatal(err)
				}
				w.act(p.ID, a)
			}
			w.advance(time.Hour)
			if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
				t.Fatal(err)
			}
			w.advance(0)
			use := func(from, to time.Time, disk float64) pods.Usage {
				return pods.Usage{Owner: alice, Kind: pods.PodUsage, ID: p.ID, From: from, To: to, GPU: 0.69, Disk: disk * 0.10 / 730}
			}
			want := []pods.Usage{use(start, grown, 50), use(grown, w.clock.Now(), 500)}
			if diff := cmp.Diff(want, m.uses, cmpopts.EquateApprox(0, 1e-9)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestWithoutAMeterNothingIsKept(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(cpuPod())
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	if p := w.get(p.ID); len(p.Used) != 0 || !p.Placement.Since.IsZero() {
		t.Errorf("a pod that nobody meters keeps %v since %v", p.Used, p.Placement.Since)
	}
}
