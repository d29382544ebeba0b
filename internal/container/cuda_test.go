package container_test

import (
	"testing"

	"github.com/podyard/podyard/internal/container"
)

func TestCUDAVersionsAreComparedNumberByNumber(t *testing.T) {
	order := []string{"", "9.2", "11.8", "12.0", "12.2", "12.11", "13.0", "123456789012345678901.0"}
	for i, a := range order {
		for j, b := range order {
			got := container.CompareCUDA(a, b)
			if (got < 0) != (i < j) || (got > 0) != (i > j) {
				t.Errorf("CompareCUDA(%q, %q) = %d", a, b, got)
			}
		}
	}
	if got := container.CompareCUDA("012.02", "12.2"); got != 0 {
		t.Errorf("CompareCUDA of two spellings of one number = %d", got)
	}
}
