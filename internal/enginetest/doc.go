// Package enginetest starts container engines for tests: dockerd and the service of Podman,
// each in a directory and with networks of its own, and ends them with everything they left.
// That happens also when the test process does not get to it: a second process of the same
// test binary waits for the end of the first and cleans up then.
//
// Only tests import it. Their TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }
package enginetest
