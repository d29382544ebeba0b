//go:build !linux

package enginetest

// Main runs the tests of a package. On this system there are no engines to stop.
func Main(m interface{ Run() int }) int { return m.Run() }

// Apart does nothing on this system.
func Apart() error { return nil }
