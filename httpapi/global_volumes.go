package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
)

func globalVolumeOperations() []operation {
	return group(APIControl, AreaVolumes,
		op("listGlobalVolumes", "GET /v2/global-volumes", ScopePodsRead, listGlobalVolumes, paginated),
		absent("createGlobalVolume", "POST /v2/global-volumes", ScopePodsWrite, noGlobalVolumes),
		absent("getGlobalVolume", "GET /v2/global-volumes/{id}", ScopePodsRead, errNoGlobalVolume),
		absent("updateGlobalVolume", "PATCH /v2/global-volumes/{id}", ScopePodsWrite, errNoGlobalVolume),
		absent("deleteGlobalVolume", "DELETE /v2/global-volumes/{id}", ScopePodsWrite, errNoGlobalVolume),
	)
}

func (b *describer) describeGlobalVolumes() map[string]description {
	volume := openapi.For[globalVolumeBody](&b.Builder)
	return map[string]description{
		"listGlobalVolumes": {summary: "List the caller's global volumes", text: "There are none here: the list is empty.", answers: ok(withPagination(b.list("globalVolumes", volume, false)))},
	}
}

// What the operations on global volumes answer: this service has none (docs/decisions.md 50).
var (
	noGlobalVolumes   = problem.New(problem.BadRequest, "Global volumes are not offered by this service: create a network volume.")
	errNoGlobalVolume = problem.New(problem.NotFound, "global volume not found")
)

// A globalVolumeBody is a volume that all data centers see.
type globalVolumeBody struct {
	ID        string   `json:"id"`
	Name      string   `json:"name"`
	CreatedAt wireTime `json:"createdAt"`
}

func listGlobalVolumes(c *call) error {
	if _, err := c.queryInt("limit", maxListPage, 1, maxListPage); err != nil {
		return err
	}
	if _, given := c.query("cursor"); given { // no page has one
		return errCursor
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Volumes    []globalVolumeBody `json:"globalVolumes"`
		Pagination pagination         `json:"pagination"`
	}{[]globalVolumeBody{}, c.pagination()})
}
