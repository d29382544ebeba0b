package volumes

import (
	"context"
	"errors"
	"fmt"
)

// VolumeServer returns which of several servers has what is in a volume; empty: none has yet. See
// pods.Volumes.
func (s *Service) VolumeServer(ctx context.Context, id string) (server string, err error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && v.Deleted {
		err = ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("volumes: get %q: %w", id, err)
	}
	return v.Server, nil
}

// SettleVolume makes server the one that has what is in a volume, unless one has already. It returns
// the one that has.
func (s *Service) SettleVolume(ctx context.Context, id, server string) (at string, err error) {
	v, err := s.store.Update(ctx, id, unlessDeleted(func(v *Volume) error {
		if v.Server == "" {
			v.Server = server
		}
		return nil
	}))
	if err != nil {
		return "", fmt.Errorf("volumes: settle %q: %w", id, err)
	}
	return v.Server, nil
}

// here reports whether what is in a volume is at this server, if anything is.
func (s *Service) here(v *Volume) bool { return v.Server == "" || v.Server == s.o.Server }

// finish removes what is in a deleted volume here, and then forgets it. In this order, so that a
// crash leaves nothing.
func (s *Service) finish(ctx context.Context, id string) error {
	if s.o.Storage != nil {
		if err := s.o.Storage.RemoveVolume(ctx, id); err != nil {
			return fmt.Errorf("volumes: release what was in %q: %w", id, err)
		}
	}
	if err := s.store.Delete(ctx, id); err != nil && !errors.Is(err, ErrNotFound) {
		return fmt.Errorf("volumes: forget %q: %w", id, err)
	}
	return nil
}

// Sweep removes what this server has of volumes that were deleted at another one, or that it could
// not remove before. A program calls it now and then.
func (s *Service) Sweep(ctx context.Context) error {
	list, err := s.store.All(ctx)
	if err != nil {
		return fmt.Errorf("volumes: list: %w", err)
	}
	var errs []error
	for _, v := range list {
		if v.Deleted && s.here(&v) {
			errs = append(errs, s.finish(ctx, v.ID))
		}
	}
	return errors.Join(errs...)
}

// unlessDeleted is a change of a volume that still exists.
func unlessDeleted(fn func(*Volume) error) func(*Volume) error {
	return func(v *Volume) error {
		if v.Deleted {
			return ErrNotFound
		}
		return fn(v)
	}
}
