package config

import (
	"time"

	"github.com/podyard/podyard/pods/billing"
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
	return nil
}

// keep returns the option of the server.
func (b Billing) keep() time.Duration {
	if b.Days == 0 {
		return billing.Retention
	}
	return time.Duration(b.Days) * 24 * time.Hour
}
