package budget_test

import (
	"errors"
	"math"
	"testing"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit/budget"
)

func TestTheMonthsBudgetWarnsADayAndAnHourBeforeItsEndAtThePresentRate(t *testing.T) {
	noon := time.Date(2026, time.November, 10, 12, 0, 0, 0, time.UTC)
	c := budget.Cost{PerMonth: 100}
	for _, row := range []struct {
		name        string
		at          time.Time
		rate, month float64
		level       budget.CostLevel
		ends        time.Duration // after at; 0: none
	}{
		{"nothing runs", noon, 0, 99, budget.CostFine, 0},
		{"more than a day is left", noon, 1, 75.9, budget.CostFine, 24*time.Hour + 6*time.Minute},
		{"a day is left", noon, 1, 76, budget.CostDay, 24 * time.Hour},
		{"an hour is left", noon, 1, 99, budget.CostHour, time.Hour},
		{"twice the rate, half the time", noon, 2, 98, budget.CostHour, time.Hour},
		{"used up", noon, 1, 100, budget.CostSpent, 0},
		{"used up, and nothing runs", noon, 0, 123, budget.CostSpent, 0},
		{"sums of fractions", noon, 1, 99.99999999999, budget.CostSpent, 0},
		{"the month ends first", time.Date(2026, time.November, 30, 20, 0, 0, 0, time.UTC), 1, 95, budget.CostFine, 0},
		{"the month of UTC counts", time.Date(2026, time.December, 1, 0, 30, 0, 0, time.FixedZone("", 3600)), 1, 99.8, budget.CostHour, 12 * time.Minute},
		{"the last instant of a month", time.Date(2026, time.December, 1, 0, 0, 0, -1, time.UTC), 1, 99.9999, budget.CostFine, 0},
	} {
		v := c.Judge(budget.Spending{At: row.at, Rate: row.rate, Month: row.month}, 0)
		var ends time.Duration
		if !v.Ends.IsZero() {
			ends = v.Ends.Sub(row.at).Round(time.Second)
		}
		if v.Level != row.level || ends != row.ends || v.Refused != nil {
			t.Errorf("%s: level %d, ends after %v, refused %v; want level %d, %v and no refusal", row.name, v.Level, ends, v.Refused, row.level, row.ends)
		}
	}
}

func TestWhatWouldCostMoreThanTheBudgetIsRefusedWithItsNameAndWhatFreesIt(t *testing.T) {
	at := time.Date(2026, time.November, 30, 23, 59, 30, 0, time.UTC)
	c := budget.Cost{PerHour: 1, PerMonth: 100}
	for _, row := range []struct {
		rate, month, more float64
		want              string // empty: it may start
		wait              int
	}{
		{0.3, 0, 0.7, "", 0},
		{0.1 + 0.2, 0, 0.7, "", 0}, // 0.30000000000000004
		{0.5, 0, 0.51, "the budget costPerHour is full: what runs costs 0.50 of 1.00 USD an hour, and this needs 0.51 more: stop or terminate pods, or let workers end", 0},
		{5, 200, 0, "", 0}, // what costs nothing
		{0, 100, 0.0001, "the budget costPerMonth is used up: 100.00 of 100.00 USD of this month (UTC) are spent: wait for the next month, or ask an operator for more", 30},
	} {
		v := c.Judge(budget.Spending{At: at, Rate: row.rate, Month: row.month}, row.more)
		if row.want == "" {
			if v.Refused != nil {
				t.Errorf("%+v: %v", row, v.Refused)
			}
			continue
		}
		if v.Refused == nil || v.Refused.Error() != row.want || v.Refused.RetryAfter() != row.wait || problem.Of(v.Refused).Status != 429 {
			t.Errorf("%+v: got %v", row, v.Refused)
		}
	}
	if err := error((budget.Cost{}).Judge(budget.Spending{Rate: math.MaxFloat32, Month: math.MaxFloat32}, 1).Refused); !errors.Is(err, (*budget.CostError)(nil)) {
		t.Errorf("without limits: %v", err)
	}
}

func TestAUserHasTheirOwnCostsAndAnExemptUserNone(t *testing.T) {
	s := budget.NewSet(budget.Users{
		Cost: budget.Cost{PerHour: 1}, NamedCost: map[string]budget.Cost{"alice": {PerMonth: 9}, "bob": {PerHour: 3}}, Exempt: []string{"bob"},
	})
	for user, want := range map[string]budget.Cost{"carol": {PerHour: 1}, "alice": {PerMonth: 9}, "bob": {}, "": {}} {
		if got := s.Cost(user); got != want {
			t.Errorf("%q: %+v, want %+v", user, got, want)
		}
	}
	if got := (budget.Cost{PerHour: -1}).Or(budget.Cost{PerHour: 2, PerMonth: 3}); got != (budget.Cost{PerMonth: 3}) {
		t.Errorf("a negative cost is %+v, want no limit, and the default of the other", got)
	}
	if got := (*budget.Set)(nil).Cost("alice"); got != (budget.Cost{}) {
		t.Errorf("a nil Set has %+v", got)
	}
}
