package registriestest_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/registries/registriestest"
)

// A broken store breaks one rule, to show that the suite notices.
type broken struct {
	registries.Store
	create func(s registries.Store, r registries.Registry, c registries.Credential) error
	get    func(s registries.Store, id string) (registries.Registry, registries.Credential, error)
	list   func(s registries.Store, owner string) ([]registries.Registry, error)
	del    func(s registries.Store, id string) error
}

func (b *broken) Create(ctx context.Context, r registries.Registry, c registries.Credential) error {
	if b.create != nil {
		return b.create(b.Store, r, c)
	}
	return b.Store.Create(ctx, r, c)
}

func (b *broken) Get(ctx context.Context, id string) (registries.Registry, registries.Credential, error) {
	if b.get != nil {
		return b.get(b.Store, id)
	}
	return b.Store.Get(ctx, id)
}

func (b *broken) List(ctx context.Context, owner string) ([]registries.Registry, error) {
	if b.list != nil {
		return b.list(b.Store, owner)
	}
	return b.Store.List(ctx, owner)
}

func (b *broken) Delete(ctx context.Context, id string) error {
	if b.del != nil {
		return b.del(b.Store, id)
	}
	return b.Store.Delete(ctx, id)
}

// mutants are stores by the rule that they break.
func mutants(ctx context.Context) map[string]*broken {
	var kept []registries.Registry // what one of them hands out
	return map[string]*broken{
		"CreatedIsReadBackWhole": {create: func(s registries.Store, r registries.Registry, c registries.Credential) error {
			c.Password = registries.Secret(strings.TrimSpace(strings.ToValidUTF8(string(c.Password), ""))) + " "
			return s.Create(ctx, r, c)
		}},
		"TakenIDIsRefusedAndChangesNothing": {create: func(s registries.Store, r registries.Registry, c registries.Credential) error {
			err := s.Create(ctx, r, c)
			if errors.Is(err, registries.ErrExists) {
				return errors.Join(err, s.Delete(ctx, r.ID))
			}
			return err
		}},
		"UnknownIsNotFound": {get: func(s registries.Store, id string) (registries.Registry, registries.Credential, error) {
			r, c, err := s.Get(ctx, id)
			if err != nil {
				err = errors.New("no rows")
			}
			return r, c, err
		}},
		"ListIsByCreationThenID": {list: func(s registries.Store, owner string) ([]registries.Registry, error) {
			l, err := s.List(ctx, owner)
			slices.SortFunc(l, func(a, b registries.Registry) int { return strings.Compare(a.ID, b.ID) })
			return l, err
		}},
		"ListHasOneOwnerOnly": {list: func(s registries.Store, owner string) (l []registries.Registry, err error) {
			for _, o := range []string{"al", "alice"} { // by prefix
				if some, err := s.List(ctx, o); err == nil && strings.HasPrefix(o, owner) {
					l = append(l, some...)
				}
			}
			return l, nil
		}},
		"DeletedIsGone": {del: func(s registries.Store, id string) error {
			_, _, err := s.Get(ctx, id)
			return err
		}},
		"ReturnedListIsTheCallers": {list: func(s registries.Store, owner string) ([]registries.Registry, error) {
			if kept == nil {
				kept, _ = s.List(ctx, owner)
			}
			return kept, nil
		}},
		"OneOfManyCreatesOfAnIDWins": {create: func(s registries.Store, r registries.Registry, c registries.Credential) error {
			if err := s.Create(ctx, r, c); !errors.Is(err, registries.ErrExists) {
				return err
			}
			return nil
		}},
		"OneOfManyDeletesSucceeds": {del: func(s registries.Store, id string) error {
			if err := s.Delete(ctx, id); !errors.Is(err, registries.ErrNotFound) {
				return err
			}
			return nil
		}},
	}
}

const mutant = "REGISTRIESTEST_MUTANT"

func TestEveryRuleIsBrokenByAStoreThatBreaksIt(t *testing.T) {
	if name := os.Getenv(mutant); name != "" {
		b := mutants(t.Context())[name]
		b.Store = memory.NewRegistries()
		for _, r := range registriestest.Rules() {
			if r.Name == name {
				r.Run(t, b)
			}
		}
		return
	}
	for _, r := range registriestest.Rules() {
		t.Run(r.Name, func(t *testing.T) {
			if mutants(t.Context())[r.Name] == nil {
				t.Fatal("no store breaks this rule")
			}
			// In a process of its own, because a rule that fails fails its test.
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestEveryRuleIsBroken")
			cmd.Env = append(os.Environ(), mutant+"="+r.Name)
			out, err := cmd.CombinedOutput()
			var exit *exec.ExitError
			if !errors.As(err, &exit) || !strings.Contains(string(out), "--- FAIL: TestEveryRule") {
				t.Errorf("the rule passes a store that breaks it: %v\n%s", err, out)
			}
		})
	}
}
