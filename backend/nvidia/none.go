//go:build !linux || !cgo

package nvidia

import "fmt"

// openLibrary cannot load anything in this build.
func openLibrary(string) (library, error) {
	return nil, fmt.Errorf("%w: this build cannot load it, which takes Linux and cgo", ErrMissing)
}
