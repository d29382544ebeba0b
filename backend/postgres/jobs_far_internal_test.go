package postgres

import (
	"fmt"
	"testing"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

func TestAUserWhoWasFoundFarIsRememberedForAWhile(t *testing.T) {
	t.Parallel()
	began := time.Unix(1, 0)
	users := budget.Users{Limits: budget.Limits{Jobs: 1_000_000, DeadLetters: 1000}, Exempt: []string{"root"}}
	looked := amounts{budget.Jobs: 1}
	for name, c := range map[string]struct {
		user    string
		change  func(set *budget.Set)
		after   time.Duration
		want    amounts
		without bool
	}{
		"at once":                     {want: amounts{budget.Jobs: 1}, without: true},
		"as much as a look is for":    {want: amounts{budget.Jobs: maxItems, budget.JobBytes: maxBytes}, without: true},
		"more jobs":                   {want: amounts{budget.Jobs: maxItems + 1}},
		"more bytes":                  {want: amounts{budget.JobBytes: maxBytes + 1}},
		"what was not looked at":      {want: amounts{budget.Jobs: 1, budget.DeadLetters: 1}},
		"before the time is over":     {after: farFor - 1, want: amounts{budget.Jobs: 1}, without: true},
		"after the time is over":      {after: farFor, want: amounts{budget.Jobs: 1}},
		"another user":                {user: "bob", want: amounts{budget.Jobs: 1}},
		"a user without limits":       {user: "root", want: amounts{budget.Jobs: 1 << 40}, without: true},
		"after limits were set again": {change: func(set *budget.Set) { set.Replace(users) }, want: amounts{budget.Jobs: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var f farUsers
			set := budget.NewSet(users)
			f.found(set, map[string]amounts{"alice": looked}, began)
			if c.change != nil {
				c.change(set)
			}
			if c.user == "" {
				c.user = "alice"
			}
			if got := f.spend(set, map[string]amounts{c.user: c.want}, began.Add(c.after)); got != c.without {
				t.Errorf("spend = %v, want %v", got, c.without)
			}
		})
	}
}

func TestWhatAFarUserAddsWithoutALookIsBounded(t *testing.T) {
	t.Parallel()
	var f farUsers
	set := budget.NewSet(budget.Users{Limits: budget.Limits{Jobs: 1_000_000}})
	one := map[string]amounts{"alice": {budget.Jobs: 1}}
	f.found(set, one, time.Unix(1, 0))
	n := 0
	for f.spend(set, one, time.Unix(1, 0)) {
		n++
	}
	if n != maxItems {
		t.Errorf("%d jobs were added without a look, want %d", n, maxItems)
	}
}

func TestABoundedNumberOfFarUsersIsRemembered(t *testing.T) {
	t.Parallel()
	var f farUsers
	set := budget.NewSet(budget.Users{Limits: budget.Limits{Jobs: 1_000_000}})
	for i := range maxFar + 10 {
		f.found(set, map[string]amounts{fmt.Sprint("user-", i): {budget.Jobs: 1}}, time.Unix(1, 0))
	}
	if len(f.list) != maxFar {
		t.Errorf("%d users are remembered, want %d", len(f.list), maxFar)
	}
}
