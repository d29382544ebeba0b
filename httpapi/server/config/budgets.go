package config

import (
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
	return nil
}
