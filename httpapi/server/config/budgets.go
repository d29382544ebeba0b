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
	budget.Limits
	// Users have limits of their own. What is absent or 0 there is as for everybody.
	Users map[string]budget.Limits `json:"users"`
}

// users are the limits of all users. Those who have an exempt key in the configuration have
// none: what is done in their name later, such as schedules, has no key.
func (c *Config) users() budget.Users {
	u := budget.Users{Limits: c.Budgets.Or(budget.Default()), Named: map[string]budget.Limits{}}
	for name, own := range c.Budgets.Users {
		u.Named[name] = own.Or(c.Budgets.Or(budget.Default()))
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
	if err := checkLimits("/budgets", &c.Budgets.Limits); err != nil {
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

// checkLimits refuses numbers below -1, which are mistakes.
func checkLimits(at jsontext.Pointer, l *budget.Limits) error {
	for _, r := range budget.All() {
		if l.Of(r.Budget) < -1 {
			return errorAt(at.AppendToken(r.Name), "must be a number above 0, 0 for the default, or -1 for no limit")
		}
	}
	return nil
}
