//go:build !linux

package enginetest

// Main runs the tests of a package, as a testing.M does: there are no engines to end.
func Main(m interface{ Run() int }) int { return m.Run() }
