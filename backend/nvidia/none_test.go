//go:build !linux || !cgo

package nvidia_test

import (
	"errors"
	"testing"

	"github.com/podyard/podyard/backend/nvidia"
)

func TestABuildThatCannotLoadSaysSo(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	if d, err := nvidia.Open(nil); d != nil || !errors.Is(err, nvidia.ErrMissing) {
		t.Errorf("Open = %v, %v, want ErrMissing", d, err)
	}
}
