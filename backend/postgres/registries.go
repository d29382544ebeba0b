package postgres

import (
	"context"
	"encoding/json"

	"github.com/podyard/podyard/internal/records"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
)

// Registries is a registries.Store. Credentials are encrypted.
type Registries struct {
	keyFinder
	r recordTable[login]
}

// A login is a registry with its credential, which is not part of the JSON.
type login struct {
	registries.Registry
	credential registries.Credential
}

var _ registries.Store = (*Registries)(nil)

// Registries returns the store of registry credentials.
func (s *Store) Registries() *Registries {
	return &Registries{keyFinder{s}, recordTable[login]{
		Kind: records.Kind[login]{
			ID:       func(l *login) string { return l.ID },
			Owner:    func(l *login) string { return l.Owner },
			Order:    func(a, b login) int { return registries.Compare(a.Registry, b.Registry) },
			NotFound: registries.ErrNotFound,
			Exists:   registries.ErrExists,
			Holding:  func(l *login) budget.Holding { return l.Registry.Holding() },
		},
		s: s, table: "registries",
		hide: hideCredential, show: showCredential,
	}}
}

// Secrets do not marshal, so they are converted to bytes, which may be any.
func hideCredential(l login) (login, []byte, error) {
	secret, err := json.Marshal([2][]byte{[]byte(l.credential.Username), []byte(l.credential.Password)})
	return l, secret, err
}

func showCredential(l *login, secret []byte) error {
	var both [2][]byte
	err := json.Unmarshal(secret, &both)
	l.credential = registries.Credential{Username: registries.Secret(both[0]), Password: registries.Secret(both[1])}
	return err
}

// Create implements registries.Store.
func (s *Registries) Create(ctx context.Context, r registries.Registry, c registries.Credential) error {
	return s.r.create(ctx, login{r, c})
}

// CreateKeyed implements registries.Store.
func (s *Registries) CreateKeyed(ctx context.Context, r registries.Registry, c registries.Credential, k idempotency.Record) error {
	return s.r.create(ctx, login{r, c}, k)
}

// Get implements registries.Store.
func (s *Registries) Get(ctx context.Context, id string) (registries.Registry, registries.Credential, error) {
	l, err := s.r.get(ctx, id)
	return l.Registry, l.credential, err
}

// List implements registries.Store.
func (s *Registries) List(ctx context.Context, owner string) ([]registries.Registry, error) {
	return withoutCredentials(s.r.of(ctx, owner))
}

// All implements registries.Store.
func (s *Registries) All(ctx context.Context) ([]registries.Registry, error) {
	return withoutCredentials(s.r.all(ctx))
}

func withoutCredentials(logins []login, err error) (list []registries.Registry, _ error) {
	for _, l := range logins {
		list = append(list, l.Registry)
	}
	return list, err
}

// Delete implements registries.Store.
func (s *Registries) Delete(ctx context.Context, id string) error { return s.r.delete(ctx, id) }
