package registries_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

var good = registries.CreateRequest{Name: "hub", Username: "user", Password: "hunter2"}

// counter is a reader whose bytes count up: ids are predictable and differ.
type counter byte

func (c *counter) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(*c)
		*c++
	}
	return len(p), nil
}

func TestCreatedRegistryIsListedOldestFirstAndHasNoSecret(t *testing.T) {
	clk := clock.NewManual(start)
	s := registries.New(memory.NewRegistries(), &registries.Options{Clock: clk, Rand: new(counter)})
	var want []registries.Registry
	for i := range 3 {
		r, err := s.Create(t.Context(), "alice", good)
		if err != nil {
			t.Fatal(err)
		}
		if r.Owner != "alice" || r.Name != "hub" || !r.Created.Equal(start.Add(time.Duration(i)*time.Hour)) {
			t.Errorf("created %+v", r)
		}
		want = append(want, r)
		if err := clk.Advance(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.List(t.Context(), "alice")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
	one, err := s.Get(t.Context(), "alice", want[1].ID)
	if err != nil || one != want[1] {
		t.Errorf("Get = %+v, %v; want %+v", one, err, want[1])
	}
}

func TestIDsAreFourteenLettersAndDigits(t *testing.T) {
	s := registries.New(memory.NewRegistries(), nil)
	form := regexp.MustCompile(`^[a-z0-9]{14}$`)
	seen := map[string]bool{}
	for range 200 {
		r, err := s.Create(t.Context(), "alice", good)
		if err != nil {
			t.Fatal(err)
		}
		if !form.MatchString(r.ID) || seen[r.ID] {
			t.Fatalf("id %q is malformed or was made before", r.ID)
		}
		seen[r.ID] = true
	}
}

func TestTakenIDIsTriedAgainWithAnother(t *testing.T) {
	store := memory.NewRegistries()
	first, err := registries.New(store, &registries.Options{Rand: new(counter)}).Create(t.Context(), "alice", good)
	if err != nil {
		t.Fatal(err)
	}
	second, err := registries.New(store, &registries.Options{Rand: new(counter)}).Create(t.Context(), "bob", good)
	if err != nil || second.ID == first.ID {
		t.Errorf("Create over a taken id = %q, %v; want another id than %q", second.ID, err, first.ID)
	}
}

func TestRandomnessThatEndsOrRepeatsIsAnErrorAndNotALoop(t *testing.T) {
	store := memory.NewRegistries()
	for name, r := range map[string]io.Reader{
		"empty": strings.NewReader(""), "always 255": repeat(0xff), "always 0": repeat(0),
	} {
		s := registries.New(store, &registries.Options{Rand: r})
		_, first := s.Create(t.Context(), "alice", good)
		_, second := s.Create(t.Context(), "alice", good)
		if second == nil {
			t.Errorf("%s: second Create succeeded", name)
		}
		if problem.KindOf(errors.Join(first, second)) != problem.Internal {
			t.Errorf("%s: %v, %v; want errors without a kind: the client did nothing wrong", name, first, second)
		}
	}
}

type repeat byte

func (b repeat) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(b)
	}
	return len(p), nil
}

func TestCreateReportsEveryFaultAtOnceInFieldOrder(t *testing.T) {
	s := registries.New(memory.NewRegistries(), nil)
	var r registries.CreateRequest
	r.Violations.Add(problem.Invalid, "/colour", "unknown property")
	r.Violations.Add(problem.Invalid, "/username", "must be a string")
	_, err := s.Create(t.Context(), "alice", r)
	want := problem.Document{
		Title: "Unprocessable Entity", Status: 422, Detail: "Request validation failed.",
		Errors: []string{
			"/name: must have at least 1 character",
			"/username: must be a string",
			"/password: must have at least 1 character",
			"/colour: unknown property",
		},
	}
	if diff := cmp.Diff(want, problem.Of(err)); diff != "" {
		t.Errorf("Create (-want +got):\n%s", diff)
	}
	if list, err := s.List(t.Context(), "alice"); err != nil || len(list) != 0 {
		t.Errorf("after a refused Create: %v, %v; want nothing", list, err)
	}
}

func TestRegistryOfAnotherUserIsNotFound(t *testing.T) {
	s := registries.New(memory.NewRegistries(), nil)
	r, err := s.Create(t.Context(), "alice", good)
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range []string{r.ID, "nosuchregistry"} {
		_, get := s.Get(t.Context(), "bob", id)
		del := s.Delete(t.Context(), "bob", id)
		_, _, _, pull := s.PullSecret(t.Context(), "bob", id)
		for name, err := range map[string]error{"Get": get, "Delete": del, "PullSecret": pull} {
			want := problem.Document{Title: "Not Found", Status: 404, Detail: "registry not found"}
			if diff := cmp.Diff(want, problem.Of(err)); diff != "" {
				t.Errorf("%s of %s by bob (-want +got):\n%s", name, id, diff)
			}
		}
	}
	if list, err := s.List(t.Context(), "bob"); err != nil || len(list) != 0 {
		t.Errorf("List of bob = %v, %v; want nothing", list, err)
	}
	if _, err := s.Get(t.Context(), "alice", r.ID); err != nil {
		t.Errorf("bob's Delete removed it: %v", err)
	}
}

func TestPullSecretIsWhatWasStored(t *testing.T) {
	s := registries.New(memory.NewRegistries(), nil)
	r, err := s.Create(t.Context(), "alice", good)
	if err != nil {
		t.Fatal(err)
	}
	host, user, password, err := s.PullSecret(t.Context(), "alice", r.ID)
	if err != nil || host != "" || user != "user" || password != "hunter2" {
		t.Errorf("PullSecret = %q, %q, (%d characters), %v", host, user, len(password), err)
	}
}

// pods stands for the pod service: registries named by pods, by owner and id.
type pods map[[2]string]bool

func (p pods) RegistryInUse(_ context.Context, owner, id string) (bool, error) {
	if p == nil {
		return false, errors.New("pods: store is closed")
	}
	return p[[2]string{owner, id}], nil
}

func TestRegistryInUseIsNotDeleted(t *testing.T) {
	used := pods{}
	s := registries.New(memory.NewRegistries(), &registries.Options{InUse: used})
	r, err := s.Create(t.Context(), "alice", good)
	if err != nil {
		t.Fatal(err)
	}
	used[[2]string{"alice", r.ID}] = true
	if err := s.Delete(t.Context(), "alice", r.ID); !errors.Is(err, registries.ErrInUse) || problem.Of(err).Status != 400 {
		t.Errorf("Delete while a pod uses it = %v, want ErrInUse, a 400", err)
	}
	if _, err := s.Get(t.Context(), "alice", r.ID); err != nil {
		t.Errorf("the refused Delete removed it: %v", err)
	}
	clear(used)
	if err := s.Delete(t.Context(), "alice", r.ID); err != nil {
		t.Errorf("Delete when the pod is gone = %v", err)
	}
	if _, err := s.Get(t.Context(), "alice", r.ID); !errors.Is(err, registries.ErrNotFound) {
		t.Errorf("Get of a deleted registry = %v, want ErrNotFound", err)
	}
}

func TestDeleteThatCannotAskThePodsChangesNothing(t *testing.T) {
	s := registries.New(memory.NewRegistries(), &registries.Options{InUse: pods(nil)})
	r, err := s.Create(t.Context(), "alice", good)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Delete(t.Context(), "alice", r.ID); err == nil || problem.Of(err).Status != 500 {
		t.Errorf("Delete = %v, want an error without a kind", err)
	}
	if _, err := s.Get(t.Context(), "alice", r.ID); err != nil {
		t.Errorf("Get afterwards = %v", err)
	}
}

// wrongVerb is a variable because vet refuses it as a constant.
var wrongVerb = "%d\n"

func TestNothingPrintsASecret(t *testing.T) {
	secret := registries.Secret("hunter2")
	values := []any{secret, &secret, registries.Credential{Username: secret, Password: secret}, good, &good}
	var out bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&out, nil))
	text := slog.New(slog.NewTextHandler(&out, nil))
	for _, v := range values {
		fmt.Fprintf(&out, "%v %+v %#v %s %q %x\n", v, v, v, v, v, v)
		fmt.Fprintf(&out, wrongVerb, v)
		log.Info("value", "v", v)
		text.Info("value", "v", v)
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	if strings.Contains(out.String(), "hunter2") || !strings.Contains(out.String(), "[redacted]") {
		t.Errorf("a secret was printed, or nothing was hidden:\n%s", out.String())
	}
}
