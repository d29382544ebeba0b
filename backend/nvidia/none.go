//go:build !linux || !cgo

package nvidia

import "fmt"

// openLibrary cannot load a library in this build, so Open tries nvidia-smi.
func openLibrary(string) (library, error) {
	return nil, fmt.Errorf("%w: this build cannot load it, which takes Linux and cgo", ErrMissing)
}
