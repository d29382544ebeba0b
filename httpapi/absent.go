package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/problem"
)

var (
	errNoClusters    = problem.New(problem.NotFound, "Clusters are not offered by this service.")
	errNoDelegations = problem.New(problem.NotFound, "Delegations of registries are not offered by this service.")
)

// clusterRoutes and delegationRoutes answer for parts of the interface that do not exist
// here: a path without a route would not tell them from a mistake.
func (x *area) clusterRoutes() {
	no := func(*call) error { return errNoClusters }
	x.handle("/v2/clusters", map[string]operation{
		http.MethodGet: {access: podsRead, do: no}, http.MethodPost: {access: podsWrite, do: no},
	})
	x.handle("/v2/clusters/{id}", map[string]operation{
		http.MethodGet: {access: podsRead, do: no}, http.MethodPatch: {access: podsWrite, do: no},
		http.MethodDelete: {access: podsWrite, do: no},
	})
	x.handle("/v2/clusters/{id}/pods", map[string]operation{http.MethodGet: {access: podsRead, do: no}})
}

func (x *area) delegationRoutes() {
	no := func(*call) error { return errNoDelegations }
	x.handle("/v2/registries/delegations", map[string]operation{
		http.MethodGet: {access: registriesRead, do: no}, http.MethodPost: {access: registriesWrite, do: no},
	})
	x.handle("/v2/registries/delegations/{id}", map[string]operation{http.MethodDelete: {access: registriesWrite, do: no}})
}
