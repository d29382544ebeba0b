package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
)

func endpointOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("listEndpoints", "GET /v2/serverless", ScopeEndpointsRead, listEndpoints, paginated, byOwners, heavy),
		op("createEndpoint", "POST /v2/serverless", ScopeEndpointsWrite, createEndpoint, keyed),
		op("getEndpoint", "GET /v2/serverless/{id}", ScopeEndpointsRead, getEndpoint),
		op("updateEndpoint", "PATCH /v2/serverless/{id}", ScopeEndpointsWrite, updateEndpoint),
		op("deleteEndpoint", "DELETE /v2/serverless/{id}", ScopeEndpointsWrite, deleteEndpoint),
	)
}

func (b *describer) describeEndpoints() map[string]description {
	endpoint := openapi.For[endpointBody](&b.Builder)
	return map[string]description{
		"listEndpoints": {summary: "List the caller's endpoints and the shared ones", answers: ok(withPagination(b.list("endpoints", endpoint, true)))},
		"createEndpoint": {
			summary: "Create an endpoint", text: "Exactly one of gpu and cpu must be there.",
			body: b.Component("CreateEndpointRequest", createEndpointBody()), answers: created(endpoint),
		},
		"getEndpoint":    {summary: "Get an endpoint", answers: ok(endpoint)},
		"updateEndpoint": {summary: "Change an endpoint", body: b.Component("UpdateEndpointRequest", updateEndpointBody()), answers: ok(endpoint)},
		"deleteEndpoint": {summary: "Delete an endpoint", text: "Its workers end, and its jobs are cancelled.", answers: gone()},
	}
}

// endpoint returns the endpoint in the path if the caller may see it, and any endpoint for an
// operator who asks for the records of all users. Handlers call it before they read a body or a
// query, because existence is checked first.
func (c *call) endpoint() (*serverless.Endpoint, error) {
	id := c.r.PathValue("id")
	if c.owner == serverless.AllOwners {
		return c.Jobs.Endpoint(c.r.Context(), id)
	}
	return c.Jobs.GetEndpoint(c.r.Context(), c.owner, id)
}

// managed is endpoint for operations that show how the endpoint works. On a shared endpoint
// only operators may use them, because they concern the jobs of all users
// (docs/decisions.md 13).
func (c *call) managed() (*serverless.Endpoint, error) {
	e, err := c.endpoint()
	if err == nil && e.Owner == "" && !c.id.Operator() {
		return nil, errShared
	}
	return e, err
}

var errShared = problem.New(problem.Forbidden, "the endpoint is shared: only an operator may do this")

func listEndpoints(c *call) error {
	list, err := ofOwner(c, c.Jobs.ListEndpoints, c.Jobs.ListAllEndpoints, func(e *serverless.Endpoint) place { return place{e.Created, e.ID} })
	if err != nil {
		return err
	}
	return writeList(c, "endpoints", list, ownerOf, c.endpointBody)
}

func createEndpoint(c *call) error {
	var r endpoints.CreateRequest
	if err := decode(c, &r, &r.Violations, (*object).createEndpoint); err != nil {
		return err
	}
	r.Idempotency = c.keyed
	e, err := c.Jobs.CreateEndpoint(c.r.Context(), c.owner, r)
	e, err = onceCreated(c, e, err, c.Jobs.GetEndpoint)
	if err != nil {
		return err
	}
	c.made = e.ID
	return writeJSON(c.w, http.StatusCreated, c.endpointBody(e))
}

func getEndpoint(c *call) error {
	e, err := c.endpoint()
	return writeRecord(c, e, err, c.endpointBody)
}

// updateEndpoint answers a change of a shared endpoint with 403, whatever the body: the
// caller has no permission.
func updateEndpoint(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	if e.Owner == "" {
		return serverless.ErrSharedEndpoint
	}
	var r endpoints.UpdateRequest
	if err := decode(c, &r, &r.Violations, (*object).updateEndpoint); err != nil {
		return err
	}
	e, err = c.Jobs.UpdateEndpoint(c.r.Context(), c.owner, e.ID, r)
	return writeRecord(c, e, err, c.endpointBody)
}

func deleteEndpoint(c *call) error {
	return c.noContent(c.Jobs.DeleteEndpoint(c.r.Context(), c.owner, c.r.PathValue("id")))
}
