// Package container checks the container settings in a request, which pods and the workers
// of endpoints share.
package container

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/podyard/podyard/problem"
)

// MaxDisk is the largest disk in GB. It keeps sums of bytes within an int64.
const MaxDisk = 1 << 20

// Rules adds an error to the request's violations if a setting is invalid. The path is the
// setting's place in every body ("/image", "/ports/0").
type Rules struct{ *problem.Violations }

// Invalid records a violation of the schema (422).
func (v Rules) Invalid(path, format string, args ...any) {
	v.Add(problem.Invalid, path, format, args...)
}

// BadRequest records a violation of a rule across fields (400).
func (v Rules) BadRequest(path, format string, args ...any) {
	v.Add(problem.BadRequest, path, format, args...)
}

// SetFields checks settings that a request may leave out: nil is valid.
func (v Rules) SetFields(name, image *string, command CommandChange, disk *int) {
	if name != nil {
		v.Name(*name)
	}
	if image != nil {
		v.Image(*image)
	}
	v.Command(command)
	if disk != nil {
		v.Disk(*disk)
	}
}

// Name requires a name that is not empty.
func (v Rules) Name(s string) {
	if s == "" {
		v.Invalid("/name", "must not be empty")
	}
}

// Image requires one word.
func (v Rules) Image(s string) {
	switch {
	case s == "":
		v.Invalid("/image", "must not be empty")
	case strings.ContainsFunc(s, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }):
		v.Invalid("/image", "must have no white space and no control characters")
	}
}

// Disk requires 1 to MaxDisk GB.
func (v Rules) Disk(gb int) {
	if gb < 1 || gb > MaxDisk {
		v.Invalid("/disk", "must be 1 to %d GB", MaxDisk)
	}
}

// MaxCount is the largest count in a request. The schema has no limit. This limit keeps
// products within an int64, so that a count is stored and returned as it was sent.
const MaxCount = 1<<31 - 1

// Count requires 1 to MaxCount.
func (v Rules) Count(place string, n int) {
	switch {
	case n < 1:
		v.Invalid(place, "must be at least 1")
	case n > MaxCount:
		v.Invalid(place, "must be at most %d", MaxCount)
	}
}

// MaxPorts is the maximum number of ports of a container: each one uses a public port of
// its host.
const MaxPorts = 100

// Ports requires at most MaxPorts different ports that ParsePort accepts.
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

// MinEqualPort and MaxEqualPort bound numbers that are no ports. Such a tcp port asks for a public
// port of the host that has the same number inside; the program finds it in RUNPOD_TCP_PORT_<number>.
const (
	MinEqualPort = 70000
	MaxEqualPort = 79999
)

// ParsePort parses a port such as "8888/http" or "70000/tcp". Each port has one valid spelling.
func ParsePort(s string) (number int, protocol string, ok bool) {
	digits, protocol, _ := strings.Cut(s, "/")
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != digits {
		return 0, "", false
	}
	switch protocol {
	case "tcp", "udp", "http":
		equal := protocol == "tcp" && n >= MinEqualPort && n <= MaxEqualPort
		return int(n), protocol, n <= math.MaxUint16 || equal
	}
	return 0, "", false
}

// Env requires names and values that an environment can have.
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

// ContainerUser requires a user as images name them: a name or number, and perhaps a group after a
// colon. The empty one is the image's.
func (v Rules) ContainerUser(place, s string) {
	if s == "" {
		return
	}
	user, group, grouped := strings.Cut(s, ":")
	if !userName(user) || grouped && !userName(group) || len(s) > maxUser {
		v.Invalid(place, "must be a user or user:group, by names or numbers")
	}
}

const maxUser = 128

func userName(s string) bool {
	return s != "" && s[0] != '-' && !strings.ContainsFunc(s, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && !strings.ContainsRune("._-", r)
	})
}

// pointer escapes a key for a JSON pointer.
var pointer = strings.NewReplacer("~", "~0", "/", "~1")
