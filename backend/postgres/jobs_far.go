package postgres

import (
	"sync"
	"time"

	"github.com/podyard/podyard/ratelimit/budget"
)

// Most users are far from every limit, so not every transaction reads what its users hold. A Store
// that has found a user far from the limits adds a little more for that user without another look,
// for a short time. The margins of a look leave room for that at all servers.

// farFor is too short for anybody to fill the margins meanwhile, so a user who reaches a limit got
// there by transactions that have looked.
const farFor = 250 * time.Millisecond

// maxFar is how many users a Store remembers.
const maxFar = 1 << 12

// amounts are of the budgets of a queue, which are the first ones.
type amounts [budget.DeadLetters + 1]int64

// farMost is what a Store adds after a look without another one.
func farMost() amounts { return amounts{maxItems, maxItems, maxBytes, maxItems, maxItems} }

// lookMargin is what a look leaves below the limits.
func lookMargin() amounts { return amounts{jobMargin, jobMargin, byteMargin, jobMargin, jobMargin} }

func (a *amounts) within(most *amounts) bool {
	for i := range a {
		if a[i] > most[i] {
			return false
		}
	}
	return true
}

// farUsers are the users who were found far from their limits.
type farUsers struct {
	mu   sync.Mutex
	list map[string]*farUser
}

type farUser struct {
	limits *budget.Limits // that were looked at
	until  time.Time
	left   amounts
}

// spend takes what some users want to have more, and reports true, if no look is needed for that.
func (f *farUsers) spend(set *budget.Set, want map[string]amounts, now time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for user, w := range want {
		l := set.Of(user)
		if l == nil {
			continue
		}
		u := f.list[user]
		if u == nil || u.limits != l || !now.Before(u.until) || !w.within(&u.left) {
			return false
		}
	}
	for user, w := range want {
		if u := f.list[user]; u != nil {
			for i := range w {
				u.left[i] -= w[i]
			}
		}
	}
	return true
}

// found records that a look, which began at an instant, has found users far from the limits of what
// they wanted.
func (f *farUsers) found(set *budget.Set, want map[string]amounts, began time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for user, w := range want {
		l := set.Of(user)
		if l == nil {
			continue
		}
		if f.list == nil {
			f.list = map[string]*farUser{}
		}
		if f.list[user] == nil && len(f.list) >= maxFar {
			for other := range f.list { // any one
				delete(f.list, other)
				break
			}
		}
		u := &farUser{limits: l, until: began.Add(farFor)}
		for i := range w {
			if w[i] > 0 || l.Of(budget.Budget(i)) == 0 {
				u.left[i] = farMost()[i]
			}
		}
		f.list[user] = u
	}
}
