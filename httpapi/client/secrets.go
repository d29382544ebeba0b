package client

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"time"
)

// A NamedSecret is a value for variables of pods and workers, which no answer has (docs/interface.md 2.24).
type NamedSecret struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"`
	Description string     `json:"description"`
	CreatedAt   time.Time  `json:"createdAt"`
	ValueSet    *time.Time `json:"valueLastUpdatedAt"`
	Owner       string     `json:"-"` // only for operators: see Client.As
}

func (s *NamedSecret) own(owner string) { s.Owner = owner }

// SecretSettings are what a change of a secret sets. Nil: as it is.
type SecretSettings struct {
	Value       *Secret
	Description *string // empty: none
}

// MarshalJSON writes the settings, with the value.
func (s SecretSettings) MarshalJSON() ([]byte, error) {
	out := map[string]string{}
	if s.Value != nil {
		out["value"] = string(*s.Value)
	}
	if s.Description != nil {
		out["description"] = *s.Description
	}
	return json.Marshal(out)
}

// Secrets returns the caller's secrets without their values, or only the one with a name, whatever
// its case.
func (a *Account) Secrets(ctx context.Context, name string) ([]NamedSecret, error) {
	q := a.c.billed(url.Values{})
	if name != "" {
		q.Set("name", name)
	}
	r := to(a.c.control, http.MethodGet, "/v2/account/secrets", q)
	list, _, err := page[NamedSecret](ctx, a.c, r, "secrets")
	return list, err
}

// CreateSecret stores a value. description may be empty. A variable with {{ RUNPOD_SECRET_name }} has
// it in containers that are made from now on.
func (a *Account) CreateSecret(ctx context.Context, name string, value Secret, description string) (NamedSecret, error) {
	body := map[string]string{"name": name, "value": string(value)}
	if description != "" {
		body["description"] = description
	}
	return change[NamedSecret](ctx, a.c, http.MethodPost, "/v2/account/secrets", body)
}

// Secret returns a secret, without its value.
func (a *Account) Secret(ctx context.Context, id string) (NamedSecret, error) {
	return find[NamedSecret](ctx, a.c, join("/v2/account/secrets", id))
}

// UpdateSecret changes a secret. Containers that run keep what they have.
func (a *Account) UpdateSecret(ctx context.Context, id string, s SecretSettings) (NamedSecret, error) {
	return change[NamedSecret](ctx, a.c, http.MethodPatch, join("/v2/account/secrets", id), s)
}

// DeleteSecret deletes a secret. It is empty in containers that are made from now on.
func (a *Account) DeleteSecret(ctx context.Context, id string) error {
	return a.c.remove(ctx, join("/v2/account/secrets", id))
}
