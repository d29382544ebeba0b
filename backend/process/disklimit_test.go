package process

import (
	"testing"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// A pod with a disk and a mount could keep its disk from being measured for ever.
func TestMovesInOneDirectoryCountAlsoWhereAnotherIsMeasured(t *testing.T) {
	limits := make([]diskLimit, 2)
	for n := 1; n <= movedTries; n++ {
		if got, want := limits[0].hidden(supervise.ErrMoved), n == movedTries; got != want {
			t.Errorf("after %d measurements during which directories were moved, hidden = %t, want %t", n, got, want)
		}
		if limits[1].hidden(nil) {
			t.Error("a measurement without an error hides something")
		}
	}
}
