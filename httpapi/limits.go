package httpapi

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

// A limitBody is a budget of a user on the wire (docs/interface.md 2.22).
type limitBody struct {
	Name      string `json:"name"`
	Unit      string `json:"unit"`
	Limit     *int64 `json:"limit"` // nil: none
	Used      int64  `json:"used"`
	Remaining *int64 `json:"remaining"` // nil: without limit
}

// userLimits are the budgets of a user on the wire.
type userLimits struct {
	User   string      `json:"user"`
	Limits []limitBody `json:"limits"`
}

// listLimits answers with the budgets of the caller, or of whom an operator names. Of all users
// it shows what they use, the user with the most bytes first.
func listLimits(c *call) error {
	users, everybody := []string{c.owner}, c.owner == serverless.AllOwners
	if everybody {
		var err error
		if users, err = c.Budgets.Users(c.r.Context()); err != nil {
			return err
		}
	}
	type row struct {
		body  userLimits
		usage budget.Usage
	}
	rows := make([]row, 0, len(users))
	for _, user := range users {
		u, err := c.Budgets.Usage(c.r.Context(), user)
		if err != nil {
			return err
		}
		rows = append(rows, row{userLimits{user, limitBodies(c.Budgets.Limits(user), &u, everybody)}, u})
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(b.usage[budget.JobBytes], a.usage[budget.JobBytes]), cmp.Compare(b.usage[budget.Jobs], a.usage[budget.Jobs]))
	})
	return writeJSON(c.w, http.StatusOK, struct {
		Users []userLimits `json:"users"`
	}{bodies(rows, func(r row) userLimits { return r.body }, all)})
}

func limitBodies(l *budget.Limits, used *budget.Usage, onlyUsed bool) []limitBody {
	list := []limitBody{}
	for _, r := range budget.All() {
		b := limitBody{Name: r.Name, Unit: r.Unit, Used: used[r.Budget]}
		if onlyUsed && b.Used == 0 {
			continue
		}
		if limit := l.Of(r.Budget); limit > 0 {
			left := max(limit-b.Used, 0)
			b.Limit, b.Remaining = &limit, &left
		}
		list = append(list, b)
	}
	return list
}
