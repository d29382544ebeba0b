package httpapi

import (
	"cmp"
	"context"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// Owners says which owners an operator may name with the parameter owner of an operation
// (docs/decisions.md 35).
type Owners string

// The allowed values of the parameter. Only operators may send it.
const (
	OwnersNone Owners = ""    // the operation does not have it
	OwnersOne  Owners = "one" // the name of a user
	OwnersAll  Owners = "all" // the name of a user, or "*" for all
)

// ownerHeader names the owner of a record that an operator has found (docs/decisions.md
// 35).
const ownerHeader = "Podyard-Owner"

// actAs sets the owner of the records that the request is about: the caller, unless an
// operator names another user.
func (c *call) actAs() error {
	c.owner = c.id.User
	if _, given := c.query("owner"); !given || c.op.Scope == ScopeNone || c.op.API == APIOpenAI || c.op.API == APIWorkers || c.op.API == APIBalance {
		return nil
	}
	if !c.id.Operator() {
		return errForbidden
	}
	owner, err := c.queryText("owner")
	switch {
	case err != nil:
		return err
	case c.op.Owners == OwnersNone:
		return problem.Newf(problem.Invalid, "owner: this operation acts on records of the caller, or on the one that its path names")
	case c.op.Owners == OwnersOne && owner == serverless.AllOwners:
		return problem.Newf(problem.Invalid, "owner must be the name of a user")
	}
	c.owner, c.named = owner, true
	return nil
}

// findOthers reports whether an operator requested another user's record, which was not
// found among the operator's own. The operation is then repeated for the owner, and the
// answer names the owner. The first attempt has changed nothing and has not read the body,
// because existence is checked first.
func (c *call) findOthers(err error) bool {
	if err == nil || c.named || problem.KindOf(err) != problem.NotFound || !c.id.Operator() || c.owner != c.id.User {
		return false
	}
	owner, err := c.recordOwner()
	if err != nil || owner == "" || owner == c.owner {
		return false
	}
	c.owner = owner
	c.w.Header().Set(ownerHeader, owner)
	return true
}

// recordOwner returns the owner of the record in the path, or "" if there is no such record
// or it has no owner.
func (c *call) recordOwner() (string, error) {
	ctx, id := c.r.Context(), cmp.Or(c.r.PathValue("id"), c.r.PathValue("podId"))
	switch c.op.Area {
	case AreaJobs, AreaBalance:
		return c.jobOwner(c.r.PathValue("endpoint"), c.r.PathValue("job"))
	case AreaSchedules:
		return c.scheduleOwner()
	case AreaBatches:
		return c.batchOwner()
	case AreaEndpoints:
		job, _ := c.query("jobId")
		return c.jobOwner(id, cmp.Or(c.r.PathValue("job"), job))
	}
	find := map[Area]func(context.Context, string) (string, error){}
	if c.Pods != nil {
		find[AreaPods], find[AreaClusters] = c.Pods.Owner, c.Pods.ClusterOwner
	}
	if c.Volumes != nil {
		find[AreaVolumes] = c.Volumes.Owner
	}
	if c.Templates != nil {
		find[AreaTemplates] = c.Templates.Owner
	}
	if c.Registries != nil {
		find[AreaRegistries] = c.Registries.Owner
	}
	if c.Secrets != nil {
		find[AreaSecrets] = c.Secrets.Owner
	}
	if f := find[c.op.Area]; f != nil && id != "" {
		return f(ctx, id)
	}
	return "", nil
}

// jobOwner returns the owner of an endpoint, or the owner of the job if the endpoint is
// shared.
func (c *call) jobOwner(endpoint, job string) (string, error) {
	e, err := c.Jobs.Endpoint(c.r.Context(), endpoint)
	if err != nil || e.Owner != "" || job == "" {
		return ownerOf(e), err
	}
	if c.op.dead {
		return c.Jobs.DeadLetterOwner(c.r.Context(), c.ref())
	}
	return c.Jobs.JobOwner(c.r.Context(), serverless.Ref{Endpoint: endpoint, ID: serverless.JobID(job)})
}

// scheduleOwner returns the owner of a private endpoint, or of a schedule on a shared one.
func (c *call) scheduleOwner() (string, error) {
	endpoint, id := c.schedule()
	owner, err := c.jobOwner(endpoint, "")
	if err != nil || owner != "" || id == "" {
		return owner, err
	}
	return c.schedules().Owner(c.r.Context(), endpoint, id)
}

// batchOwner returns the owner of a private endpoint, or of a batch on a shared one.
func (c *call) batchOwner() (string, error) {
	endpoint, id := c.batch()
	owner, err := c.jobOwner(endpoint, "")
	if err != nil || owner != "" || id == "" {
		return owner, err
	}
	return c.batches().Owner(c.r.Context(), endpoint, id)
}

func ownerOf(e *serverless.Endpoint) string {
	if e == nil {
		return ""
	}
	return e.Owner
}

// ofOwner returns a page of the records of the request's owner, or of those of all users.
func ofOwner[T any](c *call, of func(context.Context, string) ([]T, error), everybodys func(context.Context) ([]T, error), at func(T) place) ([]T, error) {
	var list []T
	var err error
	if c.owner == serverless.AllOwners {
		list, err = everybodys(c.r.Context())
	} else {
		list, err = of(c.r.Context(), c.owner)
	}
	if err != nil {
		return nil, err
	}
	return page(c, list, at)
}

// An ownedBody is an item of a list that an operator requested by owner.
type ownedBody struct {
	Owner string `json:"owner"`
	Item  any    `json:"item"`
}

// items returns the bodies of a list, with their owners if an operator named one.
func items[T, B any](c *call, list []T, owner func(T) string, body func(T) B) any {
	if !c.named {
		return bodies(list, body, all)
	}
	return bodies(list, func(v T) ownedBody { return ownedBody{owner(v), body(v)} }, all)
}
