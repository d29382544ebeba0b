package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/internal/openapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

func reloadOperations() []operation {
	return group(APIControl, AreaAdmin,
		op("reload", "POST /v2/admin/reload", ScopeOperator, reload, added),
	)
}

func (b *describer) describeReload() map[string]description {
	return map[string]description{
		"reload": {summary: "Read the configuration of the server anew", answers: ok(openapi.For[ReloadReport](&b.Builder))},
	}
}

// A Program is the server around the handlers, for operators' requests that concern the
// whole server (docs/decisions.md 35). It is safe for concurrent use.
type Program interface {
	// Reload reads the configuration again and applies it. An error of kind problem.Invalid
	// says what is wrong with the configuration; then nothing has changed. The report is
	// nil if the program has no configuration to read.
	Reload(ctx context.Context) (*ReloadReport, error)
	// State returns the current state of the server.
	State() ProgramState
	// Cordon stops new work until another call ends it. With endpoints.Cordoned the server
	// is not ready. With endpoints.Drained its workers also get no jobs. A cordon does not
	// survive the server.
	Cordon(c endpoints.Cordon)
	// DrainHolders ends workers of endpoints after their current jobs. holders are the
	// holders of their reservations.
	DrainHolders(holders []string)
}

// A ProgramState is the state of a Program for its operators.
type ProgramState struct {
	Name    string
	Cordon  endpoints.Cordon
	Err     error  // why the server is not ready; nil: it is ready
	Warning string // what an operator should mend before the server is not ready any more; empty: nothing
	Since   time.Time
	Version string
	// Incidents are what is wrong, the most severe first.
	Incidents []incidents.Incident
	// Others are the other servers of the same stores, as they were some seconds ago.
	Others []OtherServer
}

// An OtherServer is a server of the same stores.
type OtherServer struct {
	Name    string
	Version string // empty: it has an earlier version that does not say
	State   string // active, cordoned, drained or lost
}

// A ReloadReport says what a reload of the configuration has changed.
type ReloadReport struct {
	// Changed are the fields whose new values are active.
	Changed []string `json:"changed"`
	// Restart are the fields that have new values in the file and need a restart.
	Restart []string `json:"restart"`
	// Endpoints are the endpoints of the configuration that have changed, by id.
	Endpoints ReloadedEndpoints `json:"endpoints"`
	// Warnings say what an operator may not expect: keys that still work.
	Warnings []string `json:"warnings"`
}

// ReloadedEndpoints are the ids of shared endpoints that a reload has changed.
type ReloadedEndpoints struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
}

var errNoReload = problem.New(problem.NotImplemented, "this program has no configuration that can be read anew")

// noMembers reads the body of an operation that takes no parameters: nothing, or an object
// without members.
func (c *call) noMembers() error {
	var faults problem.Violations
	o, err := c.optionalObject(&faults)
	if err != nil || o == nil {
		return err
	}
	o.unknown()
	return faults.Err(nil)
}

func reload(c *call) error {
	if c.program == nil {
		return errNoReload
	}
	if err := c.noMembers(); err != nil {
		return err
	}
	r, err := c.program.Reload(c.r.Context())
	switch {
	case err != nil:
		return err
	case r == nil:
		return errNoReload
	}
	return writeJSON(c.w, http.StatusOK, &ReloadReport{
		Changed: orEmpty(r.Changed), Restart: orEmpty(r.Restart),
		Endpoints: ReloadedEndpoints{orEmpty(r.Endpoints.Added), orEmpty(r.Endpoints.Changed), orEmpty(r.Endpoints.Removed)},
		Warnings:  orEmpty(r.Warnings),
	})
}
