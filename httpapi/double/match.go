package double

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// A pattern is a JSON value that others are compared with. An object matches every object that
// has at least its members, an array one of the same length with matching elements, any other
// value an equal one. The nil pattern matches everything.
type pattern struct {
	want any
	any  bool
}

// patternOf accepts everything that encoding/json can marshal. nil is the pattern that matches
// everything, json.RawMessage("null") the one that matches null.
func patternOf(v any) (pattern, error) {
	if v == nil {
		return pattern{any: true}, nil
	}
	if raw, ok := v.(json.RawMessage); ok && len(raw) == 0 {
		return pattern{any: true}, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return pattern{}, fmt.Errorf("double: a pattern must be JSON: %w", err)
	}
	want, err := decodeAny(b)
	return pattern{want: want}, err
}

func decodeAny(b []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// compare returns the differences of b, none if it matches.
func (p pattern) compare(name string, b []byte) []string {
	if p.any {
		return nil
	}
	got, err := decodeAny(b)
	if err != nil {
		return []string{fmt.Sprintf("%s: want %s, it has %s", name, show(p.want), orNothing(b))}
	}
	return differences(name, p.want, got)
}

func orNothing(b []byte) string {
	if len(b) == 0 {
		return "nothing"
	}
	return shorten(strconv.Quote(string(b)))
}

// differences compares member by member.
func differences(path string, want, got any) (list []string) {
	switch w := want.(type) {
	case map[string]any:
		g, ok := got.(map[string]any)
		if !ok {
			break
		}
		for _, k := range slices.Sorted(maps.Keys(w)) {
			at := path + "." + k
			v, ok := g[k]
			if !ok {
				list = append(list, fmt.Sprintf("%s: want %s, it is missing", at, show(w[k])))
				continue
			}
			list = append(list, differences(at, w[k], v)...)
		}
		return list
	case []any:
		g, ok := got.([]any)
		if !ok {
			break
		}
		if len(g) != len(w) {
			return []string{fmt.Sprintf("%s: want %d elements, got %d: %s", path, len(w), len(g), show(got))}
		}
		for i := range w {
			list = append(list, differences(path+"["+strconv.Itoa(i)+"]", w[i], g[i])...)
		}
		return list
	default:
		if sameScalar(want, got) {
			return nil
		}
	}
	return []string{fmt.Sprintf("%s: want %s, got %s", path, show(want), show(got))}
}

func sameScalar(a, b any) bool {
	x, xok := a.(json.Number)
	y, yok := b.(json.Number)
	if !xok || !yok {
		return a == b
	}
	if x == y {
		return true
	}
	f, err1 := x.Float64()
	g, err2 := y.Float64()
	return err1 == nil && err2 == nil && f == g
}

func show(v any) string {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return shorten(string(b))
}

// shorten keeps a message readable.
func shorten(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
