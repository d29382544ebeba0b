package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/serverless"
)

func (x *area) endpointRoutes() {
	x.handle("/v2/serverless", map[string]operation{
		http.MethodGet:  {access: endpointsRead, do: listEndpoints},
		http.MethodPost: {access: endpointsWrite, do: createEndpoint},
	})
	x.handle("/v2/serverless/{id}", map[string]operation{
		http.MethodGet:    {access: endpointsRead, do: getEndpoint},
		http.MethodPatch:  {access: endpointsWrite, do: updateEndpoint},
		http.MethodDelete: {access: endpointsWrite, do: deleteEndpoint},
	})
	x.handle("/v2/serverless/{id}/releases", map[string]operation{
		http.MethodGet: {access: endpointsRead, do: listReleases},
	})
	x.handle("/v2/serverless/{id}/workers", map[string]operation{
		http.MethodGet: {access: endpointsRead, do: listWorkers},
	})
	x.handle("/v2/serverless/{id}/workers/{worker}/logs", map[string]operation{
		http.MethodGet: {access: endpointsRead, do: workerLogs},
	})
	x.handle("/v2/serverless/{id}/decisions", map[string]operation{
		http.MethodGet: {access: endpointsRead, do: listDecisions},
	})
	x.handle("/v2/serverless/{id}/deliveries/{job}", map[string]operation{
		http.MethodGet: {access: endpointsRead, do: listDeliveries},
	})
	x.handle("/v2/serverless/{id}/deliveries/{job}/redeliver", map[string]operation{
		http.MethodPost: {access: endpointsWrite, do: redeliver},
	})
}

// endpoint is the one that the path names, if the caller may see it. It is asked for
// before a body or a query is read: existence comes first.
func (c *call) endpoint() (*serverless.Endpoint, error) {
	return c.Jobs.GetEndpoint(c.r.Context(), c.id.User, c.r.PathValue("id"))
}

func listEndpoints(c *call) error {
	list, err := c.Jobs.ListEndpoints(c.r.Context(), c.id.User)
	if err != nil {
		return err
	}
	body := struct {
		Endpoints []endpointBody `json:"endpoints"`
	}{make([]endpointBody, 0, len(list))}
	for _, e := range list {
		body.Endpoints = append(body.Endpoints, c.endpointBody(e))
	}
	return writeJSON(c.w, http.StatusOK, body)
}

func createEndpoint(c *call) error {
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := DecodeEndpoint(body)
	if err != nil {
		return err
	}
	e, err := c.Jobs.CreateEndpoint(c.r.Context(), c.id.User, r)
	if err != nil {
		return err
	}
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
	body, err := c.jsonBody()
	if err != nil {
		return err
	}
	r, err := decodeUpdateEndpoint(body)
	if err != nil {
		return err
	}
	e, err = c.Jobs.UpdateEndpoint(c.r.Context(), c.id.User, e.ID, r)
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.endpointBody(e))
}

func deleteEndpoint(c *call) error {
	if err := c.Jobs.DeleteEndpoint(c.r.Context(), c.id.User, c.r.PathValue("id")); err != nil {
		return err
	}
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}
