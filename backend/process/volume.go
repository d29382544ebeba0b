package process

import (
	"context"
	"fmt"
)

// RemoveVolume removes what is in a network volume, which no pod may mount any more. One
// that no pod has mounted holds nothing.
func (r *Runtime) RemoveVolume(_ context.Context, id string) error {
	if !plainName(id) {
		return fmt.Errorf("process: volume id %q is not a plain name", id)
	}
	if err := destroy(r.root.at("volumes", id)); err != nil {
		return fmt.Errorf("process: remove volume %q: %w", id, err)
	}
	return nil
}
