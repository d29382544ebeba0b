package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"time"
)

// Volumes has the operations on network volumes.
type Volumes struct{ c *Client }

// A Volume is a network volume (docs/interface.md 2.10).
type Volume struct {
	ID         string `json:"id,omitempty"` // empty in a request
	Name       string `json:"name,omitempty"`
	Size       int    `json:"size,omitempty"` // GB
	DataCenter string `json:"dataCenter,omitempty"`
	Type       string `json:"type,omitempty"` // STANDARD or HIGH_PERFORMANCE
	Owner      string `json:"-"`              // only for operators: see Client.As
}

func (v *Volume) own(owner string) { v.Owner = owner }

// All iterates over the caller's volumes. An error ends it.
func (v *Volumes) All(ctx context.Context) iter.Seq2[Volume, error] {
	return pages[Volume](ctx, v.c, "/v2/network-volumes", "networkVolumes", nil)
}

// List returns the caller's volumes.
func (v *Volumes) List(ctx context.Context) ([]Volume, error) { return collect(v.All(ctx)) }

// Create creates a volume.
func (v *Volumes) Create(ctx context.Context, s Volume) (Volume, error) {
	return change[Volume](ctx, v.c, http.MethodPost, "/v2/network-volumes", s)
}

// Get returns a volume.
func (v *Volumes) Get(ctx context.Context, id string) (Volume, error) {
	return find[Volume](ctx, v.c, join("/v2/network-volumes", id))
}

// Update renames or enlarges a volume: u has a Name, a Size, or both.
func (v *Volumes) Update(ctx context.Context, id string, u Volume) (Volume, error) {
	return change[Volume](ctx, v.c, http.MethodPatch, join("/v2/network-volumes", id), u)
}

// Delete deletes a volume with what is in it.
func (v *Volumes) Delete(ctx context.Context, id string) error {
	return v.c.remove(ctx, join("/v2/network-volumes", id))
}

// A GlobalVolume is a volume that all data centers see. A server of this package has none.
type GlobalVolume struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	Owner     string    `json:"-"` // only for operators: see Client.As
}

func (v *GlobalVolume) own(owner string) { v.Owner = owner }

// Globals iterates over the caller's global volumes. An error ends it.
func (v *Volumes) Globals(ctx context.Context) iter.Seq2[GlobalVolume, error] {
	return pages[GlobalVolume](ctx, v.c, "/v2/global-volumes", "globalVolumes", nil)
}

// Templates has the operations on templates.
type Templates struct{ c *Client }

// A Template is a preset of settings (docs/interface.md 2.11).
type Template struct {
	ID                  string            `json:"id"`
	Name                string            `json:"name"`
	Image               string            `json:"image"`
	Args                string            `json:"args"`
	Entrypoint          []string          `json:"entrypoint"`
	Cmd                 []string          `json:"cmd"`
	Disk                int               `json:"disk"` // GB
	Ports               []string          `json:"ports"`
	Env                 map[string]string `json:"env"`
	Registry            string            `json:"registry"`
	Mounts              Mounts            `json:"mounts"`
	Serverless          bool              `json:"serverless"` // for endpoints
	Public              bool              `json:"public"`
	Category            string            `json:"category"` // CPU, NVIDIA or AMD
	StartSSH            bool              `json:"startSsh"`
	StartJupyter        bool              `json:"startJupyter"`
	AllowedCUDAVersions []string          `json:"allowedCudaVersions"`
	Owner               string            `json:"-"` // only for operators: see Client.As
}

func (t *Template) own(owner string) { t.Owner = owner }

// TemplateSettings are the settings of a new template, or those to change. Nil: the default,
// or as it is. A new one needs Name and Image.
type TemplateSettings struct {
	Name                *string           `json:"name,omitempty"`
	Image               *string           `json:"image,omitempty"`
	Args                *string           `json:"args,omitempty"`
	Entrypoint          []string          `json:"entrypoint,omitzero"` // empty: the image's
	Cmd                 []string          `json:"cmd,omitzero"`
	Disk                *int              `json:"disk,omitempty"`
	Ports               []string          `json:"ports,omitzero"`
	Env                 map[string]string `json:"env,omitzero"`
	Registry            *string           `json:"-"` // empty: none
	Mounts              *Mounts           `json:"mounts,omitempty"`
	Serverless          *bool             `json:"serverless,omitempty"`
	Public              *bool             `json:"public,omitempty"`
	Category            string            `json:"category,omitempty"`
	StartSSH            *bool             `json:"startSsh,omitempty"`
	StartJupyter        *bool             `json:"startJupyter,omitempty"`
	AllowedCUDAVersions []string          `json:"allowedCudaVersions,omitzero"`
	Options             *PodOptions       `json:"podyard,omitempty"`
}

// MarshalJSON writes the settings.
func (s TemplateSettings) MarshalJSON() ([]byte, error) {
	type plain TemplateSettings
	return json.Marshal(struct {
		plain
		Registry json.RawMessage `json:"registry,omitempty"`
	}{plain(s), orNull(s.Registry)})
}

// All iterates over the caller's templates. An error ends it.
func (t *Templates) All(ctx context.Context) iter.Seq2[Template, error] {
	return pages[Template](ctx, t.c, "/v2/templates", "templates", nil)
}

// List returns the caller's templates.
func (t *Templates) List(ctx context.Context) ([]Template, error) { return collect(t.All(ctx)) }

// Public returns the templates that others have published. source is official, verified or
// community; empty: official.
func (t *Templates) Public(ctx context.Context, source string) ([]Template, error) {
	q := url.Values{}
	if source != "" {
		q.Set("source", source)
	}
	out, err := get[struct{ Templates []Template }](ctx, t.c, "/v2/catalog/templates", q)
	return out.Templates, err
}

// Create creates a template.
func (t *Templates) Create(ctx context.Context, s TemplateSettings) (Template, error) {
	return change[Template](ctx, t.c, http.MethodPost, "/v2/templates", s)
}

// Get returns a template, one of the caller or a public one.
func (t *Templates) Get(ctx context.Context, id string) (Template, error) {
	return find[Template](ctx, t.c, join("/v2/templates", id))
}

// Update changes a template.
func (t *Templates) Update(ctx context.Context, id string, s TemplateSettings) (Template, error) {
	return change[Template](ctx, t.c, http.MethodPatch, join("/v2/templates", id), s)
}

// Delete deletes a template.
func (t *Templates) Delete(ctx context.Context, id string) error {
	return t.c.remove(ctx, join("/v2/templates", id))
}

// Registries has the operations on credentials for registries.
type Registries struct{ c *Client }

// A Registry is a stored credential, without its secrets.
type Registry struct {
	ID    string `json:"id"`
	Name  string `json:"name"`
	Owner string `json:"-"` // only for operators: see Client.As
}

func (r *Registry) own(owner string) { r.Owner = owner }

// All iterates over the caller's credentials. An error ends it.
func (r *Registries) All(ctx context.Context) iter.Seq2[Registry, error] {
	return pages[Registry](ctx, r.c, "/v2/registries", "registries", nil)
}

// List returns the caller's credentials.
func (r *Registries) List(ctx context.Context) ([]Registry, error) { return collect(r.All(ctx)) }

// Create stores a credential. No answer has its secrets.
func (r *Registries) Create(ctx context.Context, name string, username, password Secret) (Registry, error) {
	return change[Registry](ctx, r.c, http.MethodPost, "/v2/registries", map[string]string{
		"name": name, "username": string(username), "password": string(password),
	})
}

// Get returns a credential, without its secrets.
func (r *Registries) Get(ctx context.Context, id string) (Registry, error) {
	return find[Registry](ctx, r.c, join("/v2/registries", id))
}

// Delete deletes a credential.
func (r *Registries) Delete(ctx context.Context, id string) error {
	return r.c.remove(ctx, join("/v2/registries", id))
}
