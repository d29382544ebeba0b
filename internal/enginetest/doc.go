// Package enginetest starts container engines for tests: dockerd and the service of Podman,
// each in a directory of its own, and ends them with everything they left. That happens also
// when the test process does not get to it: a second process of the same test binary waits
// for the end of the first and cleans up then.
//
// A test process that may start engines has a network and mounts of its own, so that no rule
// of a firewall and no network of an engine meets those of the machine, or outlives the tests.
// It reaches nothing but its own loopback interface.
//
// Only tests import it. Their TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }
package enginetest
