package accounts

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
)

// What accounts needs of its neighbours, without importing them.
type (
	// Fixed are keys that are not in the store: those of a configuration.
	Fixed interface {
		// HasOperator reports whether one of them is an operator's and accepted at an instant.
		HasOperator(at time.Time) bool
	}
	// A Clock has the time.
	Clock interface {
		Now() time.Time
	}
)

// Options of a Service. Nil is all defaults.
type Options struct {
	Clock Clock     // default the system's
	Rand  io.Reader // ids and secrets are made of it, by one caller at a time. Default crypto/rand
	Fixed Fixed     // default: there are no other keys
	// Trusted reports whether the program trusts a user with more than a key says, as with
	// programs of its host. A key of such a user that makes pods or endpoints must have the
	// scope operator: else whoever has that key had this trust, too. It must not block.
	// Default: nobody is trusted.
	Trusted func(user string) bool
}

// A Service is the rules of keys over a Store. It is safe for concurrent use. The store is
// changed by this service only, unless it is Shared: then a key that another service changes or
// deletes is accepted for up to a second longer. Of two services that take the last two operator's
// keys away at the same instant, both may succeed.
type Service struct {
	store  Store
	shared Shared // nil: the store is not
	o      Options
	keys   idempotency.Guard
	mu     sync.Mutex // one change at a time, so that a last operator's key is one
	index  atomic.Pointer[index]
	looks  atomic.Uint64 // at the version of a shared store, which have begun
}

// New returns a service over store, which is read by Load, or at the first call.
func New(store Store, o *Options) *Service {
	s := &Service{store: store}
	s.shared, _ = store.(Shared)
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

// Load reads the store, if that was not done yet. A server calls it at its start.
func (s *Service) Load(ctx context.Context) error {
	_, err := s.known(ctx)
	return err
}

// A Grant is what an accepted secret stands for. Its slice is shared: it is not changed.
type Grant struct {
	ID      string // of the key
	User    string
	Scopes  []Permission
	Expires time.Time // zero: never
}

// Authenticate returns what a secret stands for, or ErrUnknown. Another error means that
// the keys could not be read. It takes no lock and does no I/O but after a failed change, and
// as [Shared] says.
func (s *Service) Authenticate(ctx context.Context, secret string) (Grant, error) {
	looks := s.looks.Load()
	x, err := s.known(ctx)
	if err != nil {
		return Grant{}, err
	}
	d := DigestOf(secret)
	if x.byDigest[d] == nil && s.shared != nil {
		// Another server may have made it now.
		if x, err = s.newest(ctx, looks); err != nil {
			return Grant{}, err
		}
	}
	e, now := x.byDigest[d], s.o.Clock.Now()
	if e == nil || !e.valid(now) || e.Digest != d && !now.Before(e.OldUntil) {
		return Grant{}, ErrUnknown
	}
	return e.grant, nil
}

// Find returns what a key allows, by its id, or ErrUnknown if there is none that is valid now. Other errors
// are those of Authenticate.
func (s *Service) Find(ctx context.Context, id string) (Grant, error) {
	x, err := s.known(ctx)
	if err != nil {
		return Grant{}, err
	}
	if e := x.byID[id]; e != nil && e.valid(s.o.Clock.Now()) {
		return e.grant, nil
	}
	return Grant{}, ErrUnknown
}

// Permits reports whether a user has a key that is valid now and has a permission. Errors are
// those of Authenticate.
func (s *Service) Permits(ctx context.Context, user string, p Permission) (bool, error) {
	x, err := s.known(ctx)
	if err != nil {
		return false, err
	}
	return x.permits(user, p, s.o.Clock.Now()), nil
}

// List returns the keys of a user, oldest first.
func (s *Service) List(ctx context.Context, user string) ([]Key, error) {
	list, err := s.store.List(ctx, user)
	if err != nil {
		return nil, fmt.Errorf("accounts: list: %w", err)
	}
	return list, nil
}

// All returns the keys of all users, oldest first. Only operators may see them.
func (s *Service) All(ctx context.Context) ([]Key, error) {
	list, err := s.store.All(ctx)
	if err != nil {
		return nil, fmt.Errorf("accounts: list: %w", err)
	}
	return list, nil
}

// Get returns a key of the caller's user, or any key for an operator; else ErrNotFound.
func (s *Service) Get(ctx context.Context, by Caller, id string) (Key, error) {
	k, err := s.store.Get(ctx, id)
	if err == nil && k.User != by.User && !by.Operator() {
		err = ErrNotFound
	}
	if err != nil {
		return Key{}, fmt.Errorf("accounts: get %q: %w", id, err)
	}
	return k, nil
}

// Create makes a key and returns its secret, which is kept nowhere. The key has at most the
// scopes of the caller; an operator gives any scope to any user. A user has at most MaxKeys. The name
// of a user without keys must be one that CheckUser takes. A request that was made before with its key gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, by Caller, r CreateRequest) (k Key, secret Secret, err error) {
	now := s.o.Clock.Now().UTC()
	x, err := s.known(ctx)
	if err != nil {
		return Key{}, "", err
	}
	known := r.User == by.User || x.count(r.User) > 0
	k, err = idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Key]{
		Guard: &s.keys, Store: s.store, Now: now,
		Check: func() error { return r.check(now, known) },
		Create: func(rec *idempotency.Record) (k Key, err error) {
			if err := r.check(now, known); err != nil {
				return Key{}, err
			}
			k, secret, err = s.create(ctx, by, r, now, rec)
			return k, err
		},
	})
	return k, secret, err
}

func (s *Service) create(ctx context.Context, by Caller, r CreateRequest, now time.Time, rec *idempotency.Record) (Key, Secret, error) {
	if r.User == "" {
		r.User = by.User
	}
	if r.User != by.User && !by.Operator() {
		return Key{}, "", problem.New(problem.Forbidden, "/user: only a key with the scope operator makes keys of other users")
	}
	if err := by.exceeds(r.Scopes); err != nil {
		return Key{}, "", err
	}
	if err := by.outlived(r.Expires); err != nil {
		return Key{}, "", err
	}
	if err := s.checkTrust(r.User, r.Scopes); err != nil {
		return Key{}, "", err
	}
	secret, err := s.newSecret()
	if err != nil {
		return Key{}, "", fmt.Errorf("accounts: create: %w", err)
	}
	k := Key{User: r.User, Scopes: slices.Clone(r.Scopes), Created: now, Expires: r.Expires.UTC(), Digest: DigestOf(string(secret))}
	if r.Expires.IsZero() {
		k.Expires = time.Time{}
	}
	if err := s.add(ctx, &k, rec); err != nil {
		return Key{}, "", fmt.Errorf("accounts: create: %w", err)
	}
	return k, secret, nil
}

func (s *Service) add(ctx context.Context, k *Key, rec *idempotency.Record) error {
	return s.change(ctx, func(x *index) (*index, error) {
		if n := x.count(k.User); n >= MaxKeys {
			return nil, problem.Newf(problem.TooManyRequests, "user %s has %d keys of at most %d: delete one first", k.User, n, MaxKeys)
		}
		err := id.NewUnique(s.o.Rand, ErrExists, func(id string) error {
			k.ID = id
			return idempotency.Add(ctx, s.store, *k, id, rec)
		})
		return x.with(nil, k), err
	})
}

// checkTrust refuses a key that would hand on what the program trusts its user with.
func (s *Service) checkTrust(user string, scopes []string) error {
	if s.o.Trusted == nil || !makes(scopes) || !s.o.Trusted(user) {
		return nil
	}
	return problem.Newf(problem.Conflict, "/scopes: the configuration trusts the user %s with programs of its host. A key of that user that makes pods or endpoints must have the scope operator: make it for another user", user)
}

// HandsOnTrust reports whether k, which may be older than the trust in its user, is a key that
// Create would refuse.
func (s *Service) HandsOnTrust(k Key) bool { return s.checkTrust(k.User, k.Scopes) != nil }

// Update changes scopes and end of a key, which the caller must be able to manage: a key of
// the own user whose scopes, old and new, the caller has, or any key for an operator. Neither its
// old end nor its new one is later than that of the caller.
func (s *Service) Update(ctx context.Context, by Caller, id string, r UpdateRequest) (Key, error) {
	old, err := s.manage(ctx, by, id)
	if err != nil {
		return Key{}, err
	}
	if err := r.check(s.o.Clock.Now()); err != nil {
		return Key{}, err
	}
	if err := by.exceeds(r.Scopes); err != nil {
		return Key{}, err
	}
	if r.Expires != nil {
		if err := by.outlived(*r.Expires); err != nil {
			return Key{}, err
		}
	}
	if err := s.checkTrust(old.User, r.Scopes); err != nil {
		return Key{}, err
	}
	k, err := s.update(ctx, by, id, func(k *Key) {
		if r.Scopes != nil {
			k.Scopes = slices.Clone(r.Scopes)
		}
		if r.Expires != nil {
			k.Expires = r.Expires.UTC()
		}
		if r.Expires != nil && r.Expires.IsZero() {
			k.Expires = time.Time{}
		}
	})
	if err != nil {
		return Key{}, fmt.Errorf("accounts: update %q: %w", id, err)
	}
	return k, nil
}

// Rotate gives a key a new secret and returns it. The old one is accepted for r.Overlap; the
// one before that is not any more. The caller must be able to manage the key, as for Update.
func (s *Service) Rotate(ctx context.Context, by Caller, id string, r RotateRequest) (Key, Secret, error) {
	if _, err := s.manage(ctx, by, id); err != nil {
		return Key{}, "", err
	}
	if err := r.check(); err != nil {
		return Key{}, "", err
	}
	secret, err := s.newSecret()
	if err != nil {
		return Key{}, "", fmt.Errorf("accounts: rotate %q: %w", id, err)
	}
	k, err := s.update(ctx, by, id, func(k *Key) {
		old := k.Digest
		k.Digest, k.Old, k.OldUntil = DigestOf(string(secret)), Digest{}, time.Time{}
		if r.Overlap > 0 {
			k.Old, k.OldUntil = old, s.o.Clock.Now().Add(r.Overlap).UTC()
		}
	})
	if err != nil {
		return Key{}, "", fmt.Errorf("accounts: rotate %q: %w", id, err)
	}
	return k, secret, nil
}

// Delete revokes a key, which must be one that the caller may give, as for Update. It may end later
// than the caller's: nobody gains time by that. The last operator's key is ErrLastOperator.
func (s *Service) Delete(ctx context.Context, by Caller, id string) error {
	err := s.change(ctx, func(x *index) (*index, error) {
		old, err := s.revocable(ctx, by, id)
		if err != nil {
			return nil, err
		}
		next := x.with(&old, nil)
		if err := s.checkOperators(x, next); err != nil {
			return nil, err
		}
		return next, s.store.Delete(ctx, id)
	})
	if err != nil {
		return fmt.Errorf("accounts: delete %q: %w", id, err)
	}
	return nil
}

// manage returns a key that the caller may change. The end of the key matters even if it is not what
// changes: who rotates a key has its secret from then on, and who adds scopes to it may know its secret.
func (s *Service) manage(ctx context.Context, by Caller, id string) (Key, error) {
	k, err := s.revocable(ctx, by, id)
	if err != nil {
		return Key{}, err
	}
	if err := by.outlived(k.Expires); err != nil {
		return Key{}, err
	}
	return k, nil
}

// revocable returns a key that the caller may delete.
func (s *Service) revocable(ctx context.Context, by Caller, id string) (Key, error) {
	k, err := s.Get(ctx, by, id)
	if err == nil && by.exceeds(k.Scopes) != nil {
		return Key{}, problem.New(problem.Forbidden, "the key has scopes that the key of this request does not have")
	}
	return k, err
}

// update changes a key. What the caller may was checked before, and is checked again on the
// key as it is then.
func (s *Service) update(ctx context.Context, by Caller, id string, fn func(*Key)) (k Key, err error) {
	err = s.change(ctx, func(x *index) (*index, error) {
		old, err := s.manage(ctx, by, id)
		if err != nil {
			return nil, err
		}
		k = old.Clone()
		fn(&k)
		next := x.with(&old, &k)
		if err := s.checkOperators(x, next); err != nil {
			return nil, err
		}
		_, err = s.store.Update(ctx, id, func(stored *Key) error {
			*stored = k.Clone()
			return nil
		})
		return next, err
	})
	return k, err
}

// change makes one change at a time. fn returns the index that follows from it, and nil where
// it has refused. After an error of the store it is not known what the store has: the index
// is read again.
func (s *Service) change(ctx context.Context, fn func(*index) (*index, error)) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	x, err := s.load(ctx, s.looks.Load())
	if err != nil {
		return err
	}
	next, err := fn(x)
	if err != nil && next == nil {
		return err
	}
	if err != nil || s.shared != nil {
		next = nil
	}
	s.index.Store(next)
	return err
}

// maxAge is how long the keys of a shared store are used without a look at its version.
const maxAge = time.Second

// known is the index, which is read where it is not there or may be too old.
func (s *Service) known(ctx context.Context) (*index, error) {
	x := s.index.Load()
	if x != nil && s.shared == nil {
		return x, nil
	}
	looks := uint64(0)
	if x != nil {
		now := s.o.Clock.Now()
		if !now.Before(x.looked) && now.Before(x.looked.Add(maxAge)) {
			return x, nil
		}
		looks = x.look
	}
	return s.newest(ctx, looks)
}

// newest is the index as a look that is later than a number of looks has found it.
func (s *Service) newest(ctx context.Context, looks uint64) (*index, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.load(ctx, looks)
}

func (s *Service) load(ctx context.Context, looks uint64) (*index, error) {
	x := s.index.Load()
	if x != nil && (s.shared == nil || x.look > looks) {
		return x, nil
	}
	look, looked, version := s.looks.Add(1), s.o.Clock.Now(), int64(0)
	if s.shared != nil {
		var err error
		if version, err = s.shared.Version(ctx); err != nil {
			return nil, fmt.Errorf("accounts: read the version of the keys: %w", err)
		}
	}
	next := &index{}
	if x != nil && x.version == version {
		*next = *x
	} else {
		list, err := s.store.All(ctx)
		if err != nil {
			return nil, fmt.Errorf("accounts: read the keys: %w", err)
		}
		next = newIndex(list)
	}
	next.version, next.look, next.looked = version, look, looked
	s.index.Store(next)
	return next, nil
}

// checkOperators refuses a change after which no operator's key is accepted now, or none for
// good, where there was one before.
func (s *Service) checkOperators(old, next *index) error {
	now := s.o.Clock.Now()
	for _, at := range [...]time.Time{now, now.AddDate(1000, 0, 0)} {
		if s.o.Fixed != nil && s.o.Fixed.HasOperator(at) {
			continue
		}
		if old.hasOperator(at) && !next.hasOperator(at) {
			return ErrLastOperator
		}
	}
	return nil
}

// newSecret is as long as the key that a server makes for itself.
func (s *Service) newSecret() (Secret, error) {
	b := make([]byte, 20)
	if _, err := io.ReadFull(s.o.Rand, b); err != nil {
		return "", err
	}
	return Secret("py_" + hex.EncodeToString(b)), nil
}
