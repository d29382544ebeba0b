package suite

import (
	"os"
	"slices"
	"testing"
	"time"
)

// Long reports whether tests run in full: in continuous integration (PODYARD_CI=1), or with
// PODYARD_LONG. Elsewhere what is slow, and repeats on a real engine or under another user what
// other tests prove, is left out, so that go test ./... takes about a minute.
func Long() bool { return os.Getenv("PODYARD_CI") == "1" || os.Getenv("PODYARD_LONG") != "" }

// SkipUnlessLong skips a slow test unless tests run in full.
func SkipUnlessLong(t testing.TB) {
	t.Helper()
	if !Long() {
		t.Skip("slow: it runs with PODYARD_CI=1")
	}
}

// Within returns how long something may take: limit with PODYARD_LONG, when the machine does nothing
// else, and ten times that elsewhere, where other tests and the race detector take their share.
func Within(limit time.Duration) time.Duration {
	if os.Getenv("PODYARD_LONG") != "" {
		return limit
	}
	return 10 * limit
}

// RunsRuntimeCase reports whether a case of podstest.RuntimeCases runs where the suite is slow, or runs
// again with other options: in full, each of them; else those in which runtimes differ most.
func RunsRuntimeCase(name string) bool {
	return Long() || slices.Contains([]string{
		"EnsureLeadsToUp", "ArgsAndEnvironmentArrive", "TheEntrypointComesFirst", "TheDiskStaysForAnotherRun", "PortsAnswer", "LinesComeInOrder",
		"ACommandHasItsExitCode", "ATerminalHasItsSizeAndTheNextOne", "ACommandEndsWithItsContext", "StopIsDownAndStopped", "ExitCodesAreTold", "GraceEndsInAKill", "PodsAreKnownAfterReopening", "RemoveLeavesNothing",
	}, name)
}
