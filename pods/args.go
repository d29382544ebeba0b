package pods

import "github.com/podyard/podyard/internal/container"

// ParseCommand reads args as pods, templates and endpoints store them: an object as JSON,
// {"entrypoint":[...],"cmd":[...]}, or cmd as words that are split as a POSIX shell does. Blanks
// separate words, quotes and backslashes protect them. Nothing is expanded: dollars, globs and
// operators are ordinary characters. An empty list is the one of the image.
func ParseCommand(args string) (entrypoint, cmd []string, err error) {
	c, err := container.ParseCommand(args)
	return c.Entrypoint, c.Cmd, err
}

// Inside returns the number at which the program listens in its container.
func (m PortMapping) Inside() int {
	if m.Private >= container.MinEqualPort {
		return m.Public
	}
	return m.Private
}

// parsePort reads "8888/http", which has been checked.
func parsePort(s string) Port {
	number, protocol, _ := container.ParsePort(s)
	return Port{Private: number, Protocol: protocol}
}
