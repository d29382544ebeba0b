package secrets_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/problem"
)

var start = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func create(t *testing.T, s *secrets.Service, owner, name string, value secrets.Value) secrets.Secret {
	t.Helper()
	v, err := s.Create(t.Context(), owner, secrets.CreateRequest{Name: name, Value: value})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestANameIsTakenWhateverItsCaseAndOnlyForItsOwner(t *testing.T) {
	s := secrets.New(memory.NewSecrets(), nil)
	first := create(t, s, "alice", "Db/Pass.word-1", "a")
	for _, name := range []string{"Db/Pass.word-1", "DB/PASS.WORD-1", "db/pass.word-1"} {
		if _, err := s.Create(t.Context(), "alice", secrets.CreateRequest{Name: name, Value: "b"}); problem.KindOf(err) != problem.Conflict {
			t.Errorf("Create %s = %v, want a conflict", name, err)
		}
		if v, err := s.SecretValue(t.Context(), "alice", name); v != "a" || err != nil {
			t.Errorf("the value of %s has %d bytes, %v", name, len(v), err)
		}
	}
	if of := create(t, s, "bob", "Db/Pass.word-1", "c"); of.ID == first.ID {
		t.Error("the secrets of two users have one id")
	}
	if v, err := s.SecretValue(t.Context(), "carol", "Db/Pass.word-1"); v != "" || problem.KindOf(err) != problem.NotFound {
		t.Errorf("carol finds a value of %d bytes, %v", len(v), err)
	}
}

func TestNoAnswerHasAValue(t *testing.T) {
	s := secrets.New(memory.NewSecrets(), nil)
	const value = "hunter2"
	made := create(t, s, "alice", "k", value)
	got, err1 := s.Get(t.Context(), "alice", made.ID)
	list, err2 := s.List(t.Context(), "alice")
	all, err3 := s.All(t.Context())
	changed, err4 := s.Update(t.Context(), "alice", made.ID, secrets.UpdateRequest{Description: new("d")})
	for _, err := range []error{err1, err2, err3, err4} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, v := range append(append(list, all...), made, got, changed) {
		if v.Value != "" || v.Size != len(value) {
			t.Errorf("an answer has a value of %d bytes, and says %d", len(v.Value), v.Size)
		}
	}
	if text := fmt.Sprintf("%v %+v %#v %d", secrets.Value(value), secrets.CreateRequest{Value: value}, secrets.Value(value), secrets.Value(value)); strings.Contains(text, value) {
		t.Errorf("a value is printed: %s", text)
	}
}

func TestAChangeOfTheValueIsDatedAndOneOfTheDescriptionIsNot(t *testing.T) {
	clk := clock.NewManual(start)
	s := secrets.New(memory.NewSecrets(), &secrets.Options{Clock: clk})
	made := create(t, s, "alice", "k", "a")
	step := func(r secrets.UpdateRequest, want secrets.Secret) {
		t.Helper()
		if err := clk.Advance(t.Context(), time.Hour); err != nil {
			t.Fatal(err)
		}
		got, err := s.Update(t.Context(), "alice", made.ID, r)
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("Update: %v (-want +got):\n%s", err, diff)
		}
	}
	want := made
	want.Description = "note"
	step(secrets.UpdateRequest{Description: new("note")}, want)
	value := secrets.Value("bb")
	want.ValueSet, want.Size = start.Add(2*time.Hour), 2
	step(secrets.UpdateRequest{Value: &value}, want)
	want.Description = ""
	step(secrets.UpdateRequest{Description: new("")}, want)
	if v, err := s.SecretValue(t.Context(), "alice", "k"); v != "bb" || err != nil {
		t.Errorf("the value has %d bytes, %v", len(v), err)
	}
}

func TestASecretOfAnotherUserIsNotThere(t *testing.T) {
	s := secrets.New(memory.NewSecrets(), nil)
	made := create(t, s, "alice", "k", "a")
	value := secrets.Value("mine")
	_, err1 := s.Get(t.Context(), "bob", made.ID)
	_, err2 := s.Update(t.Context(), "bob", made.ID, secrets.UpdateRequest{Value: &value})
	err3 := s.Delete(t.Context(), "bob", made.ID)
	for _, err := range []error{err1, err2, err3} {
		if problem.KindOf(err) != problem.NotFound {
			t.Errorf("bob gets %v, want not found", err)
		}
	}
	if v, err := s.SecretValue(t.Context(), "alice", "k"); v != "a" || err != nil {
		t.Errorf("the value has %d bytes, %v", len(v), err)
	}
}
