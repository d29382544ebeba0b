package disk

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/registries"
)

// Registries is a registries.Store. Credentials are only on disk, and encrypted.
type Registries struct{ o owned[registries.Registry] }

var _ registries.Store = (*Registries)(nil)

// Registries returns the store of registry credentials.
func (s *Store) Registries() *Registries {
	return &Registries{owned[registries.Registry]{
		s: s, kind: keyRegistry, of: func(e *engine) *table[registries.Registry] { return &e.registries },
		clone: func(r registries.Registry) registries.Registry { return r }, order: registries.Compare,
		notFound: registries.ErrNotFound, exists: registries.ErrExists,
	}}
}

// A registry is stored as its length, its JSON, and its encrypted credential.
func encodeRegistry(seals sealer, key []byte, r *registries.Registry, c registries.Credential) ([]byte, error) {
	plain, err := json.Marshal(r)
	if err != nil {
		return nil, fmt.Errorf("disk: encode registry %q: %w", r.ID, err)
	}
	// Secrets do not marshal, so they are converted.
	secret := binary.AppendUvarint(nil, uint64(len(c.Username)))
	secret = append(append(secret, c.Username...), c.Password...)
	sealed, err := seals.seal(key, secret)
	if err != nil {
		return nil, err
	}
	return joinSealed(plain, sealed), nil
}

// joinSealed makes a value of a part that everybody may read and a sealed one.
func joinSealed(plain, sealed []byte) []byte {
	b := binary.AppendUvarint(make([]byte, 0, binary.MaxVarintLen64+len(plain)+len(sealed)), uint64(len(plain)))
	return append(append(b, plain...), sealed...)
}

func splitSealed(key, value []byte) (plain, sealed []byte, err error) {
	n, k := binary.Uvarint(value)
	if k <= 0 || n > uint64(len(value)-k) {
		return nil, nil, damaged(key)
	}
	return value[k : k+int(n)], value[k+int(n):], nil
}

func decodeRegistry(e *engine, key, value []byte) (*registries.Registry, error) {
	plain, _, err := splitSealed(key, value)
	if err != nil {
		return nil, err
	}
	return decodeJSON[registries.Registry](e, key, plain)
}

func decodeCredential(seals sealer, key, value []byte) (c registries.Credential, err error) {
	_, sealed, err := splitSealed(key, value)
	if err != nil {
		return c, err
	}
	secret, err := seals.open(key, sealed)
	if err != nil {
		return c, err
	}
	n, k := binary.Uvarint(secret)
	if k <= 0 || n > uint64(len(secret)-k) {
		return c, damaged(key)
	}
	secret = secret[k:]
	return registries.Credential{Username: registries.Secret(secret[:n]), Password: registries.Secret(secret[n:])}, nil
}

// Create implements registries.Store.
func (s *Registries) Create(ctx context.Context, r registries.Registry, c registries.Credential) error {
	return s.create(ctx, r, c)
}

// CreateKeyed implements registries.Store.
func (s *Registries) CreateKeyed(ctx context.Context, r registries.Registry, c registries.Credential, k idempotency.Record) error {
	return s.create(ctx, r, c, k)
}

func (s *Registries) create(ctx context.Context, r registries.Registry, c registries.Credential, keys ...idempotency.Record) error {
	return s.o.s.create(ctx, keys, func(e *engine, w *keyedWrite) error {
		if err := e.mayCreate(r.Owner); err != nil {
			return err
		}
		key := textKey(keyRegistry, r.ID)
		value, err := encodeRegistry(e.seals, key, &r, c)
		if err != nil {
			return err
		}
		return e.registries.change(ctx, e, r.ID, func(old *registries.Registry) (change[registries.Registry], error) {
			if old != nil {
				return change[registries.Registry]{}, registries.ErrExists
			}
			return change[registries.Registry]{key: key, value: value, v: &r, keyed: w}, nil
		}, nil)
	})
}

// FindKey implements registries.Store.
func (s *Registries) FindKey(_ context.Context, key idempotency.Digest) (idempotency.Record, error) {
	return s.o.s.findKey(key)
}

// Get implements registries.Store.
func (s *Registries) Get(_ context.Context, id string) (registries.Registry, registries.Credential, error) {
	e, err := s.o.s.engine()
	if err != nil {
		return registries.Registry{}, registries.Credential{}, err
	}
	r := e.registries.get(id)
	if r == nil {
		return registries.Registry{}, registries.Credential{}, e.missing(keyRegistry, registries.ErrNotFound)
	}
	key := textKey(keyRegistry, id)
	value, ok, err := e.get(key)
	if err == nil && !ok {
		err = registries.ErrNotFound // deleted just now
	}
	if err != nil {
		return registries.Registry{}, registries.Credential{}, err
	}
	c, err := decodeCredential(e.seals, key, value)
	if err != nil {
		return registries.Registry{}, registries.Credential{}, err
	}
	return *r, c, nil
}

// List implements registries.Store.
func (s *Registries) List(_ context.Context, owner string) ([]registries.Registry, error) {
	return s.o.list(func(r *registries.Registry) bool { return r.Owner == owner })
}

// All implements registries.Store.
func (s *Registries) All(context.Context) ([]registries.Registry, error) {
	return s.o.list(func(*registries.Registry) bool { return true })
}

// Delete implements registries.Store.
func (s *Registries) Delete(ctx context.Context, id string) error { return s.o.delete(ctx, id) }
