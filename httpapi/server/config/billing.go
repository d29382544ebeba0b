package config

import (
	"time"

	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/ratelimit/budget"
)

// Billing is how long what was used is kept.
type Billing struct {
	Days int `json:"days"` // after its end; 0 is the default, 400, and -1 is for ever
}

// maxBillingDays is a hundred years.
const maxBillingDays = 36_525

func (c *Config) checkBilling() error {
	if n := c.Billing.Days; n < -1 || n > maxBillingDays {
		return errorAt("/billing/days", "must be from 1 to %d, 0 for the default, or -1", maxBillingDays)
	}
	if n := c.Billing.Days; n > 0 && n < daysOfMonth && c.limitsMonths() {
		return errorAt("/billing/days", "must be at least %d, or 0 for the default, where a user has a budget %s: what was spent in a month is known from what is kept", daysOfMonth, budget.CostPerMonth)
	}
	return nil
}

// daysOfMonth is the longest month.
const daysOfMonth = 31

// limitsMonths reports whether a user may spend only so much in a month.
func (c *Config) limitsMonths() bool {
	if c.Budgets.PerMonth > 0 {
		return true
	}
	for _, u := range c.Budgets.Users {
		if u.PerMonth > 0 {
			return true
		}
	}
	return false
}

// keep returns the option of the server.
func (b Billing) keep() time.Duration {
	if b.Days == 0 {
		return billing.Retention
	}
	return time.Duration(b.Days) * 24 * time.Hour
}
