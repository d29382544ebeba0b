package volumes

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem/idempotency"
)

// Interfaces of other packages, which volumes does not import.
type (
	// InUse knows whether volumes are in use. pods.References is one.
	InUse interface {
		// VolumeInUse reports whether anything of owner mounts this volume, or will.
		VolumeInUse(ctx context.Context, owner, id string) (bool, error)
	}
	// A Storage has the contents of volumes.
	Storage interface {
		// RemoveVolume removes the contents of a volume that nothing mounts. It returns nil if
		// there are none.
		RemoveVolume(ctx context.Context, id string) error
	}
	// A Clock has the time.
	Clock interface {
		Now() time.Time
	}
)

// Options configures a Service. Nil means all defaults.
type Options struct {
	Clock   Clock      // default the system's
	Rand    io.Reader  // source of ids, read by one caller at a time. Default crypto/rand
	InUse   InUse      // asked before a delete. Default: nothing is in use
	Storage Storage    // removes the contents at a delete. Default: nobody does
	Server  string     // names this server among several on one store. Default: it is alone
	Meter   pods.Meter // gets the usages of deleted volumes. Default: they are not kept
}

// A Service checks volumes and keeps them in a Store. It is safe for concurrent use.
type Service struct {
	store   Store
	catalog catalog.Catalog
	o       Options
	keys    idempotency.Guard
}

var _ pods.Volumes = (*Service)(nil)

// New returns a service over store, for the data centers of c.
func New(store Store, c catalog.Catalog, o *Options) *Service {
	s := &Service{store: store, catalog: c}
	if o != nil {
		s.o = *o
	}
	if s.o.Clock == nil {
		s.o.Clock = clock.System{}
	}
	if s.o.Rand == nil {
		s.o.Rand = rand.Reader
	}
	s.o.Rand = id.LockedReader(s.o.Rand)
	return s
}

// Create makes a volume of owner. An invalid request gets one error with all faults, and
// changes nothing. A request that was made before with its key gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, owner string, r CreateRequest) (Volume, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Volume]{
		Guard: &s.keys, Store: s.store, Now: s.o.Clock.Now(),
		Check:  func() error { return r.check(s.catalog) },
		Create: func(k *idempotency.Record) (Volume, error) { return s.create(ctx, owner, r, k) },
	})
}

func (s *Service) create(ctx context.Context, owner string, r CreateRequest, k *idempotency.Record) (Volume, error) {
	if err := r.check(s.catalog); err != nil {
		return Volume{}, err
	}
	v := Volume{
		Owner: owner, Name: r.Name, Size: r.Size, DataCenter: r.DataCenter, Type: r.Type,
		Created: s.o.Clock.Now().UTC(),
	}
	if v.Type == "" {
		d, _ := s.catalog.DataCenter(r.DataCenter)
		v.Type = d.Volumes[0] // check has made sure that there is one
	}
	v.Sizes = []SizeSpan{{v.Created, v.Size}}
	err := id.NewUnique(s.o.Rand, ErrExists, func(made string) error {
		v.ID = made
		return idempotency.Add(ctx, s.store, v, made, k)
	})
	if err != nil {
		return Volume{}, fmt.Errorf("volumes: create: %w", err)
	}
	return v, nil
}

// Get returns a volume of owner, or ErrNotFound.
func (s *Service) Get(ctx context.Context, owner, id string) (Volume, error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && (v.Owner != owner || v.Deleted) {
		err = ErrNotFound // as if it did not exist
	}
	if err != nil {
		return Volume{}, fmt.Errorf("volumes: get %q: %w", id, err)
	}
	return v, nil
}

// Volume returns the data center of a volume of owner, or ErrNotFound. It implements
// pods.Volumes.
func (s *Service) Volume(ctx context.Context, owner, id string) (dataCenter string, err error) {
	v, err := s.Get(ctx, owner, id)
	return v.DataCenter, err
}

// Owner returns whose a volume is, or ErrNotFound.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	v, err := s.store.Get(ctx, id)
	if err == nil && v.Deleted {
		err = ErrNotFound
	}
	if err != nil {
		return "", fmt.Errorf("volumes: get %q: %w", id, err)
	}
	return v.Owner, nil
}

// All returns the volumes of all users, oldest first.
func (s *Service) All(ctx context.Context) ([]Volume, error) { return listed(s.store.All(ctx)) }

// List returns the volumes of owner, oldest first.
func (s *Service) List(ctx context.Context, owner string) ([]Volume, error) {
	return listed(s.store.List(ctx, owner))
}

func listed(list []Volume, err error) ([]Volume, error) {
	if err != nil {
		return nil, fmt.Errorf("volumes: list: %w", err)
	}
	return slices.DeleteFunc(list, func(v Volume) bool { return v.Deleted }), nil
}

// Update renames a volume of owner or makes it larger. Errors: ErrNotFound without it, and one
// error with all faults of r.
func (s *Service) Update(ctx context.Context, owner, id string, r UpdateRequest) (Volume, error) {
	if _, err := s.Get(ctx, owner, id); err != nil {
		return Volume{}, err
	}
	if err := r.check(); err != nil {
		return Volume{}, err
	}
	v, err := s.store.Update(ctx, id, unlessDeleted(func(v *Volume) error { return r.apply(v, s.o.Clock.Now().UTC()) }))
	if err != nil {
		return Volume{}, fmt.Errorf("volumes: update %q: %w", id, err)
	}
	return v, nil
}

// Delete removes a volume of owner and what is in it: ErrNotFound without it, ErrInUse
// while a pod or an endpoint names it, or a terminated pod still ends. That check is a best
// effort: a pod created at the same moment may come to name a volume that is gone, and mounts
// an empty one. The volume is gone also when what is in it could not be removed; the error says so.
// Sweep tries again, and removes at another server what is there.
func (s *Service) Delete(ctx context.Context, owner, id string) error {
	v, err := s.Get(ctx, owner, id)
	if err != nil {
		return err
	}
	if s.o.InUse != nil {
		used, err := s.o.InUse.VolumeInUse(ctx, owner, id)
		if err != nil {
			return fmt.Errorf("volumes: delete %q: %w", id, err)
		}
		if used {
			return ErrInUse
		}
	}
	// First, so that no usage is lost. If the delete then fails, the usage goes on and replaces
	// this record.
	if s.o.Meter != nil {
		if err := s.o.Meter.Record(ctx, s.usageOf(v, s.o.Clock.Now().UTC())); err != nil {
			return fmt.Errorf("volumes: meter %q: %w", id, err)
		}
	}
	v, err = s.store.Update(ctx, id, unlessDeleted(func(v *Volume) error { v.Deleted = true; return nil }))
	if err != nil {
		return fmt.Errorf("volumes: delete %q: %w", id, err)
	}
	if !s.here(&v) {
		return nil
	}
	return s.finish(ctx, id)
}
