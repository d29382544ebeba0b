package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

// endpoint is the one that the path names, if the caller may see it. It is asked for
// before a body or a query is read: existence comes first.
func (c *call) endpoint() (*serverless.Endpoint, error) {
	return c.Jobs.GetEndpoint(c.r.Context(), c.owner, c.r.PathValue("id"))
}

// managed is the endpoint that the path names, for what shows how it works. Of a shared
// endpoint only operators see that: it concerns the jobs of everybody (docs/decisions.md 13).
func (c *call) managed() (*serverless.Endpoint, error) {
	e, err := c.endpoint()
	if err == nil && e.Owner == "" && !c.id.Operator() {
		return nil, errShared
	}
	return e, err
}

var errShared = problem.New(problem.Forbidden, "the endpoint is shared: only an operator may do this")

func listEndpoints(c *call) error {
	list, err := ofOwner(c, c.Jobs.ListEndpoints, c.Jobs.ListAllEndpoints)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Endpoints any `json:"endpoints"`
	}{items(c, list, ownerOf, c.endpointBody)})
}

func createEndpoint(c *call) error {
	r, err := decoded(c, DecodeEndpoint)
	if err != nil {
		return err
	}
	e, err := c.Jobs.CreateEndpoint(c.r.Context(), c.owner, r)
	if err != nil {
		return err
	}
	c.made = e.ID
	return writeJSON(c.w, http.StatusCreated, c.endpointBody(e))
}

func getEndpoint(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.endpointBody(e))
}

// updateEndpoint answers a change of a shared endpoint with 403 whatever the body is: it
// is the caller who may not.
func updateEndpoint(c *call) error {
	e, err := c.endpoint()
	if err != nil {
		return err
	}
	if e.Owner == "" {
		return serverless.ErrSharedEndpoint
	}
	r, err := decoded(c, decodeUpdateEndpoint)
	if err != nil {
		return err
	}
	e, err = c.Jobs.UpdateEndpoint(c.r.Context(), c.owner, e.ID, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.endpointBody(e))
}

func deleteEndpoint(c *call) error {
	return c.noContent(c.Jobs.DeleteEndpoint(c.r.Context(), c.owner, c.r.PathValue("id")))
}
