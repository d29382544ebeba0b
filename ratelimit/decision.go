package ratelimit

import (
	"strconv"
	"strings"
	"time"
)

// A Decision is the answer to one request.
type Decision struct {
	// OK is whether the request may go on. Only then it was charged.
	OK bool
	// Exceeded names the window or the operation whose limit was reached, and of several
	// the one that frees last. Empty when OK.
	Exceeded string
	// Detail says it in a sentence for the caller. Empty when OK.
	Detail string
	// RetryAfter is in how many seconds to come again, at least 1: no request before then
	// can pass by the limits known now. 0 when OK.
	RetryAfter int
	// States are the limits that applied, shortest window first. Rates leaves them out
	// when OK.
	States []State
}

// A State is how much of one limit is left.
type State struct {
	Name      string // letters, digits and hyphens
	Quota     int    // requests per window
	Window    time.Duration
	Remaining int // requests that would pass now
	Reset     int // seconds until the window ends, or until more may pass
}

// RateLimit is the header of this name, a structured-field list:
//
//	"minute";r=0;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012
func (d Decision) RateLimit() string {
	return list(d.States, func(s State) (string, int, string, int) {
		return ";r=", s.Remaining, ";t=", s.Reset
	})
}

// RateLimitPolicy is the header RateLimit-Policy, a structured-field list:
//
//	"minute";q=60;w=60, "hour";q=3000;w=3600, "day";q=50000;w=86400
func (d Decision) RateLimitPolicy() string {
	return list(d.States, func(s State) (string, int, string, int) {
		return ";q=", s.Quota, ";w=", seconds(s.Window)
	})
}

func list(states []State, params func(State) (k1 string, v1 int, k2 string, v2 int)) string {
	var b strings.Builder
	for i, s := range states {
		if i > 0 {
			b.WriteString(", ")
		}
		k1, v1, k2, v2 := params(s)
		b.WriteByte('"')
		b.WriteString(s.Name)
		b.WriteByte('"')
		b.WriteString(k1)
		b.WriteString(strconv.Itoa(v1))
		b.WriteString(k2)
		b.WriteString(strconv.Itoa(v2))
	}
	return b.String()
}

// seconds rounds up: a caller that comes after as many is never too early.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}
