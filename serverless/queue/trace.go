package queue

import "strings"

// A Trace is the W3C trace context of the request that submitted a job (docs/decisions.md 45).
// The zero value is none.
type Trace struct {
	Parent string // the header traceparent
	State  string // the header tracestate; empty without Parent
}

// Limits of a Trace, by the W3C recommendation. One of a later version may be longer than
// traceLen.
const (
	traceLen     = 55
	maxTraceLen  = 256
	maxEntries   = 32
	maxState     = 512
	longEntry    = 128 // entries above it are left out first
	maxStateKey  = 256
	maxStateText = 256
)

// Valid returns what may be kept of t. It is the zero value if Parent is not valid, and has no
// State if State is not valid. A State above 512 characters loses whole entries: first those
// above 128 characters, then the last ones.
func (t Trace) Valid() Trace {
	if !validParent(t.Parent) {
		return Trace{}
	}
	return Trace{Parent: t.Parent, State: validState(t.State)}
}

// validParent reports whether s is version-traceid-parentid-flags in lower-case hexadecimal.
// Only a version above 00 may have more after that.
func validParent(s string) bool {
	if len(s) < traceLen || len(s) > maxTraceLen || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return false
	}
	version, id, parent, flags := s[:2], s[3:35], s[36:52], s[53:traceLen]
	if version == "ff" || !isHex(version) || !isHex(id) || !isHex(parent) || !isHex(flags) {
		return false
	}
	if strings.Trim(id, "0") == "" || strings.Trim(parent, "0") == "" {
		return false
	}
	rest := s[traceLen:]
	return rest == "" || version != "00" && rest[0] == '-' && !strings.ContainsFunc(rest, notVisible)
}

func isHex(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == ""
}

func notVisible(r rune) bool { return r <= ' ' || r > '~' }

// validState returns the entries of a tracestate without the white space around them, or ""
// if one of them is not valid.
func validState(s string) string {
	var list []string
	keys := map[string]bool{}
	for entry := range strings.SplitSeq(s, ",") {
		entry = strings.Trim(entry, " \t")
		if entry == "" {
			continue
		}
		key, text, _ := strings.Cut(entry, "=")
		if !validStateKey(key) || !validStateText(text) || keys[key] || len(list) == maxEntries {
			return ""
		}
		keys[key] = true
		list = append(list, entry)
	}
	return shorten(list)
}

func validStateKey(key string) bool {
	if key == "" || len(key) > maxStateKey || strings.ContainsRune("_-*/@", rune(key[0])) {
		return false
	}
	return strings.Trim(key, "abcdefghijklmnopqrstuvwxyz0123456789_-*/@") == ""
}

// validStateText reports whether s is a value: printable ASCII without a comma and an equals
// sign. Cut and Trim have removed white space at its end.
func validStateText(s string) bool {
	return s != "" && len(s) <= maxStateText && !strings.ContainsFunc(s, func(r rune) bool {
		return r < ' ' || r > '~' || r == ',' || r == '='
	})
}

func shorten(list []string) string {
	s := strings.Join(list, ",")
	for i := len(list) - 1; i >= 0 && len(s) > maxState; i-- {
		if len(list[i]) > longEntry {
			list = append(list[:i:i], list[i+1:]...)
			s = strings.Join(list, ",")
		}
	}
	for len(s) > maxState {
		list = list[:len(list)-1]
		s = strings.Join(list, ",")
	}
	return s
}
