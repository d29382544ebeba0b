package process

import (
	"context"
	"fmt"
)

// RemoveVolume removes a network volume; its files go in the background. No pod may mount it any more. It
// returns nil for a volume that no pod has mounted.
func (r *Runtime) RemoveVolume(_ context.Context, id string) error {
	if !plainName(id) {
		return fmt.Errorf("process: volume id %q is not a plain name", id)
	}
	if err := r.trash.Put(r.root.at("volumes", id)); err != nil {
		return fmt.Errorf("process: remove volume %q: %w", id, err)
	}
	return nil
}
