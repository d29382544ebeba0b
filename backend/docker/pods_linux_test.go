package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/moby/moby/api/types/container"
	"github.com/moby/moby/client"

	"github.com/podyard/podyard/internal/enginetest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
)

func spec(id string, s pods.Spec) pods.Spec {
	s.PodID, s.Owner, s.Gen, s.Run = id, "user", 1, 1
	return s
}

func ensure(t testing.TB, rt *Runtime, s pods.Spec) {
	t.Helper()
	if err := rt.Ensure(t.Context(), s); err != nil {
		t.Fatalf("Ensure = %v, want nil", err)
	}
}

// await waits until the state is ok. It checks after each change.
func await(t testing.TB, rt *Runtime, id, what string, ok func(pods.ContainerState) bool) pods.ContainerState {
	t.Helper()
	late := time.NewTimer(time.Minute)
	defer late.Stop()
	for {
		p := rt.pods.Find(id)
		if p == nil {
			t.Fatalf("pod %s is not known", id)
		}
		changed, _ := p.changes()
		s, _ := p.currentState()
		if ok(s) {
			return s
		}
		select {
		case <-changed:
		case <-late.C:
			t.Fatalf("no %s of pod %s; it is %+v", what, id, s)
		}
	}
}

func phase(p pods.Phase) func(pods.ContainerState) bool {
	return func(s pods.ContainerState) bool { return s.Phase == p }
}

func up(t testing.TB, rt *Runtime, s pods.Spec) pods.ContainerState {
	t.Helper()
	ensure(t, rt, s)
	got := await(t, rt, s.PodID, "sign of health", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseHealthy })
	if got.Phase != pods.PhaseHealthy {
		t.Fatalf("pod is %+v, want it Up", got)
	}
	return got
}

// calledOff starts a removal and does not wait for it.
func calledOff(t *testing.T, rt *Runtime, id string) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := rt.Remove(ctx, id, 0); !errors.Is(err, context.Canceled) {
		t.Fatalf("Remove = %v, want context.Canceled", err)
	}
}

func TestASecondRemovalLeavesANewPodOfTheIDAlone(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		up(t, rt, spec("twice", program("run")))
		old := rt.pods.Find("twice")
		reached, first := make(chan struct{}), make(chan struct{})
		old.jobs.Do(func() { close(reached); <-first })
		<-reached
		calledOff(t, rt, "twice")
		removed, second := make(chan struct{}), make(chan struct{})
		old.jobs.Do(func() { close(removed); <-second })
		calledOff(t, rt, "twice")
		if err := rt.Stop(t.Context(), "twice", 0); err != nil { // it comes too late for the old pod
			t.Fatal(err)
		}
		over := make(chan struct{})
		old.jobs.Do(func() { close(over) })
		close(first)
		<-removed
		up(t, rt, spec("twice", program("run")))
		close(second)
		<-over
		if c, err := rt.pods.Find("twice").inspect(t.Context()); err != nil || c == nil || !c.State.Running {
			t.Errorf("the new pod's container is %v, %v; want that it runs", c, err)
		}
	})
}

// A privateRegistry gives its images to one user, and counts the requests with the right
// password.
type privateRegistry struct {
	*httptest.Server
	granted atomic.Int64
	busy    atomic.Int32 // the status of all answers; 0: they are as they should be
}

const registryUser, registryPassword = "alice", "s3cret-of-alice"

func newPrivateRegistry(t *testing.T) *privateRegistry {
	t.Helper()
	p := &privateRegistry{}
	store := registry.New(registry.Logger(log.New(t.Output(), "", 0)))
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if status := int(p.busy.Load()); status > 0 {
			w.WriteHeader(status)
			return
		}
		if u, pass, _ := r.BasicAuth(); u != registryUser || pass != registryPassword {
			w.Header().Set("WWW-Authenticate", `Basic realm="test"`)
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(http.StatusUnauthorized)
			_, _ = w.Write([]byte(`{"errors":[{"code":"UNAUTHORIZED","message":"the door is shut to you"}]}`))
			return
		}
		p.granted.Add(1)
		store.ServeHTTP(w, r)
	}))
	t.Cleanup(p.Close) // after the parallel subtests
	return p
}

func (p *privateRegistry) host() string { return strings.TrimPrefix(p.URL, "http://") }

// push uploads the plain image and returns its name.
func (p *privateRegistry) push(t *testing.T, path string) string {
	t.Helper()
	all, err := images()
	if err != nil {
		t.Fatal(err)
	}
	return p.pushImage(t, path, all[plain])
}

func (p *privateRegistry) pushImage(t *testing.T, path string, img v1.Image) string {
	t.Helper()
	image := p.host() + "/" + path
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	if err := remote.Write(ref, img, remote.WithAuth(&authn.Basic{Username: registryUser, Password: registryPassword})); err != nil {
		t.Fatal(err)
	}
	return image
}

func TestAPrivateRegistryTakesTheRightPasswordOnly(t *testing.T) {
	const user, password = registryUser, registryPassword
	registry := newPrivateRegistry(t)
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		image := registry.push(t, "private/"+d.Kind+":1")
		dir := t.TempDir()
		rt := open(t, d, dir)
		for id, c := range map[string]pods.Credential{
			"none": {}, "wrong": {Username: user, Password: "guessed-password"}, "other": {Registry: "registry.test", Username: user, Password: password},
		} {
			s := spec(id, program("run"))
			s.Image, s.Credential = image, c
			ensure(t, rt, s)
			got := await(t, rt, id, "failure", phase(pods.PhaseFailed))
			t.Logf("%s: %s", id, got.Reason)
			want := "unauthorized"
			if id == "none" {
				want = "no basic auth credentials"
			}
			if id == "other" {
				want = "registry.test"
			} else if d.Kind == "podman" {
				want = "the door is shut to you"
			}
			if !strings.Contains(strings.ToLower(got.Reason), want) && !strings.Contains(got.Reason, "the door is shut to you") {
				t.Errorf("%s: Reason = %q, want the words of the registry", id, got.Reason)
			}
			if strings.Contains(got.Reason, "guessed-password") || strings.Contains(got.Reason, password) {
				t.Errorf("%s: Reason = %q tells the password", id, got.Reason)
			}
		}
		s := spec("right", program("run"))
		s.Image, s.Credential = image, pods.Credential{Registry: registry.host(), Username: user, Password: password}
		up(t, rt, s)
		wantNoSecret(t, rt, dir, password)

		// A pull asks the registry again: the engine has not stored the password.
		s = spec("again", program("run"))
		s.Image, s.AlwaysPull = image, true
		ensure(t, rt, s)
		await(t, rt, "again", "failure", phase(pods.PhaseFailed))
	})
}

func wantNoSecret(t *testing.T, rt *Runtime, dir, secret string) {
	t.Helper()
	list, err := rt.api.ContainerList(t.Context(), client.ContainerListOptions{All: true, Filters: rt.instanceFilters()})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range list.Items {
		got, err := rt.api.ContainerInspect(t.Context(), c.ID, client.ContainerInspectOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(got.Raw), secret) {
			t.Errorf("container %s shows the password", c.Names)
		}
	}
	ids, err := stateDir(dir).ids()
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		rec, err := stateDir(dir).read(id)
		if err != nil {
			t.Fatal(err)
		}
		if data, _ := json.Marshal(rec); strings.Contains(string(data), secret) {
			t.Errorf("the record of pod %s has the password", id)
		}
	}
}

func TestMemoryIsALimitAndItsEndIsOOM(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		s := spec("eater", program("eat"))
		s.Memory, s.VCPU = 1, 2
		ensure(t, rt, s)
		got := await(t, rt, "eater", "end", phase(pods.PhaseExited))
		if !got.OOM || got.ExitCode != 137 || got.Stopped || !strings.Contains(got.Reason, "memory") {
			t.Errorf("pod that takes all memory is %+v, want OOM with code 137", got)
		}
	})
}

// A child that takes too much memory ends, and what its parent makes of it is the parent's affair.
func TestOnlyAContainerWhoseProgramIsKilledForItsMemoryIsOOM(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		s := spec("parent", program("parent"))
		s.Memory, s.VCPU = 1, 2
		ensure(t, rt, s)
		got := await(t, rt, "parent", "end", phase(pods.PhaseExited))
		if got.OOM || got.ExitCode != 0 {
			t.Errorf("pod whose child takes all memory is %+v, want no OOM with code 0", got)
		}
		if !rt.engine.podman && !strings.Contains(got.Reason, "one of its processes was killed for want of memory") {
			t.Errorf("Reason = %q, want that a process was killed for its memory", got.Reason)
		}
	})
}

func TestContainersGetWhatTheirSpecSays(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir(), func(o *Options) { o.PidsLimit = 100 })
		s := spec("limits", program("run"))
		s.VCPU, s.Memory = 64, 2
		up(t, rt, s)
		c, err := rt.pods.Find("limits").inspect(t.Context())
		if err != nil || c == nil {
			t.Fatalf("inspect = %v, %v", c, err)
		}
		got := map[string]any{
			"cpus": c.HostConfig.NanoCPUs, "memory": c.HostConfig.Memory, "pids": *c.HostConfig.PidsLimit,
			"gen": c.Config.Labels[labelGen], "pod": c.Config.Labels[labelPod],
		}
		want := map[string]any{
			"cpus": int64(rt.engine.cores) * 1e9, "memory": int64(2 << 30), "pids": int64(100), "gen": "1", "pod": "limits",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("container (-want +got):\n%s", diff)
		}
	})
}

// An engine may refuse a size that it cannot enforce, or ignore it.
func TestTheSizeOfADiskIsALimitOrNotClaimedToBe(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir(), func(o *Options) { o.DiskLimit = true })
		s := spec("disk", program("size"))
		s.Disk = 1
		ensure(t, rt, s)
		got := await(t, rt, "disk", "end", func(s pods.ContainerState) bool { return s.Phase >= pods.PhaseHealthy })
		if got.Phase == pods.PhaseFailed {
			t.Log(got.Reason)
			return
		}
		size := rt.lines(t, "disk", 1)[0]
		if n, err := strconv.ParseUint(size, 10, 64); rt.Capabilities().DiskLimit && (err != nil || n > gigabyte) {
			t.Errorf("the disk of a container has %s bytes, %v; want 1 GB, as Capabilities say", size, err)
		}
	})
}

// A start tries another port if a program took the port. It depends on the error texts of
// the engine, for each kind of program.
func TestAPortInUseIsKnownFromWhatTheEngineSays(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		begin := func(id string, public int) error {
			p, s := rt.newPod(id), spec(id, program("run"))
			config, err := p.config(t.Context(), s)
			if err != nil {
				t.Fatal(err)
			}
			ports := []pods.PortMapping{{Private: 8000, Public: public, Protocol: "tcp", IP: "127.0.0.1"}}
			if config.Config.ExposedPorts, config.HostConfig.PortBindings, err = bindings(ports); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = p.removeContainer(context.WithoutCancel(t.Context())) })
			if _, err := rt.api.ContainerCreate(t.Context(), config); err != nil {
				t.Fatal(err)
			}
			_, err = rt.api.ContainerStart(t.Context(), p.name(), client.ContainerStartOptions{})
			return err
		}
		in, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := in.Addr().(*net.TCPAddr).Port
		if err := begin("beside-a-program", port); err == nil || !isPortTaken(err) {
			t.Errorf("start with the port of a program = %v, want that it is taken", err)
		}
		if err := in.Close(); err != nil {
			t.Fatal(err)
		}
		if err := begin("first", port); err != nil {
			t.Fatalf("start with a free port = %v", err)
		}
		if err := begin("second", port); err == nil || !isPortTaken(err) {
			t.Errorf("start with the port of a container = %v, want that it is taken", err)
		}
	})
}

// lines waits for n lines.
func (r *Runtime) lines(t *testing.T, id string, n int) (got []string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for line, err := range r.Logs(ctx, id, pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		if got = append(got, line.Text); len(got) == n {
			return got
		}
	}
	t.Fatalf("%d lines, want %d", len(got), n)
	return nil
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt, other := open(t, d, t.TempDir()), open(t, d, t.TempDir())
		up(t, other, spec("theirs", program("run")))
		// It has the container name that a pod of rt would have.
		foreign := rt.newPod("taken")
		_, err := rt.api.ContainerCreate(t.Context(), client.ContainerCreateOptions{
			Name: foreign.name(), Config: &container.Config{Image: plain, Cmd: []string{"run"}},
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, _ = rt.api.ContainerRemove(context.WithoutCancel(t.Context()), foreign.name(), client.ContainerRemoveOptions{Force: true})
		})
		ensure(t, rt, spec("taken", program("run")))
		got := await(t, rt, "taken", "failure", phase(pods.PhaseFailed))
		if !strings.Contains(got.Reason, "not of this server") {
			t.Errorf("Reason = %q, want it to say that the container is another's", got.Reason)
		}
		if err := rt.Remove(t.Context(), "taken", 0); err == nil {
			t.Error("Remove of a container that is not ours = nil, want an error")
		}
		all, err := rt.List(t.Context())
		if err != nil || slices.ContainsFunc(all, func(s pods.ContainerState) bool { return s.PodID == "theirs" }) {
			t.Errorf("List = %+v, %v, want nothing of another server", all, err)
		}
		rt.pods.Forget("taken", rt.pods.Find("taken"))
		if _, err := rt.api.ContainerInspect(t.Context(), foreign.name(), client.ContainerInspectOptions{}); err != nil {
			t.Errorf("the container that is not ours: %v", err)
		}
	})
}

func TestAnEngineWithoutGPUsFailsThePod(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		if rt.Capabilities().GPUs {
			t.Skip("this engine has GPUs")
		}
		s := spec("gpu", program("run"))
		s.GPUs, s.Devices = 1, []string{"GPU-0"}
		ensure(t, rt, s)
		got := await(t, rt, "gpu", "failure", phase(pods.PhaseFailed))
		if got.Reason == "" {
			t.Errorf("pod is %+v, want a Reason", got)
		}
		t.Log(got.Reason)
	})
}

func TestManyLinesArriveOnceEach(t *testing.T) {
	suite.SkipUnlessLong(t)
	const n = 100_000
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		up(t, rt, spec("talker", program("print", fmt.Sprint(n))))
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
		defer cancel()
		var last pods.LogLine
		seen := 0
		// The reader disconnects now and then, and continues at its last position.
		for seen < n && ctx.Err() == nil {
			for line, err := range rt.Logs(ctx, "talker", pods.LogQuery{After: last.At, AfterSeq: last.Seq, Tail: -1, Follow: true}) {
				if err != nil {
					t.Fatalf("Logs yields %v", err)
				}
				seen++
				if want := fmt.Sprintf("line %d", seen); line.Text != want {
					t.Fatalf("line %q, want %q", line.Text, want)
				}
				if last = line; seen%30_000 == 0 || seen == n {
					break
				}
			}
		}
		if seen != n {
			t.Errorf("%d lines, want %d", seen, n)
		}
	})
}

// It runs alone, because all tests share the heap.
func TestLinesAreNotHeldInMemory(t *testing.T) {
	suite.SkipUnlessLong(t)
	const n, bound = 100_000, 2 << 20 // all lines together would be more than 8 MiB
	rt := open(t, requireEngine(t, "dockerd"), t.TempDir())
	up(t, rt, spec("talker", program("print", fmt.Sprint(n))))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var first, most uint64
	seen := 0
	for line, err := range rt.Logs(ctx, "talker", pods.LogQuery{Tail: -1, Follow: true}) {
		if err != nil {
			t.Fatalf("Logs yields %v", err)
		}
		if seen++; line.Text != fmt.Sprintf("line %d", seen) {
			t.Fatalf("line %q, want \"line %d\"", line.Text, seen)
		}
		if seen%10_000 == 0 {
			live := liveHeap()
			if most = max(most, live); first == 0 {
				first = live
			}
		}
		if seen == n {
			break
		}
	}
	if seen != n {
		t.Fatalf("%d lines, want %d", seen, n)
	}
	t.Logf("live heap after the first 10,000 lines: %d bytes; most of it later: %d", first, most)
	if most > first+bound {
		t.Errorf("the live heap grew by %d bytes over %d lines, want less than %d", most-first, n, bound)
	}
}

// liveHeap returns the size of the live heap, without what is allocated between the end of a
// collection and the look at it: of that there is least in one of three.
func liveHeap() uint64 {
	least := uint64(math.MaxUint64)
	for range 3 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		least = min(least, m.HeapAlloc)
	}
	return least
}

func TestALongLineIsOne(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		up(t, rt, spec("long", program("long", "50000")))
		got := rt.lines(t, "long", 2)
		slices.SortFunc(got, func(a, b string) int { return len(b) - len(a) }) // stdout and stderr may be merged in any order
		if len(got[0]) != 50_000 || got[1] != "after" {
			t.Errorf("lines have %d and %d bytes, want 50000 and 5", len(got[0]), len(got[1]))
		}
	})
}

func TestFiftyPodsComeUpAtOnce(t *testing.T) {
	forEachEngine(t, func(t *testing.T, d *enginetest.Engine) {
		rt := open(t, d, t.TempDir())
		began := time.Now()
		for i := range 50 {
			ensure(t, rt, spec(fmt.Sprintf("many-%d", i), program("run")))
		}
		for i := range 50 {
			await(t, rt, fmt.Sprintf("many-%d", i), "Up", phase(pods.PhaseHealthy))
		}
		t.Logf("50 pods Up after %v", time.Since(began))
	})
}
