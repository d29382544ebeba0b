package httpapi

import (
	"math"

	"github.com/podyard/podyard/pods/spending"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A costBody is what a user spends and may spend, in USD, on the wire (docs/interface.md 2.22).
type costBody struct {
	Hour         float64   `json:"hour"`         // at the present rate
	Month        float64   `json:"month"`        // since the month began, in UTC
	CostPerHour  *float64  `json:"costPerHour"`  // nil: no limit
	CostPerMonth *float64  `json:"costPerMonth"` // nil: no limit
	Ends         *wireTime `json:"ends"`         // nil: not in this month, or it has ended
}

// costOf returns what a user spends, or nil for who spends nothing and may spend anything.
func (c *call) costOf(user string) (*costBody, error) {
	if c.Spending == nil {
		return nil, nil
	}
	x, err := c.Spending.State(c.r.Context(), user, 0)
	if err != nil || x.Rate == 0 && x.Month == 0 && x.Cost == (budget.Cost{}) {
		return nil, err
	}
	return costBodyOf(&x), nil
}

func costBodyOf(x *spending.State) *costBody {
	micros := func(usd float64) float64 { return math.Round(usd*1e6) / 1e6 }
	limit := func(usd float64) *float64 {
		if usd <= 0 {
			return nil
		}
		return &usd
	}
	return &costBody{micros(x.Rate), micros(x.Spending.Month), limit(x.PerHour), limit(x.PerMonth), orNever(x.Ends)}
}
