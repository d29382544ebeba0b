// Package container checks the container settings of a request, which pods and the
// workers of an endpoint share.
package container

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/podyard/podyard/problem"
)

// MaxDisk is the largest disk in GB: it keeps sums of bytes within an int64.
const MaxDisk = 1 << 20

// Rules adds what is wrong with a setting to the faults of its request, at the place that
// the setting has in every body ("/image", "/ports/0").
type Rules struct{ *problem.Violations }

// Invalid records a fault of the schema (422).
func (v Rules) Invalid(path, format string, args ...any) {
	v.Add(problem.Invalid, path, format, args...)
}

// BadRequest records a rule across fields that is broken (400).
func (v Rules) BadRequest(path, format string, args ...any) {
	v.Add(problem.BadRequest, path, format, args...)
}

// SetFields judges the settings of a request that may leave them out: nil asks for nothing.
func (v Rules) SetFields(name, image, args *string, disk *int) {
	if name != nil {
		v.Name(*name)
	}
	if image != nil {
		v.Image(*image)
	}
	if args != nil {
		v.Args(*args)
	}
	if disk != nil {
		v.Disk(*disk)
	}
}

// Name asks for a name.
func (v Rules) Name(s string) {
	if s == "" {
		v.Invalid("/name", "must not be empty")
	}
}

// Image asks for one word.
func (v Rules) Image(s string) {
	switch {
	case s == "":
		v.Invalid("/image", "must not be empty")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		v.Invalid("/image", "must have no white space and no control characters")
	}
}

// Args asks for words that can be split.
func (v Rules) Args(s string) {
	if _, err := SplitArgs(s); err != nil {
		v.Invalid("/args", "%v", err)
	}
}

// Disk asks for 1 to MaxDisk GB.
func (v Rules) Disk(gb int) {
	if gb < 1 || gb > MaxDisk {
		v.Invalid("/disk", "must be 1 to %d GB", MaxDisk)
	}
}

// MaxCount is the largest number of things that a request can ask for. The schema sets no
// bound; this one keeps products within an int64, and a number that was sent is the number
// that is stored and told.
const MaxCount = 1<<31 - 1

// Count asks for 1 to MaxCount.
func (v Rules) Count(place string, n int) {
	switch {
	case n < 1:
		v.Invalid(place, "must be at least 1")
	case n > MaxCount:
		v.Invalid(place, "must be at most %d", MaxCount)
	}
}

// MaxPorts is how many ports a container can have: each takes a public one of its host.
const MaxPorts = 100

// Ports asks for at most MaxPorts ports that ParsePort reads, each once.
func (v Rules) Ports(list []string) {
	if len(list) > MaxPorts {
		v.Invalid("/ports", "must have at most %d entries", MaxPorts)
		return
	}
	seen := make(map[string]bool, len(list))
	for i, s := range list {
		place := "/ports/" + strconv.Itoa(i)
		switch _, _, ok := ParsePort(s); {
		case !ok:
			v.Invalid(place, "must be port/protocol: 1 to 65535, and tcp, udp or http")
		case seen[s]:
			v.Invalid(place, "%s is listed twice", s)
		}
		seen[s] = true
	}
}

// ParsePort reads "8888/http". A port has one spelling.
func ParsePort(s string) (number int, protocol string, ok bool) {
	digits, protocol, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(digits, 10, 16)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != digits {
		return 0, "", false
	}
	switch protocol {
	case "tcp", "udp", "http":
		return int(n), protocol, true
	}
	return 0, "", false
}

// Env asks for names and values that an environment can hold.
func (v Rules) Env(env map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(env)) {
		place := "/env/" + pointer.Replace(name)
		switch {
		case name == "":
			v.Invalid(place, "a variable must have a name")
		case strings.ContainsAny(name, "=\x00"):
			v.Invalid(place, "the name of a variable must have no '=' and no NUL byte")
		case strings.ContainsRune(env[name], 0):
			v.Invalid(place, "the value of a variable must have no NUL byte")
		}
	}
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
