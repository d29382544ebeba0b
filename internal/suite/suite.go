// Package suite has what the suites for backends share.
package suite

import "testing"

// Run runs a rule as a subtest of its name, and prints why there is such a rule when it
// was broken.
func Run(t *testing.T, name, why string, rule func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		Explain(t, why)
		rule(t)
	})
}

// Explain prints at the end of a test that failed why there is the rule that it is about.
func Explain(t *testing.T, why string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule: %s", why)
		}
	})
}
