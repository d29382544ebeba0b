package fault

import (
	"context"
	"iter"
	"math"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A PodStore is a pods.PodStore whose calls fail by a plan.
type PodStore struct {
	s pods.PodStore
	p *Plan
}

// An EndpointStore is an endpoints.Store whose calls fail by a plan.
type EndpointStore struct {
	s endpoints.Store
	p *Plan
}

// A RegistryStore is a registries.Store whose calls fail by a plan.
type RegistryStore struct {
	s registries.Store
	p *Plan
}

var (
	_ pods.PodStore    = (*PodStore)(nil)
	_ endpoints.Store  = (*EndpointStore)(nil)
	_ registries.Store = (*RegistryStore)(nil)
)

// Pods wraps a store of pods.
func Pods(s pods.PodStore, p *Plan) *PodStore { return &PodStore{s, p} }

// Endpoints wraps a store of endpoints.
func Endpoints(s endpoints.Store, p *Plan) *EndpointStore { return &EndpointStore{s, p} }

// Registries wraps a store of registries.
func Registries(s registries.Store, p *Plan) *RegistryStore { return &RegistryStore{s, p} }

// Unwrap returns the wrapped store.
func (f *PodStore) Unwrap() pods.PodStore { return f.s }

// Unwrap returns the wrapped store.
func (f *EndpointStore) Unwrap() endpoints.Store { return f.s }

// Unwrap returns the wrapped store.
func (f *RegistryStore) Unwrap() registries.Store { return f.s }

// Create implements pods.PodStore.
func (f *PodStore) Create(ctx context.Context, p *pods.Pod) error {
	return run(ctx, f.p, "pods.Create", func() error { return f.s.Create(ctx, p) })
}

// CreateKeyed implements idempotency.Store. The name of the call is pods.Create.
func (f *PodStore) CreateKeyed(ctx context.Context, p *pods.Pod, k idempotency.Record) error {
	return run(ctx, f.p, "pods.Create", func() error { return f.s.CreateKeyed(ctx, p, k) })
}

// CreateAll implements pods.PodStore. The name of the call is pods.Create.
func (f *PodStore) CreateAll(ctx context.Context, list []*pods.Pod, k *idempotency.Record) error {
	return run(ctx, f.p, "pods.Create", func() error { return f.s.CreateAll(ctx, list, k) })
}

// FindKey implements idempotency.Finder.
func (f *PodStore) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return do(ctx, f.p, "pods.FindKey", func() (idempotency.Record, error) { return f.s.FindKey(ctx, key) })
}

// Get implements pods.PodStore.
func (f *PodStore) Get(ctx context.Context, id string) (*pods.Pod, error) {
	return do(ctx, f.p, "pods.Get", func() (*pods.Pod, error) { return f.s.Get(ctx, id) })
}

// List implements pods.PodStore. It fails before the first pod.
func (f *PodStore) List(ctx context.Context, q pods.Filter) iter.Seq2[*pods.Pod, error] {
	return list(ctx, f.p, "pods.List", func() iter.Seq2[*pods.Pod, error] { return f.s.List(ctx, q) })
}

// Update implements pods.PodStore.
func (f *PodStore) Update(ctx context.Context, id string, fn func(*pods.Pod) error) (*pods.Pod, error) {
	return do(ctx, f.p, "pods.Update", func() (*pods.Pod, error) { return f.s.Update(ctx, id, fn) })
}

// Delete implements pods.PodStore.
func (f *PodStore) Delete(ctx context.Context, id string, fn func(*pods.Pod) error) error {
	return run(ctx, f.p, "pods.Delete", func() error { return f.s.Delete(ctx, id, fn) })
}

// Reserve implements pods.PodStore.
func (f *PodStore) Reserve(ctx context.Context, h pods.Reservation) error {
	return run(ctx, f.p, "pods.Reserve", func() error { return f.s.Reserve(ctx, h) })
}

// Release implements pods.PodStore.
func (f *PodStore) Release(ctx context.Context, holder string) error {
	return run(ctx, f.p, "pods.Release", func() error { return f.s.Release(ctx, holder) })
}

// Reservations implements pods.PodStore. It fails before the first reservation.
func (f *PodStore) Reservations(ctx context.Context) iter.Seq2[pods.Reservation, error] {
	return list(ctx, f.p, "pods.Reservations", func() iter.Seq2[pods.Reservation, error] { return f.s.Reservations(ctx) })
}

// Claimed implements pods.PodStore.
func (f *PodStore) Claimed(ctx context.Context, resource string) (int64, error) {
	r, ok := f.p.draw(ctx, "pods.Claimed", resource)
	switch {
	case !ok:
		return f.s.Claimed(ctx, resource)
	case r.Kind == Full:
		return math.MaxInt32, nil
	}
	return suffer(ctx, f.p, &r, func() (int64, error) { return f.s.Claimed(ctx, resource) })
}

// Watch implements pods.PodStore.
func (f *PodStore) Watch(ctx context.Context, fn func(ids []string)) error {
	return run(ctx, f.p, "pods.Watch", func() error { return f.s.Watch(ctx, fn) })
}

// Create implements endpoints.Store.
func (f *EndpointStore) Create(ctx context.Context, e *endpoints.Endpoint) error {
	return run(ctx, f.p, "endpoints.Create", func() error { return f.s.Create(ctx, e) })
}

// CreateKeyed implements idempotency.Store. The name of the call is endpoints.Create.
func (f *EndpointStore) CreateKeyed(ctx context.Context, e *endpoints.Endpoint, k idempotency.Record) error {
	return run(ctx, f.p, "endpoints.Create", func() error { return f.s.CreateKeyed(ctx, e, k) })
}

// FindKey implements idempotency.Finder.
func (f *EndpointStore) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return do(ctx, f.p, "endpoints.FindKey", func() (idempotency.Record, error) { return f.s.FindKey(ctx, key) })
}

// Get implements endpoints.Store.
func (f *EndpointStore) Get(ctx context.Context, id string) (*endpoints.Endpoint, error) {
	return do(ctx, f.p, "endpoints.Get", func() (*endpoints.Endpoint, error) { return f.s.Get(ctx, id) })
}

// List implements endpoints.Store. It fails before the first endpoint.
func (f *EndpointStore) List(ctx context.Context) iter.Seq2[*endpoints.Endpoint, error] {
	return list(ctx, f.p, "endpoints.List", func() iter.Seq2[*endpoints.Endpoint, error] { return f.s.List(ctx) })
}

// Update implements endpoints.Store.
func (f *EndpointStore) Update(ctx context.Context, id string, fn func(*endpoints.Endpoint) error) (*endpoints.Endpoint, error) {
	return do(ctx, f.p, "endpoints.Update", func() (*endpoints.Endpoint, error) { return f.s.Update(ctx, id, fn) })
}

// Delete implements endpoints.Store.
func (f *EndpointStore) Delete(ctx context.Context, id string) error {
	return run(ctx, f.p, "endpoints.Delete", func() error { return f.s.Delete(ctx, id) })
}

// Create implements registries.Store.
func (f *RegistryStore) Create(ctx context.Context, r registries.Registry, c registries.Credential) error {
	return run(ctx, f.p, "registries.Create", func() error { return f.s.Create(ctx, r, c) })
}

// CreateKeyed implements registries.Store. The name of the call is registries.Create.
func (f *RegistryStore) CreateKeyed(ctx context.Context, r registries.Registry, c registries.Credential, k idempotency.Record) error {
	return run(ctx, f.p, "registries.Create", func() error { return f.s.CreateKeyed(ctx, r, c, k) })
}

// FindKey implements idempotency.Finder.
func (f *RegistryStore) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return do(ctx, f.p, "registries.FindKey", func() (idempotency.Record, error) { return f.s.FindKey(ctx, key) })
}

// Get implements registries.Store.
func (f *RegistryStore) Get(ctx context.Context, id string) (r registries.Registry, c registries.Credential, err error) {
	err = run(ctx, f.p, "registries.Get", func() (err error) {
		r, c, err = f.s.Get(ctx, id)
		return err
	})
	if err != nil {
		return registries.Registry{}, registries.Credential{}, err
	}
	return r, c, nil
}

// List implements registries.Store.
func (f *RegistryStore) List(ctx context.Context, owner string) ([]registries.Registry, error) {
	return do(ctx, f.p, "registries.List", func() ([]registries.Registry, error) { return f.s.List(ctx, owner) })
}

// All implements registries.Store.
func (f *RegistryStore) All(ctx context.Context) ([]registries.Registry, error) {
	return do(ctx, f.p, "registries.All", func() ([]registries.Registry, error) { return f.s.All(ctx) })
}

// Delete implements registries.Store.
func (f *RegistryStore) Delete(ctx context.Context, id string) error {
	return run(ctx, f.p, "registries.Delete", func() error { return f.s.Delete(ctx, id) })
}
