package budget

import (
	"fmt"
	"math"
	"time"

	"github.com/podyard/podyard/problem"
)

// A Cost is what a user may spend, in USD (docs/decisions.md 56). Money is no counted holding: it
// grows without a request. A field of 0 is no limit.
type Cost struct {
	// PerHour is for what runs at the same time.
	PerHour float64 `json:"costPerHour,omitzero"`
	// PerMonth is for a calendar month in UTC.
	PerMonth float64 `json:"costPerMonth,omitzero"`
}

// The names of the two budgets, on the wire and in the configuration.
const (
	CostPerHour  = "costPerHour"
	CostPerMonth = "costPerMonth"
)

// Or returns c with what def says where a field of c is 0, and without a limit where a field is
// negative, as Limits.Or does.
func (c Cost) Or(def Cost) Cost {
	or := func(own, def float64) float64 {
		if own == 0 {
			own = def
		}
		return max(own, 0)
	}
	return Cost{or(c.PerHour, def.PerHour), or(c.PerMonth, def.PerMonth)}
}

// Spending is what a user spends at an instant.
type Spending struct {
	At    time.Time
	Rate  float64 // USD an hour
	Month float64 // USD since the month of At began, in UTC
}

// A CostLevel says how near the end of a month's budget is.
type CostLevel int

// The levels.
const (
	CostFine  CostLevel = iota
	CostDay             // at the present rate it is used up within a day
	CostHour            // ... within an hour
	CostSpent           // it is used up
)

// A CostVerdict is what follows from what a user spends.
type CostVerdict struct {
	Level CostLevel
	// Ends is when the month's budget is used up at the present rate; zero: not in this month, or it
	// is already.
	Ends time.Time
	// Refused is why nothing more may start; nil: it may.
	Refused *CostError
}

// Judge is the rule of budgets in money: what follows from s, and whether what costs more USD an
// hour may start. What costs nothing may always start. It is a pure function.
func (c Cost) Judge(s Spending, more float64) (v CostVerdict) {
	v.Level, v.Ends = c.month(s)
	switch {
	case more <= 0:
	case v.Level == CostSpent:
		wait := NextMonth(s.At).Sub(s.At)
		v.Refused = &CostError{Name: CostPerMonth, Limit: c.PerMonth, Used: s.Month, Asked: more, Wait: wait}
	case c.PerHour > 0 && micros(s.Rate)+micros(more) > micros(c.PerHour):
		v.Refused = &CostError{Name: CostPerHour, Limit: c.PerHour, Used: s.Rate, Asked: more}
	}
	return v
}

// month returns how near the end of the month's budget is.
func (c Cost) month(s Spending) (CostLevel, time.Time) {
	switch left := c.PerMonth - s.Month; {
	case c.PerMonth <= 0:
		return CostFine, time.Time{}
	case micros(left) <= 0:
		return CostSpent, time.Time{}
	case s.Rate <= 0:
		return CostFine, time.Time{}
	default:
		return level(s.At, left/s.Rate)
	}
}

// level is for a budget that lasts for so many hours.
func level(at time.Time, hours float64) (CostLevel, time.Time) {
	end := NextMonth(at)
	if hours >= end.Sub(at).Hours() {
		return CostFine, time.Time{}
	}
	ends := at.Add(time.Duration(hours * float64(time.Hour)))
	switch {
	case hours <= 1:
		return CostHour, ends
	case hours <= 24:
		return CostDay, ends
	}
	return CostFine, ends
}

// micros rounds to a millionth of a dollar, because sums of binary fractions are not exact.
func micros(usd float64) int64 { return int64(math.Round(usd * 1e6)) }

// Month returns when the month of at began, in UTC.
func Month(at time.Time) time.Time {
	y, m, _ := at.UTC().Date()
	return time.Date(y, m, 1, 0, 0, 0, 0, time.UTC)
}

// NextMonth returns when the month after that of at begins, in UTC.
func NextMonth(at time.Time) time.Time { return Month(at).AddDate(0, 1, 0) }

// A CostError refuses to start what would cost more than its owner may spend; nothing was changed. Its
// kind is problem.TooManyRequests, and its text is for the user.
type CostError struct {
	Name  string  // CostPerHour or CostPerMonth
	Limit float64 // USD an hour, or a month
	Used  float64
	Asked float64       // USD an hour
	Wait  time.Duration // until it may start without anybody doing anything; 0: waiting does not help
}

// Error says what is full, how full, and what makes room.
func (e *CostError) Error() string {
	if e.Name == CostPerMonth {
		return fmt.Sprintf("the budget %s is used up: %s of %s USD of this month (UTC) are spent: wait for the next month, or ask an operator for more", e.Name, cents(e.Used), usd(e.Limit))
	}
	return fmt.Sprintf("the budget %s is full: what runs costs %s of %s USD an hour, and this needs %s more: stop or terminate pods, or let workers end", e.Name, usd(e.Used), usd(e.Limit), usd(e.Asked))
}

// usd writes an amount with the digits that it needs, at least two after the point.
func usd(x float64) string {
	if cents := math.Round(x * 100); math.Abs(cents-x*100) < 1e-6 {
		return fmt.Sprintf("%.2f", x)
	}
	return fmt.Sprintf("%.4f", x)
}

// cents writes a sum.
func cents(x float64) string { return fmt.Sprintf("%.2f", x) }

// RetryAfter is how many seconds to wait; 0: waiting does not help, or is longer than an hour, which
// no client should do by itself.
func (e *CostError) RetryAfter() int {
	if e.Wait > time.Hour {
		return 0
	}
	return int(math.Ceil(e.Wait.Seconds()))
}

// Unwrap returns the problem that a client sees.
func (e *CostError) Unwrap() error { return problem.New(problem.TooManyRequests, e.Error()) }

// Notice says what a level means for the pods of a user, for their log.
func (c Cost) Notice(s Spending, v CostVerdict) string {
	switch v.Level {
	case CostSpent:
		return fmt.Sprintf("stopped because the budget %s of its owner is used up: %s of %s USD of %s are spent", CostPerMonth, cents(s.Month), usd(c.PerMonth), s.At.UTC().Format("January 2006"))
	case CostHour, CostDay:
		within := map[CostLevel]string{CostHour: "an hour", CostDay: "a day"}[v.Level]
		return fmt.Sprintf("the budget %s of its owner is used up within %s, about %s, and then it is stopped: %s of %s USD are spent, at %s USD an hour now",
			CostPerMonth, within, v.Ends.UTC().Format("2006-01-02 15:04 UTC"), cents(s.Month), usd(c.PerMonth), usd(s.Rate))
	}
	return ""
}
