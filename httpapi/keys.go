package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/problem"
)

func keyOperations() []operation {
	return group(APIControl, AreaKeys,
		op("listKeys", "GET /v2/account/keys", ScopeAccount, listKeys, paged, byOwners, added),
		op("createKey", "POST /v2/account/keys", ScopeAccount, createKey, added, keyed),
		op("getKey", "GET /v2/account/keys/{id}", ScopeAccount, getKey, added),
		op("updateKey", "PATCH /v2/account/keys/{id}", ScopeAccount, updateKey, added),
		op("deleteKey", "DELETE /v2/account/keys/{id}", ScopeAccount, deleteKey, added),
		op("rotateKey", "POST /v2/account/keys/{id}/rotate", ScopeAccount, rotateKey, added),
	)
}

func (b *describer) describeKeys() map[string]description {
	key := openapi.For[keyBody](&b.Builder)
	return map[string]description{
		"listKeys":  {summary: "List the caller's API keys", answers: ok(b.list("keys", key, true))},
		"createKey": {summary: "Create an API key", text: "Only this answer has the secret.", body: b.Component("CreateKeyRequest", createKeyBody()), answers: created(key)},
		"getKey":    {summary: "Get an API key", answers: ok(key)},
		"updateKey": {summary: "Change the scopes or the end of an API key", body: b.Component("UpdateKeyRequest", updateKeyBody()), answers: ok(key)},
		"deleteKey": {summary: "Delete an API key", text: "It is refused from then on. 409 for the last one of an operator.", answers: gone()},
		"rotateKey": {summary: "Give an API key a new secret", text: "Only this answer has it.", body: b.Component("RotateKeyRequest", rotateKeyBody()), optional: true, answers: ok(key)},
	}
}

// keyRules adds what accounts.Service checks.
func keyRules(s *openapi.Schema) *openapi.Schema {
	s.At("scopes").NotEmpty().MaxItems = accounts.MaxScopes
	s.At("scopes").UniqueItems = true
	s.At("scopes/*").MaxLength = accounts.MaxScope
	s.At("expires").Format = "date-time"
	return s
}

func createKeyBody() *openapi.Schema {
	s := keyRules(recorded(func(o *object) { o.createKey(&accounts.CreateRequest{}) }))
	s.At("user").NotEmpty().MaxLength = accounts.MaxUser
	s.Required = []string{"scopes"}
	return s
}

func updateKeyBody() *openapi.Schema {
	return keyRules(recorded(func(o *object) { o.updateKey(&accounts.UpdateRequest{}) }))
}

func rotateKeyBody() *openapi.Schema {
	s := recorded(func(o *object) { o.rotateKey(&accounts.RotateRequest{}) })
	s.At("overlap").Between(inMillis(0), inMillis(accounts.MaxOverlap))
	return s
}

// A keyBody is a key on the wire (docs/interface.md 2.18). Key is its secret, which only
// the answer to its creation or rotation contains.
type keyBody struct {
	ID           string    `json:"id"`
	User         string    `json:"user"`
	Scopes       []string  `json:"scopes"`
	Expires      *wireTime `json:"expires"`
	CreatedAt    wireTime  `json:"createdAt"`
	OverlapUntil *wireTime `json:"overlapUntil"`
	Key          string    `json:"key,omitempty"`
}

func (c *call) key(k accounts.Key) keyBody {
	b := keyBody{ID: k.ID, User: k.User, Scopes: orEmpty(k.Scopes), CreatedAt: wireTime(k.Created)}
	if !k.Expires.IsZero() {
		b.Expires = (*wireTime)(&k.Expires)
	}
	if c.clock.Now().Before(k.OldUntil) {
		b.OverlapUntil = (*wireTime)(&k.OldUntil)
	}
	return b
}

// caller returns the identity for a change of keys.
func (c *call) caller() accounts.Caller {
	return accounts.Caller{User: c.id.User, Scopes: c.id.Scopes, Expires: c.id.Expires}
}

// accountKey returns the key in the path. Existence is checked before the body.
func (c *call) accountKey() (accounts.Key, error) {
	k, err := c.Accounts.Get(c.r.Context(), c.caller(), c.r.PathValue("id"))
	if err == nil && k.User != c.id.User {
		c.w.Header().Set(ownerHeader, k.User)
	}
	return k, err
}

func listKeys(c *call) error {
	list, err := ofOwner(c, c.Accounts.List, c.Accounts.All, func(k accounts.Key) place { return place{k.Created, k.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "keys", list, func(k accounts.Key) string { return k.User }, c.key)
}

func createKey(c *call) error {
	var r accounts.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createKey); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	k, secret, err := c.Accounts.Create(c.r.Context(), c.caller(), r)
	k, err = onceCreated(c, k, err, func(ctx context.Context, _, id string) (accounts.Key, error) {
		return c.Accounts.Get(ctx, c.caller(), id)
	})
	return c.newSecret(http.StatusCreated, k, secret, err)
}

func (o *object) createKey(r *accounts.CreateRequest) {
	if user := o.str("user"); user != nil {
		if r.User = *user; r.User == "" {
			r.Violations.Add(problem.Invalid, "/user", "must have at least 1 character")
		}
	}
	r.Scopes = o.strings("scopes")
	if end := o.instant("expires"); end != nil {
		r.Expires = *end
	}
	o.unknown()
}

// newSecret answers with a key and its secret. No later answer shows the secret.
func (c *call) newSecret(status int, k accounts.Key, secret accounts.Secret, err error) error {
	if err != nil {
		return err
	}
	if k.User != c.id.User {
		c.w.Header().Set(ownerHeader, k.User)
	}
	c.made = k.ID
	b := c.key(k)
	b.Key = string(secret)
	return writeJSON(c.w, status, b)
}

func getKey(c *call) error {
	k, err := c.accountKey()
	return writeRecord(c, k, err, c.key)
}

func updateKey(c *call) error {
	if _, err := c.accountKey(); err != nil {
		return err
	}
	var r accounts.UpdateRequest
	if err := decode(c, &r, &r.Violations, (*object).updateKey); err != nil {
		return err
	}
	k, err := c.Accounts.Update(c.r.Context(), c.caller(), c.r.PathValue("id"), r)
	return writeRecord(c, k, err, c.key)
}

func (o *object) updateKey(r *accounts.UpdateRequest) {
	r.Scopes, r.Expires = o.strings("scopes"), o.instant("expires")
	o.unknown()
}

func deleteKey(c *call) error {
	if _, err := c.accountKey(); err != nil {
		return err
	}
	return c.noContent(c.Accounts.Delete(c.r.Context(), c.caller(), c.r.PathValue("id")))
}

func rotateKey(c *call) error {
	if _, err := c.accountKey(); err != nil {
		return err
	}
	var r accounts.RotateRequest
	o, err := c.optionalObject(&r.Violations)
	if err != nil {
		return err
	}
	if o != nil {
		o.rotateKey(&r)
	}
	k, secret, err := c.Accounts.Rotate(c.r.Context(), c.caller(), c.r.PathValue("id"), r)
	return c.newSecret(http.StatusOK, k, secret, err)
}

func (o *object) rotateKey(r *accounts.RotateRequest) {
	if d := o.millis("overlap"); d != nil {
		r.Overlap = *d
	}
	o.unknown()
}

// instant reads an RFC 3339 time. It returns nil if the member is absent, and zero if it is
// null.
func (o *object) instant(name string) *time.Time {
	if o.isNull(name) {
		return &time.Time{}
	}
	text := o.str(name)
	if text == nil {
		return nil
	}
	t, fault := instantOf(*text, "must be a time as in RFC 3339, or null")
	if fault != "" {
		o.faults.Add(problem.Invalid, o.pointer(name), "%s", fault)
		return nil
	}
	return &t
}
