// Package enginetest starts container engines for tests: dockerd and the service of
// Podman, each in a directory of its own. It ends them with everything they left, also
// when the test process is killed: a second process of the same test binary waits for
// the end of the first and then cleans up.
//
// A test process that may start engines has a network and mounts of its own. So no
// firewall rule and no network of an engine meets those of the machine or outlives the
// tests. The process reaches only its own loopback interface.
//
// Only tests import this package. Their TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }
package enginetest
