package budget_test

import (
	"encoding/json"
	"errors"
	"reflect"
	"testing"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

func TestEveryFieldOfLimitsIsABudgetWithTheNameAndADefault(t *testing.T) {
	l, all := budget.Default(), budget.All()
	v := reflect.ValueOf(l)
	if v.NumField() != len(all) {
		t.Fatalf("%d fields and %d budgets", v.NumField(), len(all))
	}
	for i, row := range all {
		field := v.Type().Field(i)
		if want := row.Name + ",omitzero"; field.Tag.Get("json") != want || row.Unit == "" || row.Frees == "" {
			t.Errorf("%s: tag %q, want %q, and a unit and what makes room", field.Name, field.Tag.Get("json"), want)
		}
		if got := v.Field(i).Int(); got != row.Default || got <= 0 || l.Of(row.Budget) != got {
			t.Errorf("%s: default %d, Of says %d, the row says %d", row.Name, got, l.Of(row.Budget), row.Default)
		}
	}
}

func TestALimitOfTheConfigurationReplacesTheDefaultAndANegativeOneIsNone(t *testing.T) {
	l := budget.Limits{Pods: 3, Jobs: -1}.Or(budget.Default())
	if l.Pods != 3 || l.Jobs != 0 || l.Volumes != budget.Default().Volumes {
		t.Errorf("pods %d, jobs %d, volumes %d", l.Pods, l.Jobs, l.Volumes)
	}
}

func TestTheZeroValueAndANilSetLimitNobody(t *testing.T) {
	for _, s := range []*budget.Set{nil, {}, budget.NewSet(budget.Users{})} {
		if err := s.Of("alice").Check(budget.Pods, 1<<40, 1); err != nil {
			t.Error(err)
		}
	}
}

func TestAUserHasTheirOwnLimitsAndAnExemptUserNone(t *testing.T) {
	s := budget.NewSet(budget.Users{
		Limits: budget.Limits{Pods: 1},
		Named:  map[string]budget.Limits{"alice": {Pods: 2}, "bob": {Pods: 3}},
		Exempt: []string{"bob"},
	})
	if s.Of("carol").Of(budget.Pods) != 1 || s.Of("alice").Of(budget.Pods) != 2 || s.Of("bob") != nil || s.Of("") != nil {
		t.Error("carol has the defaults, alice her own, bob and nobody none")
	}
	s.Replace(budget.Users{})
	if s.Of("alice").Of(budget.Pods) != 0 {
		t.Error("a replaced limit is in force")
	}
	if n := testing.AllocsPerRun(100, func() { s.Of("alice") }); n > 0 {
		t.Errorf("Of allocates %v times", n)
	}
}

func TestARefusalSaysWhatIsFullHowFullAndWhatMakesRoom(t *testing.T) {
	l := budget.Limits{Pods: 2, QueuedJobs: 10}
	if err := l.Check(budget.Pods, 1, 1); err != nil {
		t.Errorf("up to the limit: %v", err)
	}
	if err := l.Check(budget.Pods, 9, 0); err != nil {
		t.Errorf("nothing more over a lowered limit: %v", err)
	}
	err := l.Check(budget.Pods, 2, 1)
	want := "the budget pods is full: 2 of 2 pods are used, and this needs 1 more: terminate pods"
	if err == nil || err.Error() != want || problem.Of(err).Detail != want || problem.Of(err).Status != 429 {
		t.Errorf("got %v, want %s", err, want)
	}
	for _, row := range []struct{ used, asked, wait int64 }{{10, 1, 5}, {0, 11, 0}} {
		var full *budget.Error
		if err := l.Check(budget.QueuedJobs, row.used, row.asked); !errors.As(err, &full) || int64(full.RetryAfter()) != row.wait {
			t.Errorf("%d more: %v, want to wait %d s", row.asked, err, row.wait)
		}
	}
}

func TestLimitsAreReadByTheirNames(t *testing.T) {
	var l budget.Limits
	if err := json.Unmarshal([]byte(`{"pods":1,"jobBytes":2}`), &l); err != nil || l != (budget.Limits{Pods: 1, JobBytes: 2}) {
		t.Errorf("%+v, %v", l, err)
	}
}
