package templates

import (
	"cmp"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/internal/id"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem/idempotency"
)

// Interfaces of other packages, which templates does not import.
type (
	// InUse knows whether templates are in use. pods.References is one.
	InUse interface {
		// TemplateInUse reports whether a pod of owner was made from this template.
		TemplateInUse(ctx context.Context, owner, id string) (bool, error)
	}
	// A Clock has the time.
	Clock interface {
		Now() time.Time
	}
)

// Options configures a Service. Nil means all defaults.
type Options struct {
	Clock   Clock            // default the system's
	Rand    io.Reader        // source of ids, read by one caller at a time. Default crypto/rand
	InUse   InUse            // asked before a delete. Default: nothing is in use
	Secrets pods.PullSecrets // the credentials that templates name. Default: none exists
	// Official are the templates of the catalog, for everybody. Default: Official().
	Official []Template
}

// A Service checks templates and keeps them in a Store. It is safe for concurrent use.
type Service struct {
	store Store
	o     Options
	keys  idempotency.Guard
}

var _ pods.Templates = (*Service)(nil)

// New returns a service over store.
func New(store Store, o *Options) *Service {
	s := &Service{store: store}
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
	if s.o.Official == nil {
		s.o.Official = Official()
	}
	return s
}

// Create makes a template of owner. Absent settings get their defaults. An invalid request gets
// one error with all faults, and changes nothing. A request that was made before with its key
// gets *idempotency.Repeated.
func (s *Service) Create(ctx context.Context, owner string, r Settings) (Template, error) {
	return idempotency.Do(ctx, r.Idempotency, idempotency.Creation[Template]{
		Guard: &s.keys, Store: s.store, Now: s.o.Clock.Now(),
		Check:  func() error { return s.check(ctx, owner, &r, true) },
		Create: func(k *idempotency.Record) (Template, error) { return s.create(ctx, owner, r, k) },
	})
}

func (s *Service) create(ctx context.Context, owner string, r Settings, k *idempotency.Record) (Template, error) {
	if err := s.check(ctx, owner, &r, true); err != nil {
		return Template{}, err
	}
	t := Template{
		Owner: owner, Category: NVIDIA, Created: s.o.Clock.Now().UTC(),
		Template: pods.Template{Disk: pods.DefaultDisk, StartSSH: true, StartJupyter: true},
	}
	r.apply(&t)
	err := id.NewUnique(s.o.Rand, ErrExists, func(made string) error {
		t.ID = made
		return idempotency.Add(ctx, s.store, t, made, k)
	})
	if err != nil {
		return Template{}, fmt.Errorf("templates: create: %w", err)
	}
	return t, nil
}

// check returns all faults of a request of owner in one error.
func (s *Service) check(ctx context.Context, owner string, r *Settings, isNew bool) error {
	v := container.Rules{Violations: &r.Violations}
	r.Extras.Check(&r.Violations)
	r.check(v, isNew)
	if r.Registry != nil {
		if err := v.Registry(ctx, s.o.Secrets, owner, *r.Registry); err != nil {
			return fmt.Errorf("templates: %w", err)
		}
	}
	return r.Violations.Err(Fields())
}

// Get returns a template that user may read: their own, a public one or one of
// Options.Official. For any other it returns ErrNotFound.
func (s *Service) Get(ctx context.Context, user, id string) (Template, error) {
	if i := slices.IndexFunc(s.o.Official, func(t Template) bool { return t.ID == id }); i >= 0 {
		return s.o.Official[i].Clone(), nil
	}
	t, err := s.store.Get(ctx, id)
	if err == nil && t.Owner != user && !t.Public {
		err = ErrNotFound
	}
	if err != nil {
		return Template{}, fmt.Errorf("templates: get %q: %w", id, err)
	}
	return t.visibleTo(user), nil
}

// visibleTo returns t without the credential if t belongs to another user, because only its
// owner can use the credential.
func (t Template) visibleTo(user string) Template {
	if t.Owner != user {
		t.Registry = ""
	}
	return t
}

// GetOwned returns a template that owner may change. For any other, also a readable one, it
// returns ErrNotFound.
func (s *Service) GetOwned(ctx context.Context, owner, id string) (Template, error) {
	t, err := s.store.Get(ctx, id)
	if err == nil && t.Owner != owner {
		err = ErrNotFound
	}
	if err != nil {
		return Template{}, fmt.Errorf("templates: get %q: %w", id, err)
	}
	return t, nil
}

// PodTemplate returns the settings of a template that owner may read. It implements
// pods.Templates.
func (s *Service) PodTemplate(ctx context.Context, owner, id string) (pods.Template, error) {
	t, err := s.Get(ctx, owner, id)
	return t.Template, err
}

// List returns the templates of owner, oldest first.
func (s *Service) List(ctx context.Context, owner string) ([]Template, error) {
	return listed(s.store.List(ctx, owner))
}

// All returns the templates of all users, oldest first.
func (s *Service) All(ctx context.Context) ([]Template, error) { return listed(s.store.All(ctx)) }

// Owner returns whose a template is, or ErrNotFound.
func (s *Service) Owner(ctx context.Context, id string) (string, error) {
	t, err := s.store.Get(ctx, id)
	if err != nil {
		return "", fmt.Errorf("templates: get %q: %w", id, err)
	}
	return t.Owner, nil
}

func listed(list []Template, err error) ([]Template, error) {
	if err != nil {
		return nil, fmt.Errorf("templates: list: %w", err)
	}
	return list, nil
}

// A Source is a part of the public catalog.
type Source string

// The parts.
const (
	FromOfficial  Source = "official"  // of the program, see Options.Official
	FromVerified  Source = "verified"  // of users, and verified: none here
	FromCommunity Source = "community" // of other users
)

// MaxCatalog is the most templates that Catalog returns.
const MaxCatalog = 100

// Catalog returns a part of the public templates, as user may see them.
func (s *Service) Catalog(ctx context.Context, user string, from Source) ([]Template, error) {
	list := []Template{}
	switch from {
	case FromOfficial:
		for i := range s.o.Official {
			list = append(list, s.o.Official[i].Clone())
		}
	case FromCommunity:
		public, err := s.store.Public(ctx)
		if err != nil {
			return nil, fmt.Errorf("templates: list public ones: %w", err)
		}
		for i := range public {
			if public[i].Owner != user {
				list = append(list, public[i].visibleTo(user))
			}
		}
	}
	return list[:min(len(list), MaxCatalog)], nil
}

// Update changes a template of owner. Errors: ErrNotFound without it, and one error with all
// faults of r.
func (s *Service) Update(ctx context.Context, owner, id string, r Settings) (Template, error) {
	if _, err := s.GetOwned(ctx, owner, id); err != nil {
		return Template{}, err
	}
	if err := s.check(ctx, owner, &r, false); err != nil {
		return Template{}, err
	}
	t, err := s.store.Update(ctx, id, func(t *Template) error {
		r.apply(t)
		return nil
	})
	if err != nil {
		return Template{}, fmt.Errorf("templates: update %q: %w", id, err)
	}
	return t, nil
}

// Delete removes a template of owner. Errors: ErrNotFound without it, ErrInUse while there is a
// pod of owner that was made from it.
func (s *Service) Delete(ctx context.Context, owner, id string) error {
	if _, err := s.GetOwned(ctx, owner, id); err != nil {
		return err
	}
	if s.o.InUse != nil {
		used, err := s.o.InUse.TemplateInUse(ctx, owner, id)
		if err != nil {
			return fmt.Errorf("templates: delete %q: %w", id, err)
		}
		if used {
			return ErrInUse
		}
	}
	if err := s.store.Delete(ctx, id); err != nil {
		return fmt.Errorf("templates: delete %q: %w", id, err)
	}
	return nil
}

// Compare orders templates by creation and then id.
func Compare(a, b Template) int {
	return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
}
