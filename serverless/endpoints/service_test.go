package endpoints_test

import (
	"bytes"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

func TestEndpointHasTheDocumentedDefaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		got, err := s.Create(t.Context(), "alice", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		want := &endpoints.Endpoint{
			Owner: "alice", Name: "cpu", Created: time.Now().UTC(),
			Container:   endpoints.Container{Image: "org/worker:1", Disk: 50},
			CPU:         []endpoints.CPU{{ID: "cpu5c", VCPU: 4, Memory: 8}},
			Workers:     endpoints.WorkerLimits{Min: 0, Max: 3, Idle: 10 * time.Second},
			Scaling:     endpoints.Scaling{Type: endpoints.QueueDelay, Delay: 4 * time.Second},
			ExecTimeout: 300 * time.Second, FlashBoot: endpoints.FlashBootOff, Version: 1,
			Releases: []endpoints.Release{{Version: 1, User: "alice", Created: time.Now().UTC()}},
		}
		if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(endpoints.Endpoint{}, "ID"), cmpopts.IgnoreFields(endpoints.Release{}, "ID")); diff != "" {
			t.Errorf("Create (-want +got):\n%s", diff)
		}
		short := regexp.MustCompile(`^[0-9a-z]{14}$`)
		if !short.MatchString(got.ID) || !short.MatchString(got.Releases[0].ID) {
			t.Errorf("ids are %q and %q, want 14 letters and digits", got.ID, got.Releases[0].ID)
		}
		stored, err := s.Get(t.Context(), "alice", got.ID)
		if diff := cmp.Diff(got, stored); diff != "" || err != nil {
			t.Errorf("Get (%v, -want +got):\n%s", err, diff)
		}
	})
}

func TestSharedEndpointIsSeenByAllAndChangedByNobody(t *testing.T) {
	s := newService()
	r := cpuEndpoint()
	r.Env = map[string]string{"TOKEN": "hidden"}
	if _, err := s.Declare(t.Context(), "shared", r); err != nil {
		t.Fatal(err)
	}
	r.Env = map[string]string{"TOKEN": "hidden too"}
	if _, err := s.Declare(t.Context(), "shared", r); err != nil {
		t.Fatal(err)
	}
	got, err := s.Get(t.Context(), "bob", "shared")
	if err != nil {
		t.Fatal(err)
	}
	if got.Container.Env != nil || got.Version != 2 || fmt.Sprint(got.Releases[1].Diff) != "[{env [] []}]" {
		t.Errorf("everybody sees env %v and the change %v of version %d, want no value of it", got.Container.Env, got.Releases[1].Diff, got.Version)
	}
	if list, err := s.List(t.Context(), "bob"); err != nil || len(list) != 1 || list[0].Container.Env != nil {
		t.Errorf("List = %v, %v, want the shared one without its env", list, err)
	}
	_, err = s.Update(t.Context(), "bob", "shared", endpoints.UpdateRequest{})
	if !errors.Is(err, endpoints.ErrShared) || problem.KindOf(err) != problem.Forbidden {
		t.Errorf("Update = %v, want ErrShared", err)
	}
	if err := s.Delete(t.Context(), "bob", "shared"); !errors.Is(err, endpoints.ErrShared) {
		t.Errorf("Delete = %v, want ErrShared", err)
	}
	if e, err := s.Visible(t.Context(), "bob", "shared"); err != nil || e.Container.Env["TOKEN"] != "hidden too" {
		t.Errorf("the workers' environment is %v, %v, want the last declared", e.Container.Env, err)
	}
}

func TestDeclaredEndpointKeepsItsHistory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		first, err := s.Declare(t.Context(), "py", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		same, err := s.Declare(t.Context(), "py", cpuEndpoint())
		if diff := cmp.Diff(first, same); diff != "" || err != nil {
			t.Errorf("declared again as it was (%v, -want +got):\n%s", err, diff)
		}
		r := cpuEndpoint()
		r.Image, r.Workers.Max = new("org/worker:2"), new(5)
		e, err := s.Declare(t.Context(), "py", r)
		if err != nil {
			t.Fatal(err)
		}
		if !e.Created.Equal(first.Created) || e.Version != 2 || len(e.Releases) != 2 || e.Workers.Max != 5 || e.Owner != "" {
			t.Errorf("declared with another image = %+v, want version 2 with two releases, made when it was", e)
		}
	})
}

func TestChangeOfLimitsCountsAtOnceAndIsNoRelease(t *testing.T) {
	s := newService()
	e, err := s.Create(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	got, err := s.Update(t.Context(), "alice", e.ID, endpoints.UpdateRequest{Settings: endpoints.Settings{
		Name: new("other"), Workers: endpoints.WorkerSettings{Min: new(1), Max: new(10)}, Timeout: ptr(time.Minute),
		Scaling: &endpoints.Scaling{Type: endpoints.RequestCount, Count: 2},
	}})
	want := e.Clone()
	want.Name, want.ExecTimeout = "other", time.Minute
	want.Workers.Min, want.Workers.Max = 1, 10
	want.Scaling = endpoints.Scaling{Type: endpoints.RequestCount, Count: 2}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("Update (%v, -want +got):\n%s", err, diff)
	}
}

func TestDeclarationDoesNotTakeAnIDThatIsNotItsOwn(t *testing.T) {
	s := newService()
	e, err := s.Create(t.Context(), "alice", cpuEndpoint())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Declare(t.Context(), e.ID, cpuEndpoint()); !errors.Is(err, endpoints.ErrExists) || !strings.Contains(err.Error(), `user "alice"`) {
		t.Errorf("Declare of a user's id = %v, want ErrExists with the user's name", err)
	}
	if _, err := s.Declare(t.Context(), "pods", cpuEndpoint()); problem.KindOf(err) != problem.Invalid {
		t.Errorf("Declare of a reserved id = %v, want an invalid id", err)
	}
	r := cpuEndpoint()
	r.Image = nil
	if _, err := s.Declare(t.Context(), "py", r); problem.KindOf(err) != problem.Invalid {
		t.Errorf("Declare without an image = %v, want its faults", err)
	}
}

func TestIDIsMadeAgainWhenItIsTaken(t *testing.T) {
	// A source that repeats itself gives the second endpoint the first one's ids, and then others.
	same, other := make([]byte, 28), bytes.Repeat([]byte{1}, 28)
	var random []byte
	for _, b := range [][]byte{same, same, same, same, other} {
		random = append(random, b...)
	}
	s := endpoints.New(memory.NewEndpoints(), &endpoints.Options{Rand: bytes.NewReader(random)})
	for range 2 {
		if _, err := s.Create(t.Context(), "alice", cpuEndpoint()); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.Create(t.Context(), "alice", cpuEndpoint()); err == nil {
		t.Error("Create with an exhausted source = nil, want its error")
	}
}

func TestTimeoutOfAnEndpointFollowsWhoMadeIt(t *testing.T) {
	s := newService()
	created, err := s.Create(t.Context(), "alice", cpuEndpoint())
	if err != nil || created.ExecTimeout != 300*time.Second {
		t.Errorf("an endpoint made over the API has %v (%v), want 5m0s", created.ExecTimeout, err)
	}
	declared, err := s.Declare(t.Context(), "py", cpuEndpoint())
	if err != nil || declared.ExecTimeout != 0 {
		t.Errorf("an endpoint of the configuration has %v (%v), want 0, which is 10m0s", declared.ExecTimeout, err)
	}
	r := cpuEndpoint()
	r.Timeout = new(time.Minute)
	if declared, err = s.Declare(t.Context(), "py", r); err != nil || declared.ExecTimeout != time.Minute {
		t.Errorf("an endpoint that names its timeout has %v (%v), want 1m0s", declared.ExecTimeout, err)
	}
}

// A program that serves an endpoint with a function has it made in one call, however often
// it is started; nothing of an endpoint that is there changes, and a user's is not taken.
func TestEnsuredEndpointIsMadeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newService()
		ensure := func(id string) *endpoints.Endpoint {
			t.Helper()
			if err := s.Ensure(t.Context(), id, endpoints.QueueType); err != nil {
				t.Fatal(err)
			}
			e, err := s.Get(t.Context(), "anybody", id)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		first := ensure("shout")
		if diff := cmp.Diff(&endpoints.Endpoint{ID: "shout", Name: "shout", Created: time.Now().UTC()}, first); diff != "" {
			t.Errorf("ensured (-want +got):\n%s", diff)
		}
		declared, err := s.Declare(t.Context(), "py", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for _, was := range []*endpoints.Endpoint{first, declared} {
			if diff := cmp.Diff(was, ensure(was.ID)); diff != "" {
				t.Errorf("ensured again (-want +got):\n%s", diff)
			}
		}
		own, err := s.Create(t.Context(), "alice", cpuEndpoint())
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Ensure(t.Context(), own.ID, endpoints.QueueType); !errors.Is(err, endpoints.ErrExists) {
			t.Errorf("Ensure of a user's id = %v, want ErrExists", err)
		}
		for _, id := range []string{"", "pods", "a b"} {
			if err := s.Ensure(t.Context(), id, endpoints.QueueType); problem.KindOf(err) != problem.Invalid {
				t.Errorf("Ensure(%q) = %v, want an invalid id", id, err)
			}
		}
	})
}

// The settings of a queue are kept when the configuration declares the endpoint again.
func TestADeclarationKeepsTheSettingsOfTheQueue(t *testing.T) {
	s := newService()
	r := cpuEndpoint()
	if _, err := s.Declare(t.Context(), "shared", r); err != nil {
		t.Fatal(err)
	}
	if _, err := s.UpdateQueue(t.Context(), "shared", endpoints.QueueUpdate{PerUser: new(7)}); err != nil {
		t.Fatal(err)
	}
	r.Image = new("org/worker:2")
	e, err := s.Declare(t.Context(), "shared", r)
	if err != nil || e.QueueSettings().PerUser != 7 {
		t.Errorf("after another declaration the settings are %+v, %v, want 7 jobs for each user", e.QueueSettings(), err)
	}
	if len(e.Releases) != 2 {
		t.Errorf("%d releases, want 2: the settings of the queue are none", len(e.Releases))
	}
}
