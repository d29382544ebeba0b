package ratelimit

import (
	"strconv"
	"strings"
	"time"
)

// A Decision is the answer to one request.
type Decision struct {
	// OK reports whether the request may proceed. Only then was it counted.
	OK bool
	// Exceeded is the name of the window or operation whose limit was reached. If several were
	// reached, it is the one that allows requests again last. Empty when OK.
	Exceeded string
	// Detail is a sentence for the user. Empty when OK.
	Detail string
	// RetryAfter is the number of seconds to wait, at least 1. No request can pass earlier by
	// the limits known now. 0 when OK.
	RetryAfter int
	// States are the limits that applied, shortest window first. Rates sets them only for a
	// refused request.
	States []State
}

// A State says how much of one limit is left.
type State struct {
	Name      string // letters, digits and hyphens
	Quota     int    // requests per window
	Window    time.Duration
	Remaining int // requests left of Quota; not 0 if the concurrency limit refused the request
	Reset     int // seconds until the window ends, or until another request may pass
}

// RateLimit returns the value of the header RateLimit, a structured-field list:
//
//	"minute";r=0;t=12, "hour";r=2800;t=1812, "day";r=49500;t=45012
func (d Decision) RateLimit() string {
	return list(d.States, func(s State) (string, int, string, int) {
		return ";r=", s.Remaining, ";t=", s.Reset
	})
}

// RateLimitPolicy returns the value of the header RateLimit-Policy, a structured-field list:
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

// seconds rounds up, so that a caller that waits as long is never too early.
func seconds(d time.Duration) int {
	return int((d + time.Second - 1) / time.Second)
}
