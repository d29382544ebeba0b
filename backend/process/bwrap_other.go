//go:build !linux

package process

import (
	"errors"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// probe finds that there is no bubblewrap.
func (i *isolator) probe([]*supervise.Identity) error {
	switch i.opts.Mode {
	case ModeNone:
	case ModeRequired:
		return errors.New("bubblewrap is required, and needs Linux")
	default:
		i.lacks = append(i.lacks, "bubblewrap (it needs Linux)")
	}
	return nil
}
