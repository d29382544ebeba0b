package httpapi

import (
	"net/http"

	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
)

func buildOperations() []operation {
	return group(APIControl, AreaEndpoints,
		op("listEndpointBuilds", "GET /v2/serverless/{id}/builds", ScopeEndpointsRead, listBuilds, paginated),
		op("getEndpointBuild", "GET /v2/serverless/{id}/builds/{buildId}", ScopeEndpointsRead, getBuild),
	)
}

func (b *describer) describeBuilds() map[string]description {
	build := openapi.For[buildBody](&b.Builder)
	return map[string]description{
		"listEndpointBuilds": {summary: "List the builds of an endpoint's images", text: "Images are not built here: the list is empty.", answers: ok(withPagination(b.list("builds", build, false)))},
		"getEndpointBuild":   {summary: "Get a build", text: "There is none.", answers: ok(build)},
	}
}

// A buildBody is a build of an image from a repository.
type buildBody struct {
	ID     string `json:"id"`
	Status string `json:"status"`
}

// maxBuildPage is what the public API has.
const maxBuildPage = 100

var errNoBuild = problem.New(problem.NotFound, "build not found")

func listBuilds(c *call) error {
	if _, err := c.endpoint(); err != nil {
		return err
	}
	if _, err := c.queryInt("limit", maxBuildPage, 1, maxBuildPage); err != nil {
		return err
	}
	if _, given := c.query("cursor"); given { // no page has one
		return errCursor
	}
	return writeJSON(c.w, http.StatusOK, struct {
		Builds     []buildBody `json:"builds"`
		Pagination pagination  `json:"pagination"`
	}{[]buildBody{}, c.pagination()})
}

func getBuild(c *call) error {
	if _, err := c.endpoint(); err != nil {
		return err
	}
	return errNoBuild
}
