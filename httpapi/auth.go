package httpapi

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/podyard/podyard/httpapi/conns"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
)

// An Authenticator finds the identity of a key. It is safe for concurrent use.
type Authenticator interface {
	// Authenticate returns the identity of a key, or ErrKey for an invalid key. Any other
	// error means that the key could not be checked.
	Authenticate(ctx context.Context, key string) (Identity, error)
}

// ErrKey is the error for a key that is unknown, expired or revoked.
var ErrKey = problem.New(problem.Unauthorized, "invalid or expired token")

var (
	errNoKey     = problem.New(problem.Unauthorized, "missing bearer token")
	errMalformed = problem.New(problem.Unauthorized, "malformed authorization header")
	errForbidden = problem.New(problem.Forbidden, "access denied")
)

// An Identity is the user of a key and what the key allows.
type Identity struct {
	User   string
	Scopes []Permission
	// Expires is the end of the key; zero: it does not expire. A key that this key creates,
	// changes or rotates expires no later.
	Expires time.Time
	// Key identifies the key in the audit log: its id, or the first 8 hex digits of its
	// digest. Default: those digits.
	Key string
	// Pod is the only pod that the key may get, stop and terminate, and all that it may do: it is the key
	// of a pod, which has no scopes (PodKeys).
	Pod string
	// Exempt keys have no quotas, rates and concurrency limits. Answers to them have no
	// headers about limits.
	Exempt bool
}

// Can reports whether the identity has a permission.
func (id Identity) Can(p Permission) bool {
	for _, s := range id.Scopes {
		if s.Covers(p) {
			return true
		}
	}
	return false
}

// Operator reports whether the identity is an operator's. An operator sees the records and
// jobs of every user, and may use the operations of operators (docs/decisions.md 35).
func (id Identity) Operator() bool { return id.Can(Permission{Area: accounts.AreaOperator}) }

// holder is who the connections of the key count for.
func (id Identity) holder() conns.Owner { return conns.Owner{User: id.User, Operator: id.Operator()} }

// AcceptKey records that the connection of a request has the key of id, for a handler beside the
// interface that answers without asking it: see conns.Accept. Requests to the interface do it
// themselves.
func AcceptKey(ctx context.Context, id Identity) error { return conns.Accept(ctx, id.holder()) }

// Package accounts defines what keys allow (docs/decisions.md 14).
type (
	// A Permission is an area of the interface and what may be done there.
	Permission = accounts.Permission
	// A Level is how much is allowed. Each level includes the lower ones.
	Level = accounts.Level
)

// The levels in order. Run is the highest for the jobs of an endpoint, Write elsewhere.
const (
	Read  = accounts.Read
	Run   = accounts.Run
	Write = accounts.Write
)

// ParseScope parses a scope of a key: "*", "operator", "pods:read", "pods:write", the same
// for registries and endpoints, "endpoint:<id>:run", "endpoint:<id>:read" and
// "endpoint:<id>:work". Volumes, templates, SSH keys and billing use the scopes of pods.
// "*" includes neither operator nor work (docs/decisions.md 14).
func ParseScope(s string) (Permission, error) {
	p, err := accounts.ParseScope(s)
	if err != nil {
		return Permission{}, fmt.Errorf("httpapi: %w", err)
	}
	return p, nil
}

// A Key is an entry of Keys.
type Key struct {
	// Secret is the key as clients send it, without blanks, or "sha256:" and its hex
	// digest.
	Secret string
	// User is the owner of the records that the key creates and sees. Keys of one user
	// share records.
	User    string
	Scopes  []string
	Expires time.Time // zero: never
	Exempt  bool      // no quotas, rates and concurrency limits
}

// Keys is an Authenticator with a fixed set of keys. It keeps only digests of them.
type Keys struct {
	byDigest map[accounts.Digest]knownKey
	now      func() time.Time
}

type knownKey struct {
	id      Identity
	expires time.Time
}

// A KeyError says which key of NewKeys is wrong. It does not contain the key.
type KeyError struct {
	Index int    // in the list
	Field string // Secret, User or Scopes
	Err   error  // what is wrong with it
}

func (e *KeyError) Error() string { return fmt.Sprintf("httpapi: key %d: %v", e.Index, e.Err) }

// Unwrap returns Err.
func (e *KeyError) Unwrap() error { return e.Err }

// NewKeys returns the keys, or a *KeyError. Expiry follows now. A key without scopes may do
// what any valid key may do: read the catalog, and the health of the jobs API
// (docs/decisions.md 14).
func NewKeys(keys []Key, now func() time.Time) (*Keys, error) {
	ks := &Keys{byDigest: map[accounts.Digest]knownKey{}, now: now}
	for i, k := range keys {
		if field, err := ks.add(k); err != nil {
			return nil, &KeyError{i, field, err}
		}
	}
	return ks, nil
}

// add returns the name of the wrong field with its error.
func (ks *Keys) add(k Key) (field string, err error) {
	d, err := digest(k.Secret)
	if err != nil {
		return "Secret", err
	}
	if _, ok := ks.byDigest[d]; ok {
		return "Secret", errors.New("key is there twice")
	}
	if err := accounts.CheckUser(k.User); err != nil {
		return "User", err
	}
	id := Identity{User: k.User, Expires: k.Expires, Exempt: k.Exempt, Key: d.String()}
	for _, s := range k.Scopes {
		p, err := accounts.ParseScope(s)
		if err != nil {
			return "Scopes", err
		}
		id.Scopes = append(id.Scopes, p)
	}
	ks.byDigest[d] = knownKey{id, k.Expires}
	return "", nil
}

func digest(secret string) (d accounts.Digest, err error) {
	h, ok := strings.CutPrefix(secret, "sha256:")
	if !ok {
		if secret == "" {
			return d, errors.New("key is empty")
		}
		if strings.ContainsFunc(secret, func(r rune) bool { return unicode.IsSpace(r) || unicode.IsControl(r) }) {
			return d, errors.New("key has blanks: no header can carry it")
		}
		return accounts.DigestOf(secret), nil
	}
	b, err := hex.DecodeString(h)
	if err != nil || len(b) != len(d) {
		return d, fmt.Errorf("sha256: wants %d hex digits", 2*len(d))
	}
	return accounts.Digest(b), nil
}

// Authenticate implements Authenticator. It looks up the digest of key, so its time says
// nothing about the keys.
func (ks *Keys) Authenticate(_ context.Context, key string) (Identity, error) {
	k, ok := ks.byDigest[accounts.DigestOf(key)]
	if !ok || !k.expires.IsZero() && !ks.now().Before(k.expires) {
		return Identity{}, ErrKey
	}
	return k.id, nil
}

// HasOperator reports whether a key with the scope operator is valid at an instant. The
// last such key of a service cannot be removed (docs/decisions.md 35).
func (ks *Keys) HasOperator(at time.Time) bool {
	return ks.hasOperator(at, func(string) bool { return true })
}

// IsOperator reports whether a user has such a key.
func (ks *Keys) IsOperator(user string, at time.Time) bool {
	return ks.hasOperator(at, func(u string) bool { return u == user })
}

func (ks *Keys) hasOperator(at time.Time, is func(user string) bool) bool {
	for _, k := range ks.byDigest {
		if k.id.Operator() && is(k.id.User) && (k.expires.IsZero() || at.Before(k.expires)) {
			return true
		}
	}
	return false
}

// A Permitter is an Authenticator that knows what users may do without a request of theirs.
type Permitter interface {
	// Permits reports whether a user has a key that is valid now and has a permission.
	Permits(ctx context.Context, user string, p Permission) (bool, error)
}

// MayRun reports whether a user may run jobs on an endpoint, for serverless.Options.MayRun. An
// Authenticator that is no Permitter permits it: then a schedule keeps the permission with which
// it was made.
func MayRun(ctx context.Context, a Authenticator, user, endpoint string) (bool, error) {
	p, ok := a.(Permitter)
	if !ok {
		return true, nil
	}
	return p.Permits(ctx, user, Permission{Area: "endpoint", Endpoint: endpoint, Level: Run})
}

// Permits implements Permitter.
func (ks *Keys) Permits(_ context.Context, user string, p Permission) (bool, error) {
	for _, k := range ks.byDigest {
		if k.id.User == user && k.id.Can(p) && (k.expires.IsZero() || ks.now().Before(k.expires)) {
			return true, nil
		}
	}
	return false, nil
}

// Permits implements Permitter.
func (k storedKeys) Permits(ctx context.Context, user string, p Permission) (bool, error) {
	return k.s.Permits(ctx, user, p)
}

// Permits implements Permitter. An entry that is no Permitter permits everything.
func (all anyOf) Permits(ctx context.Context, user string, p Permission) (bool, error) {
	for _, a := range all {
		x, ok := a.(Permitter)
		if !ok {
			return true, nil
		}
		if may, err := x.Permits(ctx, user, p); may || err != nil {
			return may, err
		}
	}
	return false, nil
}

// A Finder is an Authenticator that finds keys by their names.
type Finder interface {
	// Find returns the identity of the key that Identity.Key names and that is valid now, or ErrKey.
	Find(ctx context.Context, name string) (Identity, error)
}

// Find implements Finder.
func (ks *Keys) Find(_ context.Context, name string) (Identity, error) {
	for _, k := range ks.byDigest {
		if k.id.Key == name && (k.expires.IsZero() || ks.now().Before(k.expires)) {
			return k.id, nil
		}
	}
	return Identity{}, ErrKey
}

// Find implements Finder.
func (k storedKeys) Find(ctx context.Context, name string) (Identity, error) {
	return k.identity(k.s.Find(ctx, name))
}

// Find implements Finder.
func (all anyOf) Find(ctx context.Context, name string) (Identity, error) {
	for _, a := range all {
		f, ok := a.(Finder)
		if !ok {
			continue
		}
		if id, err := f.Find(ctx, name); !errors.Is(err, ErrKey) {
			return id, err
		}
	}
	return Identity{}, ErrKey
}

// MayEnter reports whether the API key of this name may enter the pods of a user (docs/decisions.md 54). A
// failure to look takes nothing away.
func MayEnter(ctx context.Context, a Authenticator, user, name string) bool {
	_, err := Entering(ctx, a, user, name)
	return err == nil || problem.KindOf(err) != problem.Unauthorized
}

// Entering returns the identity of an API key by its name, if it may enter the pods of a user: it is the
// user's or an operator's, and has pods:write. Else the error is ErrKey.
func Entering(ctx context.Context, a Authenticator, user, name string) (Identity, error) {
	f, ok := a.(Finder)
	if !ok || name == "" {
		return Identity{}, ErrKey
	}
	id, err := f.Find(ctx, name)
	if err == nil && (id.User != user && !id.Operator() || !id.Can(Permission{Area: "pods", Level: Write})) {
		err = ErrKey
	}
	return id, err
}

// StoredKeys returns an Authenticator with the keys of an accounts service.
func StoredKeys(s *accounts.Service) Authenticator { return storedKeys{s} }

type storedKeys struct{ s *accounts.Service }

// Authenticate implements Authenticator.
func (k storedKeys) Authenticate(ctx context.Context, key string) (Identity, error) {
	return k.identity(k.s.Authenticate(ctx, key))
}

func (k storedKeys) identity(g accounts.Grant, err error) (Identity, error) {
	switch {
	case errors.Is(err, accounts.ErrUnknown):
		return Identity{}, ErrKey
	case err != nil:
		return Identity{}, err
	}
	return Identity{User: g.User, Scopes: g.Scopes, Expires: g.Expires, Key: g.ID}, nil
}

// AnyOf returns an Authenticator that asks others in order. It returns the first answer
// that is not ErrKey, also if that is another error. Nil entries are ignored.
func AnyOf(all ...Authenticator) Authenticator {
	return anyOf(slices.DeleteFunc(slices.Clone(all), func(a Authenticator) bool { return a == nil }))
}

// PodKeys returns an Authenticator with the keys that pods have in their environment (docs/decisions.md 55).
func PodKeys(s *pods.Service) Authenticator { return podKeys{s} }

type podKeys struct{ s *pods.Service }

// Authenticate implements Authenticator.
func (k podKeys) Authenticate(ctx context.Context, key string) (Identity, error) {
	p, ok, err := k.s.PodOfKey(ctx, key)
	if err == nil && !ok {
		err = ErrKey
	}
	if err != nil {
		return Identity{}, err
	}
	return Identity{User: p.Owner, Pod: p.ID, Key: "pod " + p.ID}, nil
}

// Permits implements Permitter: the key of a pod permits nothing without a request.
func (podKeys) Permits(context.Context, string, Permission) (bool, error) { return false, nil }

type anyOf []Authenticator

// Authenticate implements Authenticator.
func (all anyOf) Authenticate(ctx context.Context, key string) (Identity, error) {
	for _, a := range all {
		if id, err := a.Authenticate(ctx, key); !errors.Is(err, ErrKey) {
			return id, err
		}
	}
	return Identity{}, ErrKey
}

// noKeys is an Authenticator without keys.
type noKeys struct{}

func (noKeys) Authenticate(context.Context, string) (Identity, error) { return Identity{}, ErrKey }

// keyOf reads the Authorization header: "Bearer", in any letter case, and the key, or only
// the key if bare is set.
func keyOf(header string, bare bool) (string, error) {
	header = strings.TrimSpace(header)
	if header == "" {
		return "", errNoKey
	}
	scheme, key, found := strings.Cut(header, " ")
	key = strings.TrimSpace(key)
	switch {
	case found && strings.EqualFold(scheme, "Bearer") && key != "" && !strings.Contains(key, " "):
		return key, nil
	case !found && bare && !strings.EqualFold(scheme, "Bearer"):
		return header, nil
	case !found && strings.EqualFold(scheme, "Bearer"):
		return "", errNoKey
	}
	return "", errMalformed
}
