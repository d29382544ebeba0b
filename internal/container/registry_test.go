package container_test

import (
	"context"
	"errors"
	"testing"

	"github.com/podyard/podyard/internal/container"
	"github.com/podyard/podyard/problem"
)

// secrets gives the same result to every call.
type secrets struct{ err error }

func (s secrets) PullSecret(context.Context, string, string) (registry, username, password string, err error) {
	return "", "", "", s.err
}

func TestARegistryIsJudgedByTheCredentialsOfItsOwner(t *testing.T) {
	down := errors.New("the store is down")
	none := problem.New(problem.NotFound, "registry not found")
	for name, row := range map[string]struct {
		secrets container.Secrets
		id      string
		fault   bool
		err     error
	}{
		"one that is there":            {secrets{}, "r", false, nil},
		"one that is not":              {secrets{none}, "r", true, nil},
		"one where there are none":     {nil, "r", true, nil},
		"none, where there are none":   {nil, "", false, nil},
		"none":                         {secrets{none}, "", false, nil},
		"one that cannot be looked up": {secrets{down}, "r", false, down},
	} {
		var faults problem.Violations
		err := container.Rules{Violations: &faults}.Registry(t.Context(), row.secrets, "alice", row.id)
		if !errors.Is(err, row.err) || faults.Has("/registry") != row.fault {
			t.Errorf("%s: fault %v, error %v; want %v, %v", name, faults.Has("/registry"), err, row.fault, row.err)
		}
	}
}
