package suite

import (
	"os"
	"slices"
	"testing"
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

// RunsRuntimeCase reports whether a case of podstest.RuntimeCases runs where the suite is slow, or runs
// again with other options: in full, each of them; else those in which runtimes differ most.
func RunsRuntimeCase(name string) bool {
	return Long() || slices.Contains([]string{
		"EnsureLeadsToUp", "ArgsAndEnvironmentArrive", "TheDiskStaysForAnotherRun", "PortsAnswer", "LinesComeInOrder",
		"StopIsDownAndStopped", "ExitCodesAreTold", "GraceEndsInAKill", "PodsAreKnownAfterReopening", "RemoveLeavesNothing",
	}, name)
}
