package suite_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/problem/idempotency"
)

type template = templates.Template

var records = suite.Records[template]{
	New: func(id, owner string, created time.Time) template {
		return template{ID: id, Owner: owner, Name: "n\x00", Created: created, Template: pods.Template{Disk: 1, Ports: []string{"80/http"}}}
	},
	ID:     func(t template) string { return t.ID },
	Spoil:  func(t *template) { t.Ports[0] = "x" },
	Change: func(t *template) { t.Name = "new" },
	Count:  func(t *template) { t.Disk++ },

	ErrExists: templates.ErrExists, ErrNotFound: templates.ErrNotFound,
}

// A broken store breaks one rule, to show that the suite finds it. Methods whose function
// is nil are correct.
type broken struct {
	templates.Store
	create func(s templates.Store, t template) error
	get    func(s templates.Store, id string) (template, error)
	list   func(s templates.Store, owner string) ([]template, error)
	all    func(s templates.Store) ([]template, error)
	update func(s templates.Store, id string, fn func(*template) error) (template, error)
	del    func(s templates.Store, id string) error
	keyed  func(s templates.Store, t template, r idempotency.Record) error
	find   func(s templates.Store, key idempotency.Digest) (idempotency.Record, error)
}

func (b *broken) Create(ctx context.Context, t template) error {
	if b.create != nil {
		return b.create(b.Store, t)
	}
	return b.Store.Create(ctx, t)
}

func (b *broken) CreateKeyed(ctx context.Context, t template, r idempotency.Record) error {
	if b.keyed != nil {
		return b.keyed(b.Store, t, r)
	}
	return b.Store.CreateKeyed(ctx, t, r)
}

func (b *broken) FindKey(ctx context.Context, key idempotency.Digest) (idempotency.Record, error) {
	if b.find != nil {
		return b.find(b.Store, key)
	}
	return b.Store.FindKey(ctx, key)
}

func (b *broken) Get(ctx context.Context, id string) (template, error) {
	if b.get != nil {
		return b.get(b.Store, id)
	}
	return b.Store.Get(ctx, id)
}

func (b *broken) List(ctx context.Context, owner string) ([]template, error) {
	if b.list != nil {
		return b.list(b.Store, owner)
	}
	return b.Store.List(ctx, owner)
}

func (b *broken) All(ctx context.Context) ([]template, error) {
	if b.all != nil {
		return b.all(b.Store)
	}
	return b.Store.All(ctx)
}

func (b *broken) Update(ctx context.Context, id string, fn func(*template) error) (template, error) {
	if b.update != nil {
		return b.update(b.Store, id, fn)
	}
	return b.Store.Update(ctx, id, fn)
}

func (b *broken) Delete(ctx context.Context, id string) error {
	if b.del != nil {
		return b.del(b.Store, id)
	}
	return b.Store.Delete(ctx, id)
}

// mutants returns a store for each rule, which breaks that rule.
func mutants(ctx context.Context) map[string]*broken {
	var kept []template // a list that one store shares with callers
	var last *template  // a record that another store shares with callers
	return map[string]*broken{
		"KeyIsStoredWithWhatItCreated": {keyed: func(s templates.Store, t template, _ idempotency.Record) error {
			return s.Create(ctx, t)
		}},
		"TakenKeyCreatesNothing": {keyed: func(s templates.Store, t template, r idempotency.Record) error {
			err := s.CreateKeyed(ctx, t, r)
			if errors.Is(err, idempotency.ErrTaken) {
				return errors.Join(err, s.Create(ctx, t))
			}
			return err
		}},
		"RefusedCreationLeavesItsKeyFree": {keyed: func(s templates.Store, t template, r idempotency.Record) error {
			err := s.CreateKeyed(ctx, t, r)
			if errors.Is(err, templates.ErrExists) {
				t.ID = "another"
				return errors.Join(err, s.CreateKeyed(ctx, t, r))
			}
			return err
		}},
		"KeyOutlivesWhatItCreated": {find: func(s templates.Store, key idempotency.Digest) (idempotency.Record, error) {
			r, err := s.FindKey(ctx, key)
			if _, gone := s.Get(ctx, r.ID); gone != nil {
				err = idempotency.ErrNotFound
			}
			return r, err
		}},
		"OneOfManyTwinsWins": {keyed: func(s templates.Store, t template, r idempotency.Record) error {
			if _, err := s.FindKey(ctx, r.Key); err == nil {
				return idempotency.ErrTaken
			}
			time.Sleep(time.Millisecond) // so that the others look meanwhile
			return s.Create(ctx, t)
		}},
		"KeyIsFreeAfterItsRetention": {keyed: func(s templates.Store, t template, r idempotency.Record) error {
			r.At = time.Unix(0, 0)
			return s.CreateKeyed(ctx, t, r)
		}},
		"CreatedIsReadBackWhole": {create: func(s templates.Store, t template) error {
			t.Name = strings.Trim(t.Name, "\x00")
			return s.Create(ctx, t)
		}},
		"TakenIDIsRefusedAndChangesNothing": {create: func(s templates.Store, t template) error {
			err := s.Create(ctx, t)
			if errors.Is(err, templates.ErrExists) {
				return errors.Join(err, s.Delete(ctx, t.ID))
			}
			return err
		}},
		"UnknownIsNotFound": {get: func(s templates.Store, id string) (template, error) {
			t, err := s.Get(ctx, id)
			if err != nil {
				err = errors.New("no rows")
			}
			return t, err
		}},
		"ListIsByCreationThenID": {list: func(s templates.Store, owner string) ([]template, error) {
			l, err := s.List(ctx, owner)
			slices.SortFunc(l, func(a, b template) int { return strings.Compare(a.ID, b.ID) })
			return l, err
		}},
		"ListHasOneOwnerOnly": {list: func(s templates.Store, owner string) (l []template, err error) {
			for _, o := range []string{"al", "alice"} { // by prefix
				if some, err := s.List(ctx, o); err == nil && strings.HasPrefix(o, owner) {
					l = append(l, some...)
				}
			}
			return l, nil
		}},
		"AllHasEveryOwnerByCreationThenID": {all: func(s templates.Store) ([]template, error) { return s.List(ctx, "bob") }},
		"DeletedIsGone": {del: func(s templates.Store, id string) error {
			_, err := s.Get(ctx, id)
			return err
		}},
		"OneOfManyCreatesOfAnIDWins": {create: func(s templates.Store, t template) error {
			if err := s.Create(ctx, t); !errors.Is(err, templates.ErrExists) {
				return err
			}
			return nil
		}},
		"OneOfManyDeletesSucceeds": {del: func(s templates.Store, id string) error {
			if err := s.Delete(ctx, id); !errors.Is(err, templates.ErrNotFound) {
				return err
			}
			return nil
		}},
		"NothingIsSharedWithCallers": {list: func(s templates.Store, owner string) ([]template, error) {
			if kept == nil {
				kept, _ = s.List(ctx, owner)
			}
			return kept, nil
		}},
		"UpdateStoresWhatFnLeavesAndReturnsIt": {update: func(s templates.Store, id string, fn func(*template) error) (template, error) {
			t, err := s.Get(ctx, id)
			return t, errors.Join(err, fn(&t))
		}},
		"UpdateThatFailsChangesNothing": {update: func(s templates.Store, id string, fn func(*template) error) (template, error) {
			var failed error
			t, err := s.Update(ctx, id, func(t *template) error { failed = fn(t); return nil })
			return t, errors.Join(err, failed)
		}},
		"UpdateOfAnUnknownIsNotFound": {update: func(s templates.Store, id string, fn func(*template) error) (template, error) {
			t, err := s.Update(ctx, id, fn)
			if errors.Is(err, templates.ErrNotFound) {
				_ = fn(&t)
			}
			return t, err
		}},
		"UpdatesAtOnceAllCount": {update: func(s templates.Store, id string, fn func(*template) error) (template, error) {
			t, err := s.Get(ctx, id)
			if err := errors.Join(err, fn(&t)); err != nil {
				return t, err
			}
			time.Sleep(time.Millisecond) // so that the others read meanwhile
			return s.Update(ctx, id, func(x *template) error { *x = t; return nil })
		}},
		"NothingOfAnUpdateIsShared": {
			update: func(s templates.Store, id string, fn func(*template) error) (template, error) {
				t, err := s.Update(ctx, id, fn)
				last = &t
				return t, err
			},
			get: func(templates.Store, string) (template, error) { return *last, nil },
		},
	}
}

func TestEveryRuleIsBrokenByAStoreThatBreaksIt(t *testing.T) {
	rules := slices.Concat(suite.RecordRules[*broken](records), suite.UpdateRules[*broken](records))
	for _, r := range rules {
		t.Run(r.Name, func(t *testing.T) {
			b := mutants(t.Context())[r.Name]
			if b == nil {
				t.Fatal("no store breaks this rule")
			}
			b.Store = memory.NewTemplates()
			if !suite.Breaks(t, r, b) {
				t.Error("the rule passes a store that breaks it")
			}
			if suite.Breaks(t, r, &broken{Store: memory.NewTemplates()}) {
				t.Error("the rule does not pass a store that keeps it")
			}
		})
	}
}
