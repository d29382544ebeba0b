package pods

import "github.com/podyard/podyard/internal/container"

// SplitArgs splits a string into words as a POSIX shell does: blanks separate, quotes
// and backslashes protect them. Nothing is expanded: dollars, globs and operators are
// ordinary characters.
func SplitArgs(s string) ([]string, error) { return container.SplitArgs(s) }

// parsePort reads "8888/http", which has been checked.
func parsePort(s string) Port {
	number, protocol, _ := container.ParsePort(s)
	return Port{Private: number, Protocol: protocol}
}
