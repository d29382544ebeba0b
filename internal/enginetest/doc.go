// Package enginetest starts container engines for tests: dockerd and the service of Podman,
// each in its own directory. It stops them and deletes everything they leave, also if the
// test process is killed: a second process of the same test binary waits for the end of the
// first one and then cleans up.
//
// A test process that may start engines has its own network and mount namespaces. So the
// firewall rules and networks of the engines do not mix with those of the machine, and end
// with the tests. The process can reach only its own loopback interface.
//
// Only tests import this package. Their TestMain is
//
//	func TestMain(m *testing.M) { os.Exit(enginetest.Main(m)) }
package enginetest
