package httpapi

import (
	"cmp"
	"net/http"
	"slices"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
)

func limitOperations() []operation {
	return group(APIControl, AreaBudgets,
		op("listLimits", "GET /v2/account/limits", ScopeAny, listLimits, byOwners, added),
	)
}

func (b *describer) describeLimits() map[string]description {
	return map[string]description{
		"listLimits": {summary: "List what the caller holds, of what may be held", text: "An operator who asks for all users gets what they use, the user with the most bytes first.", answers: ok(fields(map[string]*openapi.Schema{"users": openapi.List(openapi.For[userLimits](&b.Builder))}, "users")), params: []*openapi.Parameter{
			flag("windows", "Also what is left of the windows in which requests are counted."),
		}},
	}
}

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
	// Cost is there for who spends something, or may not spend anything they like.
	Cost *costBody `json:"cost,omitempty"`
	// Windows are there for who asks.
	Windows []windowBody `json:"windows,omitempty"`
}

// A windowBody is a window in which the requests of a user are counted.
type windowBody struct {
	Name      string `json:"name"`
	Limit     int    `json:"limit"`
	Remaining int    `json:"remaining"`
	Resets    int    `json:"resets"` // seconds until it begins anew
}

func (c *call) windows(user string) []windowBody {
	list := []windowBody{}
	for _, s := range c.quotas.Peek(c.clock.Now(), user) {
		list = append(list, windowBody{s.Name, s.Quota, s.Remaining, s.Reset})
	}
	return list
}

// listLimits answers with the budgets of the caller, or of whom an operator names. Of all users
// it shows what they use, the user with the most bytes first.
func listLimits(c *call) error {
	windows, err := c.queryFlag("windows")
	if err != nil {
		return err
	}
	users, everybody := []string{c.owner}, c.owner == serverless.AllOwners
	if everybody {
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
		r := row{userLimits{User: user, Limits: limitBodies(c.Budgets.Limits(user), &u, everybody)}, u}
		if r.body.Cost, err = c.costOf(user); err != nil {
			return err
		}
		if windows {
			r.body.Windows = c.windows(user)
		}
		rows = append(rows, r)
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
