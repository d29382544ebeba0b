package budget_test

import (
	"errors"
	"testing"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

// usedRecently returns the count of a user.
func usedRecently(t *testing.T, r *budget.Recent, user string) int64 {
	t.Helper()
	u, err := r.Usage(t.Context(), user)
	if err != nil {
		t.Fatal(err)
	}
	return u[budget.IdempotencyKeys]
}

func TestWhatWasDoneCountsForADayAndAnHourAtMost(t *testing.T) {
	now := time.Date(2026, 1, 2, 3, 50, 0, 0, time.UTC)
	set := budget.NewSet(budget.Users{Limits: budget.Limits{IdempotencyKeys: 3}, Exempt: []string{"root"}})
	r := budget.NewRecent(budget.IdempotencyKeys, set, func() time.Time { return now })
	for i := range 3 {
		if err := r.Take("alice"); err != nil {
			t.Fatal(err)
		}
		now = now.Add(time.Duration(i) * time.Hour) // 3:50, 3:50 and 4:50
	}
	var full *budget.Error
	if err := r.Take("alice"); !errors.As(err, &full) || full.Used != 3 || full.RetryAfter() == 0 {
		t.Errorf("a fourth: %v", err)
	}
	for _, user := range []string{"bob", "root"} {
		if err := r.Take(user); err != nil {
			t.Errorf("%s: %v", user, err)
		}
	}
	now = time.Date(2026, 1, 3, 3, 55, 0, 0, time.UTC) // those of 3:50 may still be there
	if err := r.Take("alice"); err == nil || usedRecently(t, r, "alice") != 3 {
		t.Errorf("after 24 hours and some minutes %d count", usedRecently(t, r, "alice"))
	}
	now = now.Add(10 * time.Minute)
	if usedRecently(t, r, "alice") != 1 || r.Take("alice") != nil {
		t.Errorf("after 25 hours %d count, want that of 4:50", usedRecently(t, r, "alice"))
	}
	r.Give("alice")
	r.Give("nobody")
	if n := usedRecently(t, r, "alice"); n != 1 {
		t.Errorf("%d count after one was given back, want 1", n)
	}
	if users, _ := r.Users(t.Context()); len(users) != 2 {
		t.Errorf("users %q, want alice and bob: root counts for nothing", users)
	}
	now = now.Add(1000 * time.Hour)
	if users, _ := r.Users(t.Context()); len(users) != 0 {
		t.Errorf("users %q after everything is over", users)
	}
}

func TestANilRecentCountsNothing(t *testing.T) {
	var r *budget.Recent
	r.Give("alice")
	if users, err := r.Users(t.Context()); r.Take("alice") != nil || usedRecently(t, r, "alice") != 0 || len(users) != 0 || err != nil {
		t.Error("a nil Recent counts")
	}
}
