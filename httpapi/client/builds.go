package client

import (
	"context"
	"iter"
)

// A Build is a build of an endpoint's image from a repository. A server of this package has none.
type Build struct {
	ID     string `json:"id"`
	Status string `json:"status"`
	Owner  string `json:"-"` // only for operators: see Client.As
}

func (b *Build) own(owner string) { b.Owner = owner }

// Builds iterates over the builds of an endpoint, newest first. An error ends it.
func (e *Endpoints) Builds(ctx context.Context, endpoint string) iter.Seq2[Build, error] {
	return pages[Build](ctx, e.c, join("/v2/serverless", endpoint, "builds"), "builds", nil)
}

// Build returns a build of an endpoint.
func (e *Endpoints) Build(ctx context.Context, endpoint, id string) (Build, error) {
	return find[Build](ctx, e.c, join("/v2/serverless", endpoint, "builds", id))
}
