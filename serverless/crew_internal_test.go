package serverless

import "testing"

// Steps go on while a worker begins: its member is not lost between its two calls.
func TestSweepBetweenJoinAndLocalizeLosesNoWorker(t *testing.T) {
	var c crew
	m, _ := c.join("e", "w", 1, 0)
	c.sweep(2)
	if !c.localize(m, 1) {
		t.Fatal("localize = false, want true: nobody else has the id")
	}
	if got, _ := c.join("e", "w", 3, 0); got != m {
		t.Error("the worker's next call makes another member, want the one that was localized")
	}
	if c.localize(m, 1) {
		t.Error("localize of a local worker = true, want false")
	}
}
