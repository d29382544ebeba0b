// Package suite has code that the suites for backends share.
package suite

import "testing"

// Run runs a rule as a subtest. If the rule is broken, it prints the reason for the rule.
func Run(t *testing.T, name, why string, rule func(t *testing.T)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		Explain(t, why)
		rule(t)
	})
}

// Explain prints the reason for a rule at the end of a failed test.
func Explain(t *testing.T, why string) {
	t.Helper()
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the rule: %s", why)
		}
	})
}
