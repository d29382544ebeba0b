// Package postgrestest starts a PostgreSQL server for tests: one for a test binary, on a free
// port of the loopback interface, in a directory that is deleted at the end, and with an empty
// database for each test. A server does not run as root; a test process of root starts it as
// the user nobody.
//
// Only tests import this package. A package of tests has
//
//	var postgresql postgrestest.Server
//
//	func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }
package postgrestest
