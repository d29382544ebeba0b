package httpapi

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/podyard/podyard/problem"
)

// A parameter must have an allowed value. An empty value is refused like any other wrong
// value (docs/decisions.md 25). Unknown parameters are ignored.

// params returns the parameters of the query string.
func (c *call) params() url.Values {
	if c.parsed == nil {
		c.parsed = c.r.URL.Query()
	}
	return c.parsed
}

// query returns a parameter, and whether it is present. If a name occurs several times, the
// first one counts.
func (c *call) query(name string) (value string, given bool) {
	if c.r.URL.RawQuery == "" {
		return "", false
	}
	values, given := c.params()[name]
	if !given {
		return "", false
	}
	return values[0], true
}

// queryText returns a parameter with any value but the empty one; "" if it is absent.
func (c *call) queryText(name string) (string, error) {
	s, given := c.query(name)
	if given && s == "" {
		return "", problem.Newf(problem.Invalid, "%s must not be empty", name)
	}
	return s, nil
}

// queryInt returns an integer parameter from lo to hi, or its default.
func (c *call) queryInt(name string, def, lo, hi int) (int, error) {
	s, given := c.query(name)
	if !given {
		return def, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < lo || n > hi {
		return 0, problem.Newf(problem.Invalid, "%s must be an integer from %d to %d", name, lo, hi)
	}
	return n, nil
}

// queryFlag returns a boolean parameter; false if it is absent.
func (c *call) queryFlag(name string) (bool, error) {
	s, given := c.query(name)
	switch {
	case !given, s == "false", s == "0":
		return false, nil
	case s == "true", s == "1":
		return true, nil
	}
	return false, problem.Newf(problem.Invalid, "%s must be true or false", name)
}

// queryMillis returns a parameter in milliseconds that check allows, or its default. The
// error of check names the limits. It is also the error for a value that is not an integer.
func (c *call) queryMillis(name string, def time.Duration, check func(time.Duration) error) (time.Duration, error) {
	s, given := c.query(name)
	if !given {
		return def, nil
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		return 0, check(-1)
	}
	const most = int64(1<<63-1) / int64(time.Millisecond)
	d := time.Duration(max(min(n, most), -most)) * time.Millisecond
	return d, check(d)
}

// farTime is the fault of a time that instantOf does not take.
const farTime = "must be after 0001-01-01T00:00:00Z and before the year 10000"

// instantOf reads a time of a user, in RFC 3339. It returns the fault of one that is none, which is
// syntax, and of one that is out of range, in UTC: a year of five digits cannot be written back, and
// 0001-01-01T00:00:00Z is the zero time of Go, which says that there is none. Programs in Go that have
// forgotten to set a time send it.
func instantOf(text, syntax string) (t time.Time, fault string) {
	t, err := time.Parse(time.RFC3339, text)
	t = t.UTC()
	switch {
	case err != nil:
		return time.Time{}, syntax
	case t.IsZero(), t.Year() < 1, t.Year() > 9999:
		return time.Time{}, farTime
	}
	return t, ""
}

// queryTime returns an instant, or zero if the parameter is absent.
func (c *call) queryTime(name string) (time.Time, error) {
	s, given := c.query(name)
	if !given {
		return time.Time{}, nil
	}
	t, fault := instantOf(s, "must be a time as in RFC 3339")
	if fault != "" {
		return t, problem.Newf(problem.Invalid, "%s %s", name, fault)
	}
	return t, nil
}

// queryOneOf returns one of the values, or the default if the parameter is absent.
func queryOneOf[S ~string](c *call, name string, def S, values ...S) (S, error) {
	s, given := c.query(name)
	switch {
	case !given:
		return def, nil
	case slices.Contains(values, S(s)):
		return S(s), nil
	}
	return "", notOneOf(name, values)
}

// querySome returns a list of some of the values, or nil if the parameter is absent.
func querySome[S ~string](c *call, name string, values ...S) (list []S, err error) {
	for _, s := range c.queryList(name) {
		if !slices.Contains(values, S(s)) {
			return nil, notOneOf(name, values)
		}
		list = append(list, S(s))
	}
	return list, nil
}

func notOneOf[S ~string](name string, values []S) error {
	var b strings.Builder
	for i, v := range values {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(string(v))
	}
	return problem.Newf(problem.Invalid, "%s must be one of %s", name, b.String())
}

// queryMatches returns a list of values of one form. want describes the form.
func (c *call) queryMatches(name string, form *regexp.Regexp, want string) ([]string, error) {
	list := c.queryList(name)
	for _, s := range list {
		if !form.MatchString(s) {
			return nil, problem.Newf(problem.Invalid, "%s must be a list of %s: %.100q is not", name, want, s)
		}
	}
	return list, nil
}

// queryList returns the values of a parameter that is repeated or has commas.
func (c *call) queryList(name string) (list []string) {
	for _, v := range c.params()[name] {
		list = append(list, strings.Split(v, ",")...)
	}
	return list
}
