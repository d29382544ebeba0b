package templates

import (
	"maps"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

// A Category groups templates. It has no other effect.
type Category string

// The categories.
const (
	CPU    Category = "CPU"
	NVIDIA Category = "NVIDIA"
	AMD    Category = "AMD"
)

// A Template is a preset with a name.
type Template struct {
	ID       string // 14 lower-case letters and digits, except for Options.Official
	Owner    string // the user whose key made it; empty: one of Options.Official
	Name     string
	Public   bool
	Category Category
	Created  time.Time
	pods.Template
}

// Clone returns a copy of t that shares nothing with it.
func (t Template) Clone() Template {
	t.Ports = slices.Clone(t.Ports)
	t.Env = maps.Clone(t.Env)
	t.AllowedCUDAVersions = slices.Clone(t.AllowedCUDAVersions)
	if t.Persistent != nil {
		m := *t.Persistent
		t.Persistent = &m
	}
	t.Extras = t.Extras.Clone()
	return t
}

// Errors of a Service and a Store.
var (
	ErrNotFound = problem.New(problem.NotFound, "template not found")
	ErrExists   = problem.New(problem.Conflict, "template id is taken")
	ErrInUse    = problem.New(problem.BadRequest, "template is in use by a pod")
)

// Settings are the members of a request for a template. A nil one is absent; an empty slice or
// map is not.
type Settings struct {
	Name                *string
	Image               *string
	Args                *string
	Entrypoint, Cmd     []string // as in pods.UpdateRequest
	Disk                *int     // GB; default 50
	Ports               []string
	Env                 map[string]string
	Registry            *string // id of a credential; empty: none
	Persistent          *pods.PersistentMount
	Serverless          *bool
	Public              *bool
	Category            *Category // default NVIDIA
	StartSSH            *bool     // default true
	StartJupyter        *bool     // default true
	AllowedCUDAVersions []string
	Extras              pods.ExtrasChange

	// Idempotency is the key of a request to create a template (docs/decisions.md 38). Nil: it
	// has none.
	Idempotency *idempotency.Request

	// Violations are faults that a decoder found. They are reported together with the faults of
	// the values. A field has one fault at most.
	Violations problem.Violations
}

// Fields are the documented fields: faults are reported in this order.
func Fields() []string {
	return append([]string{
		"name", "image", "args", "entrypoint", "cmd", "disk", "ports", "env", "registry",
		"mounts", "mounts/persistent", "mounts/persistent/size", "mounts/persistent/path",
		"serverless", "public", "category", "startSsh", "startJupyter", "allowedCudaVersions",
	}, pods.ExtrasFields()...)
}

func (s *Settings) command() container.CommandChange {
	return container.CommandChange{Args: s.Args, Entrypoint: s.Entrypoint, Cmd: s.Cmd}
}

// apply copies the settings of s that are not absent to t.
func (s *Settings) apply(t *Template) {
	setIfGiven(&t.Name, s.Name)
	setIfGiven(&t.Image, s.Image)
	t.Args = s.command().Apply(t.Args)
	setIfGiven(&t.Disk, s.Disk)
	setIfGiven(&t.Registry, s.Registry)
	setIfGiven(&t.Serverless, s.Serverless)
	setIfGiven(&t.Public, s.Public)
	setIfGiven(&t.Category, s.Category)
	setIfGiven(&t.StartSSH, s.StartSSH)
	setIfGiven(&t.StartJupyter, s.StartJupyter)
	t.Extras = s.Extras.Apply(t.Extras)
	if s.Ports != nil {
		t.Ports = slices.Clone(s.Ports)
	}
	if s.Env != nil {
		t.Env = maps.Clone(s.Env)
	}
	if s.AllowedCUDAVersions != nil {
		t.AllowedCUDAVersions = slices.Clone(s.AllowedCUDAVersions)
	}
	if s.Persistent != nil {
		m := *s.Persistent
		t.Persistent = &m
	}
}

func setIfGiven[T any](to, from *T) {
	if from != nil {
		*to = *from
	}
}

// Holding is what a template takes of its owner's budgets (docs/decisions.md 37).
func (t *Template) Holding() budget.Holding {
	return budget.Holding{User: t.Owner, Of: [2]budget.Amount{
		{Budget: budget.Templates, N: 1}, {Budget: budget.TemplateEnvBytes, N: budget.Env(t.Env) + budget.Texts(t.Name, t.Image, t.Args)},
	}}
}
