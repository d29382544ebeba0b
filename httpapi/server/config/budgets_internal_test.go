package config

import (
	"strings"
	"testing"

	"github.com/podyard/podyard/ratelimit/budget"
)

func TestBudgetsOfTheConfigurationAreDefaultsThenThoseOfEverybodyThenThoseOfTheUser(t *testing.T) {
	c, err := Parse("yard.json", []byte(`{
		"keys": [{"key": "bench", "user": "bench", "exempt": true}],
		"budgets": {"pods": 7, "volumes": -1, "users": {"alice": {"pods": 5, "jobs": -1}, "bench": {"pods": 1}}}
	}`))
	if err != nil {
		t.Fatal(err)
	}
	s := budget.NewSet(c.users())
	for _, row := range []struct {
		user string
		b    budget.Budget
		want int64
	}{
		{"carol", budget.Pods, 7}, {"carol", budget.Volumes, 0}, {"carol", budget.Jobs, budget.Jobs.Row().Default},
		{"alice", budget.Pods, 5}, {"alice", budget.Volumes, 0}, {"alice", budget.Jobs, 0},
		{"bench", budget.Pods, 0},
	} {
		if got := s.Of(row.user).Of(row.b); got != row.want {
			t.Errorf("%s, %s: %d, want %d", row.user, row.b, got, row.want)
		}
	}
}

func TestAnUnknownBudgetIsAnErrorThatNamesIt(t *testing.T) {
	for text, want := range map[string]string{
		`{"budgets":{"pod":1}}`:                        "budgets.pod",
		`{"budgets":{"users":{"alice":{"pod":1}}}}`:    "budgets.users.alice.pod",
		`{"budgets":{"users":{"":{"pods":1}}}}`:        "must be the name of a user",
		`{"budgets":{"pods":"many"}}`:                  "budgets.pods",
		`{"budgets":{"users":{"alice":{"users":{}}}}}`: "budgets.users.alice.users",
	} {
		if _, err := Parse("yard.json", []byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want it to name %s", text, err, want)
		}
	}
}
