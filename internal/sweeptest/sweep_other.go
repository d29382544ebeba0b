//go:build !linux

package sweeptest

// Main runs the tests of a package. On this system nothing is swept.
func Main(m interface{ Run() int }) int { return m.Run() }
