package pods_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/pods"
)

func TestOnlyARunningPodHasARuntimeBlock(t *testing.T) {
	for status, bring := range podsByStatus {
		w := newTestEnv(t, nil)
		p := w.want(bring(w).ID, status)
		if _, ok := w.RuntimeInfo(t.Context(), p); ok != (status == pods.Running) {
			t.Errorf("a pod that is %s has a runtime block: %t", status, ok)
		}
	}
}

func TestTheRuntimeBlockTellsUptimeLoadAndPorts(t *testing.T) {
	w := newTestEnv(t, nil)
	r := gpuPod()
	r.GPU.Count, r.Ports = new(2), []string{"80/http", "22/tcp"}
	p := w.create(r)
	w.advance(90 * time.Second)
	got, ok := w.RuntimeInfo(t.Context(), w.want(p.ID, pods.Running))
	if !ok || got.Uptime != 89500*time.Millisecond {
		t.Errorf("uptime = %v, want the 89.5 s since the container started", got.Uptime)
	}
	if len(got.GPUs) != 2 || got.GPUs[0].Util == 0 || got.CPU == 0 || got.Memory == 0 {
		t.Errorf("load = %+v, want some of each and two GPUs", got)
	}
	if len(got.Ports) != 2 || got.Ports[1].Private != 22 || got.Ports[1].Public == 0 || got.Ports[1].IP == "" || got.Ports[1].Protocol != "tcp" {
		t.Errorf("ports = %+v, want both with their public addresses", got.Ports)
	}
}

func TestTheRuntimeBlockHasNoGapsWhereNothingIsKnown(t *testing.T) {
	w := newTestEnv(t, func(s *envConfig) {
		s.hosts = func(rt pods.Runtime) []pods.Host { return pods.SimulatedHosts(s.catalog, noPortsRuntime{rt}) }
	})
	r := gpuPod()
	r.Ports = []string{"80/http"}
	got, ok := w.RuntimeInfo(t.Context(), w.running(r))
	want := pods.RuntimeInfo{Uptime: got.Uptime, GPUs: []pods.GPUSample{{}}, Ports: []pods.PortMapping{{Private: 80, Protocol: "http"}}}
	if diff := cmp.Diff(want, got); diff != "" || !ok {
		t.Errorf("runtime block (-want +got):\n%s", diff)
	}
	got, _ = w.RuntimeInfo(t.Context(), w.running(cpuPod()))
	if got.GPUs == nil || got.Ports == nil {
		t.Error("lists of a pod without GPUs and ports are nil, want them empty")
	}
}

// noPortsRuntime has no optional interfaces and publishes nothing.
type noPortsRuntime struct{ pods.Runtime }

func (r noPortsRuntime) List(ctx context.Context) ([]pods.ContainerState, error) {
	list, err := r.Runtime.List(ctx)
	for i := range list {
		list[i].Ports = nil
	}
	return list, err
}

func TestANetworkedPodHasAnAddressAndAName(t *testing.T) {
	w := newTestEnv(t, func(s *envConfig) { s.options.Domain = "pods" })
	r := gpuPod()
	r.GlobalNetworking = true
	p := w.running(r)
	if p.Seen.IP == "" || w.InternalDNS(p) != p.ID+".pods.internal" {
		t.Errorf("ip %q, name %q; want both", p.Seen.IP, w.InternalDNS(p))
	}
	if q := w.running(gpuPod()); q.Seen.IP != "" {
		t.Errorf("a pod outside the network has the address %q", q.Seen.IP)
	}
}

func lines(t *testing.T, w *testEnv, id string, src pods.LogSource, q pods.LogQuery) (texts []string) {
	t.Helper()
	seq, err := w.Logs(t.Context(), alice, id, src, q)
	if err != nil {
		t.Fatalf("Logs = %v", err)
	}
	for line, err := range seq {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		texts = append(texts, line.Text)
	}
	return texts
}

func TestTheSystemLogTellsWhatHappened(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(gpuPod())
	w.act(p.ID, pods.Stop)
	w.advance(time.Second)
	want := []string{
		"pod created", "making a container of img", "container started", "container is healthy",
		"stop was asked for", "stopped by its user",
	}
	if diff := cmp.Diff(want, lines(t, w, p.ID, pods.SystemLog, pods.LogQuery{Tail: -1})); diff != "" {
		t.Errorf("system log (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(want[4:], lines(t, w, p.ID, pods.SystemLog, pods.LogQuery{Tail: 2})); diff != "" {
		t.Errorf("its last two lines (-want +got):\n%s", diff)
	}
	at := w.get(p.ID).Journal[2]
	if diff := cmp.Diff(want[3:], lines(t, w, p.ID, pods.SystemLog, pods.LogQuery{After: at.At, AfterSeq: at.Seq, Tail: -1})); diff != "" {
		t.Errorf("its lines after the third (-want +got):\n%s", diff)
	}
	if got := lines(t, w, p.ID, pods.SystemLog, pods.LogQuery{}); got != nil {
		t.Errorf("a tail of 0 = %q, want none", got)
	}
}

func TestTheSystemLogKeepsItsLastLines(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(cpuPod())
	for range 60 {
		w.act(p.ID, pods.Restart)
		w.advance(time.Second)
	}
	got := w.get(p.ID).Journal
	if len(got) != pods.MaxJournalLines || got[0].Seq == 1 || got[99].Text != "container is healthy" {
		t.Errorf("%d lines from %d to %q, want the last 100", len(got), got[0].Seq, got[len(got)-1].Text)
	}
	for i := 1; i < len(got); i++ {
		if got[i].Seq != got[i-1].Seq+1 {
			t.Fatalf("line %d follows %d", got[i].Seq, got[i-1].Seq)
		}
	}
}

func TestContainerLinesComeFromTheHost(t *testing.T) {
	w := newTestEnv(t, nil)
	p := w.running(cpuPod())
	if diff := cmp.Diff([]string{"ready"}, lines(t, w, p.ID, pods.ContainerLog, pods.LogQuery{Tail: -1})); diff != "" {
		t.Errorf("container log (-want +got):\n%s", diff)
	}
	if _, err := w.Logs(t.Context(), alice, p.ID, "elsewhere", pods.LogQuery{}); err == nil {
		t.Error("an unknown source = nil, want an error")
	}
}

func TestFollowersSeeWhatComesUntilThePodIsTerminated(t *testing.T) {
	for src, want := range map[pods.LogSource][]string{
		pods.SystemLog: {
			"pod created", "making a container of img", "container started", "container is healthy",
			"restart was asked for", "making a container of img", "container started", "container is healthy",
		},
		pods.ContainerLog: {"ready", "ready"},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestEnv(t, nil)
			p := w.create(cpuPod())
			seq, err := w.Logs(t.Context(), alice, p.ID, src, pods.LogQuery{Tail: -1, Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for line, err := range seq {
					if err != nil {
						t.Errorf("Logs yields %v", err)
					}
					got = append(got, line.Text)
				}
			}()
			synctest.Wait()
			for range 4 {
				w.advance(500 * time.Millisecond)
				synctest.Wait()
			}
			w.act(p.ID, pods.Restart)
			w.advance(time.Minute)
			synctest.Wait()
			if err := w.Terminate(t.Context(), alice, p.ID); err != nil {
				t.Fatal(err)
			}
			w.advance(0)
			<-ended
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("%s (-want +got):\n%s", src, diff)
			}
		})
	}
}

func TestAFollowerEndsWithItsContext(t *testing.T) {
	for _, src := range []pods.LogSource{pods.SystemLog, pods.ContainerLog} {
		synctest.Test(t, func(t *testing.T) {
			w := newTestEnv(t, nil)
			p := w.create(cpuPod())
			ctx, cancel := context.WithCancel(t.Context())
			seq, err := w.Logs(ctx, alice, p.ID, src, pods.LogQuery{Tail: -1, Follow: true})
			if err != nil {
				t.Fatal(err)
			}
			ended := make(chan struct{})
			go func() {
				defer close(ended)
				for _, err := range seq {
					if err != nil {
						t.Errorf("%s: Logs yields %v, want no error", src, err)
					}
				}
			}()
			synctest.Wait()
			cancel()
			<-ended
		})
	}
}

func TestListIsInTheOrderOfCreation(t *testing.T) {
	w := newTestEnv(t, nil)
	var want, got []string
	for range 5 {
		want = append(want, w.create(cpuPod()).ID)
		w.advance(time.Millisecond)
	}
	list, err := w.List(t.Context(), alice)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range list {
		got = append(got, p.ID)
	}
	if !slices.Equal(want, got) {
		t.Errorf("List = %s, want %s", strings.Join(got, " "), strings.Join(want, " "))
	}
	none, err := w.List(t.Context(), bob)
	if err != nil || none == nil {
		t.Errorf("List of a user without pods = %v, %v, want an empty list", none, err)
	}
}

func TestPhasesPrintAsNames(t *testing.T) {
	for phase, want := range map[pods.Phase]string{pods.PhasePulling: "pulling", pods.PhaseFailed: "failed", pods.PhaseFailed + 1: "Phase(5)"} {
		if got := phase.String(); got != want {
			t.Errorf("phase %d is %q, want %q", uint8(phase), got, want)
		}
	}
}
