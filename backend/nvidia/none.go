//go:build !linux || !cgo

package nvidia

import "fmt"

// openLibrary cannot load anything in this build: nvidia-smi is asked instead.
func openLibrary(string) (library, error) {
	return nil, fmt.Errorf("%w: this build cannot load it, which takes Linux and cgo", ErrMissing)
}
