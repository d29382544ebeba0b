package container

import (
	"context"
	"fmt"

	"github.com/podyard/podyard/problem"
)

// Secrets finds registry credentials. pods and endpoints declare it as PullSecrets.
type Secrets interface {
	PullSecret(ctx context.Context, owner, id string) (registry, username, password string, err error)
}

// Registry requires that owner has the credential id. An empty id is valid. If secrets is
// nil, there are no credentials. It returns an error if secrets failed.
func (v Rules) Registry(ctx context.Context, secrets Secrets, owner, id string) error {
	if id == "" {
		return nil
	}
	err := error(problem.New(problem.NotFound, "no credentials here"))
	if secrets != nil {
		_, _, _, err = secrets.PullSecret(ctx, owner, id)
	}
	switch {
	case err == nil:
	case problem.KindOf(err) == problem.NotFound:
		v.BadRequest("/registry", "registry credential %q does not exist", id)
	default:
		return fmt.Errorf("find registry credential %q: %w", id, err)
	}
	return nil
}
