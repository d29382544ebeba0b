package cron

import (
	"math/bits"
	"strconv"
	"strings"

	"github.com/podyard/podyard/problem"
)

// An Expression is a parsed cron expression. The zero value fires never. It is comparable,
// and safe for concurrent use.
type Expression struct {
	text                           string
	minute, hour, day, month, week set
	either                         bool // a day matches if one of the day fields does
	rhythm                         bool // elapsed time counts
}

// MaxLength is the most bytes of an expression.
const MaxLength = 200

// A set has the bit of each of its values.
type set uint64

func (s set) has(n int) bool { return s>>n&1 != 0 }

// from returns the smallest value that is at least n.
func (s set) from(n int) (int, bool) {
	rest := s >> n
	return n + bits.TrailingZeros64(uint64(rest)), rest != 0
}

// A field is one of the five fields of an expression.
type field struct {
	name   string
	lo, hi int
	names  []string // of the values from lo on
}

// The fields in their order.
var fields = [...]field{
	{name: "minute", lo: 0, hi: 59},
	{name: "hour", lo: 0, hi: 23},
	{name: "day of the month", lo: 1, hi: 31},
	{name: "month", lo: 1, hi: 12, names: []string{"JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"}},
	{name: "day of the week", lo: 0, hi: 7, names: []string{"SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"}},
}

// Parse reads an expression. Its error names the field that is wrong, and has the kind
// problem.Invalid. An expression that can never fire, such as one for 30 February, is an error
// too.
func Parse(text string) (Expression, error) {
	if len(text) > MaxLength {
		return Expression{}, problem.Newf(problem.Invalid, "must have at most %d bytes", MaxLength)
	}
	parts := strings.Fields(text)
	if len(parts) != len(fields) {
		return Expression{}, problem.Newf(problem.Invalid, "must have five fields (minute, hour, day of the month, month, day of the week), not %d", len(parts))
	}
	e := Expression{text: strings.Join(parts, " ")}
	for i, to := range [...]*set{&e.minute, &e.hour, &e.day, &e.month, &e.week} {
		var err error
		if *to, err = fields[i].parse(parts[i]); err != nil {
			return Expression{}, err
		}
	}
	if e.week.has(7) {
		e.week |= 1
	}
	e.either = !strings.Contains(parts[2]+parts[4], "*")
	e.rhythm = strings.ContainsAny(parts[0]+parts[1], "*/")
	if !e.either && !e.exists() {
		return Expression{}, problem.Newf(problem.Invalid, "day of the month: no month of the expression has such a day, so that it would never fire")
	}
	return e, nil
}

// String returns the expression as it was given, with one blank between its fields.
func (e Expression) String() string { return e.text }

// longest has the greatest length of each month.
var longest = [...]int{1: 31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31}

// exists reports whether one of the months has one of the days.
func (e Expression) exists() bool {
	first, _ := e.day.from(0)
	for m := 1; m <= 12; m++ {
		if e.month.has(m) && first <= longest[m] {
			return true
		}
	}
	return false
}

func (f *field) parse(text string) (s set, err error) {
	for part := range strings.SplitSeq(text, ",") {
		span, every, stepped := strings.Cut(part, "/")
		lo, hi, err := f.span(span, stepped)
		if err != nil {
			return 0, err
		}
		step := 1
		if stepped {
			if step, err = f.number(every, "step"); err != nil {
				return 0, err
			}
			if step < 1 || step > f.hi {
				return 0, f.fault("the step %d is not from 1 to %d", step, f.hi)
			}
		}
		for n := lo; n <= hi; n += step {
			s |= 1 << n
		}
	}
	return s, nil
}

// span reads *, a value or a range. A value with a step begins a range to the last value.
func (f *field) span(text string, stepped bool) (lo, hi int, err error) {
	if text == "*" {
		return f.lo, f.last(), nil
	}
	from, to, ranged := strings.Cut(text, "-")
	if lo, err = f.value(from); err != nil {
		return 0, 0, err
	}
	switch {
	case !ranged && stepped:
		return lo, max(lo, f.last()), nil
	case !ranged:
		return lo, lo, nil
	}
	if hi, err = f.value(to); err != nil {
		return 0, 0, err
	}
	if hi == 0 && f.hi == 7 {
		hi = 7 // a week that ends with Sunday: SAT-SUN
	}
	if hi < lo {
		return 0, 0, f.fault("the range %.20q ends before it begins", text)
	}
	return lo, hi, nil
}

// last returns the last value without the second number of Sunday.
func (f *field) last() int {
	if f.hi == 7 {
		return 6
	}
	return f.hi
}

// value reads a number or a name.
func (f *field) value(text string) (int, error) {
	for i, name := range f.names {
		if strings.EqualFold(name, text) {
			return f.lo + i, nil
		}
	}
	n, err := f.number(text, "value")
	if err == nil && (n < f.lo || n > f.hi) {
		err = f.fault("%d is not from %d to %d", n, f.lo, f.hi)
	}
	return n, err
}

// number reads digits. Signs and long numbers are refused.
func (f *field) number(text, what string) (int, error) {
	n, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return 0, f.fault("%.20q is no %s", text, what)
	}
	return int(n), nil
}

func (f *field) fault(format string, args ...any) error {
	return problem.Newf(problem.Invalid, f.name+": "+format, args...)
}
