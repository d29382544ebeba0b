package httpapi

import (
	"net/http"
)

// control is the routes of the control API (section 4.1; decisions, row 15).
func (a *api) control() *area {
	x := a.area(flavor{counted: true})
	if a.Pods != nil {
		x.podRoutes()
		x.catalogRoutes()
		x.clusterRoutes()
	}
	if a.Registries != nil {
		x.registryRoutes()
		x.delegationRoutes()
	}
	if a.Jobs != nil {
		x.endpointRoutes()
	}
	if a.Volumes != nil {
		x.volumeRoutes()
	}
	if a.Templates != nil {
		x.templateRoutes()
	}
	if a.SSHKeys != nil {
		x.sshKeyRoutes()
	}
	if a.Billing != nil && a.Pods != nil {
		x.billingRoutes()
	}
	return x
}

// legacy is the route of reset: the rest of v1 is gone.
func (a *api) legacy() *area {
	x := a.area(flavor{counted: true})
	if a.Pods != nil {
		x.handle("/v1/pods/{podId}/reset", map[string]operation{
			http.MethodPost: {access: podsWrite, do: resetPod},
		})
	}
	return x
}

var (
	podsRead        = permission("pods", Read)
	podsWrite       = permission("pods", Write)
	registriesRead  = permission("registries", Read)
	registriesWrite = permission("registries", Write)
	endpointsRead   = permission("endpoints", Read)
	endpointsWrite  = permission("endpoints", Write)
)

func resetPod(c *call) error {
	p, err := c.Pods.Reset(c.r.Context(), c.id.User, c.r.PathValue("podId"))
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, c.pod(p))
}
