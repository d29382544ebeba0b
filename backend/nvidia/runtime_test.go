//go:build linux && cgo

package nvidia_test

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/nvidia"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
)

const alice = "alice"

// service is a pods service on the GPUs of a machine, with simulated containers.
type service struct {
	*pods.Service

	t     *testing.T
	clock *clock.Manual
}

func newService(t *testing.T, d *nvidia.Driver) *service {
	t.Helper()
	devices, err := d.Devices()
	if err != nil {
		t.Fatal(err)
	}
	types, gpus := nvidia.Inventory(devices)
	c := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	s, err := pods.New(memory.NewPods(), catalog.Local(4, 8, types...), []pods.Host{{
		ID: "local", DataCenter: catalog.LocalDataCenter,
		Runtime: nvidia.WithMetrics(memory.NewRuntime(&memory.RuntimeOptions{Clock: c, CUDA: "1.0"}), d, nil),
		GPUs:    gpus, VCPU: map[string]int{catalog.HostFlavor: 4}, Memory: 8,
	}}, &pods.Options{Clock: c, Rand: rand.NewChaCha8([32]byte{1})})
	if err != nil {
		t.Fatal(err)
	}
	return &service{s, t, c}
}

func wantGPUs(typ string, n int) pods.CreateRequest {
	return pods.CreateRequest{Name: "g", Image: "img", GPU: &pods.GPURequest{ID: typ, Count: &n}}
}

// running returns a new pod after it has started.
func (s *service) running(r pods.CreateRequest) *pods.Pod {
	s.t.Helper()
	p, err := s.Create(s.t.Context(), alice, r)
	if err != nil {
		s.t.Fatalf("Create = %v, want nil", err)
	}
	s.advance()
	if p, err = s.Get(s.t.Context(), alice, p.ID); err != nil || p.Status() != pods.Running {
		s.t.Fatalf("Get = %+v, %v, want a pod that runs", p, err)
	}
	return p
}

func (s *service) advance() {
	s.t.Helper()
	if err := s.clock.Advance(s.t.Context(), 5*time.Minute, s); err != nil {
		s.t.Fatal(err)
	}
}

func TestTwoPodsNeverShareAGPUAndTheThirdWaitsForItsTurn(t *testing.T) {
	s := newService(t, newMachine(t, gpu("GPU-a", rtx4090, 24564), gpu("GPU-b", rtx4090, 24564)).open())
	a, b := s.running(wantGPUs(rtx4090, 1)), s.running(wantGPUs(rtx4090, 1))
	if diff := cmp.Diff([][]string{{"GPU-a"}, {"GPU-b"}}, [][]string{a.Placement.Devices, b.Placement.Devices}); diff != "" {
		t.Errorf("devices (-want +got):\n%s", diff)
	}
	_, err := s.Create(t.Context(), alice, wantGPUs(rtx4090, 1))
	if doc := problem.Of(err); !errors.Is(err, pods.ErrNoCapacity) || doc.Status != 400 || !strings.Contains(doc.Detail, "1 x "+rtx4090) {
		t.Errorf("a third Create = %v (%d %q), want a 400 that names the type", err, doc.Status, doc.Detail)
	}
	if err := s.Terminate(t.Context(), alice, a.ID); err != nil {
		t.Fatalf("Terminate = %v, want nil", err)
	}
	s.advance()
	if c := s.running(wantGPUs(rtx4090, 1)); !cmp.Equal(c.Placement.Devices, []string{"GPU-a"}) {
		t.Errorf("devices of the next = %v, want the one that was freed", c.Placement.Devices)
	}
}

func TestAPodHasTheLoadsOfItsDevicesAndTheCUDAVersion(t *testing.T) {
	m := newMachine(t, "cuda 12080", gpu("GPU-a", rtx4090, 1000), gpu("GPU-b", h200, 1000), gpu("GPU-c", h200, 1000))
	s := newService(t, m.open())
	p := s.running(wantGPUs(h200, 2))
	if p.Seen.CUDA != "12.8" {
		t.Errorf("CUDA = %q, want the driver's", p.Seen.CUDA)
	}
	m.set("gpu 0|GPU-a|"+rtx4090+"|1000|1|1|0", "gpu 0|GPU-b|"+h200+"|1000|200|20|0", "gpu 0|GPU-c|"+h200+"|1000|300|30|0")
	live, ok := s.RuntimeInfo(t.Context(), p)
	want := []pods.GPUSample{{Util: 20, MemoryUtil: 20}, {Util: 30, MemoryUtil: 30}}
	if diff := cmp.Diff(want, live.GPUs); !ok || diff != "" {
		t.Errorf("loads (-want +got):\n%s", diff)
	}
	cpu := s.running(pods.CreateRequest{Name: "c", Image: "img", CPU: &pods.CPURequest{ID: catalog.HostFlavor, VCPU: 2}})
	if live, ok := s.RuntimeInfo(t.Context(), cpu); !ok || cpu.Seen.CUDA != "" || len(live.GPUs) > 0 {
		t.Errorf("a CPU pod has CUDA %q and loads %v, want neither", cpu.Seen.CUDA, live.GPUs)
	}
}

// adoptedRuntime is a runtime with one container from before the test. It has no other
// methods.
type adoptedRuntime struct{ pods.Runtime }

func (adoptedRuntime) List(context.Context) ([]pods.ContainerState, error) {
	return []pods.ContainerState{{PodID: "old", Phase: pods.PhaseHealthy}, {PodID: "ended", Phase: pods.PhaseExited}}, nil
}

func (adoptedRuntime) Watch(_ context.Context, f func(pods.ContainerState)) error {
	f(pods.ContainerState{PodID: "old", Phase: pods.PhaseHealthy})
	return nil
}

func (adoptedRuntime) Ensure(context.Context, pods.Spec) error             { return nil }
func (adoptedRuntime) Remove(context.Context, string, time.Duration) error { return nil }

func TestDevicesOfAContainerThatIsOlderAreAskedForUntilTheyAreKnown(t *testing.T) {
	d := newMachine(t, gpu("GPU-a", rtx4090, 1000), "gpu 0|GPU-b|"+rtx4090+"|1000|500|9|0").open()
	asked, fails := 0, true
	rt := nvidia.WithMetrics(adoptedRuntime{}, d, &nvidia.MetricsOptions{Devices: func(_ context.Context, podID string) ([]string, error) {
		asked++
		if fails || podID != "old" {
			return nil, errors.New("not now")
		}
		return []string{"GPU-b"}, nil
	}})
	sampler, _ := pods.As[pods.Sampler](rt)
	list := func() string {
		list, err := rt.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return list[0].CUDA
	}
	if got := list(); got != "" {
		t.Errorf("CUDA = %q while the devices are not known, want none", got)
	}
	fails = false
	if got := list(); got != "12.8" {
		t.Errorf("CUDA = %q, want the driver's", got)
	}
	if err := rt.Watch(t.Context(), func(st pods.ContainerState) {
		if st.CUDA != "12.8" {
			t.Errorf("CUDA = %q from Watch, want the driver's", st.CUDA)
		}
	}); err != nil {
		t.Fatal(err)
	}
	if asked != 2 {
		t.Errorf("asked %d times, want not again once it is known", asked)
	}
	want := pods.Sample{GPUs: []pods.GPUSample{{Util: 9, MemoryUtil: 50}}}
	if got, ok := sampler.Sample(t.Context(), "old"); !ok || !cmp.Equal(got, want) {
		t.Errorf("Sample = %+v, %v, want %+v", got, ok, want)
	}

	if err := rt.Ensure(t.Context(), pods.Spec{PodID: "old", Devices: []string{"GPU-a"}}); err != nil {
		t.Fatal(err)
	}
	want.GPUs[0] = pods.GPUSample{}
	if got, ok := sampler.Sample(t.Context(), "old"); !ok || !cmp.Equal(got, want) {
		t.Errorf("Sample after Ensure with another device = %+v, %v, want %+v", got, ok, want)
	}
	fails = true
	if err := rt.Remove(t.Context(), "old", 0); err != nil {
		t.Fatal(err)
	}
	if got, ok := sampler.Sample(t.Context(), "old"); ok {
		t.Errorf("Sample after Remove = %+v, want none", got)
	}
}

func TestAGPUThatCannotBeReadIsZeroAndTheLogHearsOnce(t *testing.T) {
	m := newMachine(t, gpu("GPU-a", rtx4090, 1000))
	d := m.open()
	var log strings.Builder
	rt := nvidia.WithMetrics(adoptedRuntime{}, d, &nvidia.MetricsOptions{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err := rt.Ensure(t.Context(), pods.Spec{PodID: "p", Devices: []string{"GPU-a"}}); err != nil {
		t.Fatal(err)
	}
	sampler, _ := pods.As[pods.Sampler](rt)
	sample := func(times int, want pods.GPUSample) {
		t.Helper()
		for range times {
			if s, ok := sampler.Sample(t.Context(), "p"); !ok || !cmp.Equal(s.GPUs, []pods.GPUSample{want}) {
				t.Errorf("Sample = %+v, %v, want %+v", s, ok, want)
			}
		}
	}
	m.set("gpu 15|GPU-a|" + rtx4090 + "|1000|0|0|0")
	sample(3, pods.GPUSample{})
	m.set("gpu 0|GPU-a|" + rtx4090 + "|1000|0|5|0")
	sample(1, pods.GPUSample{Util: 5})
	m.set("")
	sample(3, pods.GPUSample{})
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	sample(2, pods.GPUSample{})
	if n := strings.Count(log.String(), "GPU-a"); n != 2*2 { // each line also has it in the error
		t.Errorf("the log is\n%swant a line for each of two failures", log.String())
	}
}

func TestPowersOfTheRuntimeWithinAreFound(t *testing.T) {
	d := newMachine(t, gpu("GPU-a", rtx4090, 1000)).open()
	within := memory.NewRuntime(nil)
	rt := nvidia.WithMetrics(within, d, nil)
	if logs, ok := pods.As[pods.LogReader](rt); !ok || logs != pods.LogReader(within) {
		t.Error("the logs of the runtime within are not found")
	}
	if n, ok := pods.As[pods.Notifier](rt); !ok || n == pods.Notifier(within) {
		t.Error("changes are told by the runtime within, want them with the CUDA version")
	}
	if _, ok := pods.As[pods.Notifier](nvidia.WithMetrics(adoptedRuntime{}, d, nil)); ok {
		t.Error("there is a power that the runtime within has not")
	}
	if rt.Capabilities() != within.Capabilities() {
		t.Error("the capabilities are not those of the runtime within")
	}
}
