package httpapi

import (
	"net/url"
	"strconv"
	"time"

	"github.com/podyard/podyard/problem"
)

// query is one parameter of the query string; "" when it is absent. Of several with the
// same name the first counts.
func (c *call) query(name string) string {
	if c.r.URL.RawQuery == "" {
		return ""
	}
	q, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil && q == nil {
		return ""
	}
	return q.Get(name)
}

// queryInt is an integer parameter from lo to hi, or its default.
func (c *call) queryInt(name string, def, lo, hi int) (int, error) {
	s := c.query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, problem.Newf(problem.Invalid, "%s must be an integer from %d to %d", name, lo, hi)
	}
	return n, nil
}

// queryFlag is a boolean parameter, false when it is absent.
func (c *call) queryFlag(name string) (bool, error) {
	switch c.query(name) {
	case "", "false", "0":
		return false, nil
	case "true", "1":
		return true, nil
	}
	return false, problem.Newf(problem.Invalid, "%s must be true or false", name)
}

// queryMillis is a parameter in milliseconds that check allows, or its default.
func (c *call) queryMillis(name string, def time.Duration, check func(time.Duration) error) (time.Duration, error) {
	s := c.query(name)
	if s == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, problem.Newf(problem.Invalid, "%s must be an integer, in milliseconds", name)
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	d := time.Duration(max(min(n, most), -most)) * time.Millisecond
	return d, check(d)
}
