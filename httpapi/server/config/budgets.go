package config

import (
	"maps"
	"slices"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/podyard/podyard/ratelimit/budget"
)

// Budgets are what one user may hold at once. A limit that is absent or 0 is the default of
// budget.Default, and a negative one is none.
type Budgets struct {
	UserBudgets
	// Users have limits of their own. What is absent or 0 there is as for everybody.
	Users map[string]UserBudgets `json:"users"`
}

// UserBudgets are what one user may hold, and what they may spend in USD (docs/decisions.md 56).
type UserBudgets struct {
	budget.Limits
	budget.Cost
}

// maxUSD is the largest amount.
const maxUSD = 1e9

// users are the limits of all users. Those who have an exempt key in the configuration have
// none: what is done in their name later, such as schedules, has no key.
func (c *Config) users() budget.Users {
	limits, cost := c.Budgets.Limits.Or(budget.Default()), c.Budgets.Cost.Or(budget.Cost{})
	u := budget.Users{Limits: limits, Named: map[string]budget.Limits{}, Cost: cost, NamedCost: map[string]budget.Cost{}}
	for name, own := range c.Budgets.Users {
		u.Named[name], u.NamedCost[name] = own.Limits.Or(limits), own.Cost.Or(cost)
	}
	for _, k := range c.Keys {
		if k.Exempt {
			u.Exempt = append(u.Exempt, k.User)
		}
	}
	return u
}

func (c *Config) checkBudgets() error {
	if _, nobody := c.Budgets.Users[""]; nobody {
		return errorAt(jsontext.Pointer("/budgets/users").AppendToken(""), "must be the name of a user")
	}
	if err := checkLimits("/budgets", &c.Budgets.UserBudgets); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Budgets.Users)) {
		own := c.Budgets.Users[name]
		if err := checkLimits(jsontext.Pointer("/budgets/users").AppendToken(name), &own); err != nil {
			return err
		}
	}
	return nil
}

// checkLimits refuses numbers below 0 other than -1, which are mistakes.
func checkLimits(at jsontext.Pointer, l *UserBudgets) error {
	for _, r := range budget.All() {
		if l.Of(r.Budget) < -1 {
			return errorAt(at.AppendToken(r.Name), "must be a number above 0, 0 for the default, or -1 for no limit")
		}
	}
	for name, usd := range map[string]float64{budget.CostPerHour: l.PerHour, budget.CostPerMonth: l.PerMonth} {
		if usd < 0 && usd != -1 || usd > maxUSD {
			return errorAt(at.AppendToken(name), "must be USD from 0 to %d, or -1 for no limit", int64(maxUSD))
		}
	}
	return nil
}
