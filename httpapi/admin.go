package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// A Program is the server around the handlers, for the acts of an operator that concern it
// as a whole (docs/decisions.md 35). It is safe for concurrent use.
type Program interface {
	// Reload reads the configuration anew and puts it into force. An error of kind
	// problem.Invalid says what is wrong with the configuration; then nothing was
	// changed. The report is nil where the program has no configuration to read.
	Reload(ctx context.Context) (*ReloadReport, error)
	// State says how the server is.
	State() ProgramState
	// Cordon has the server take no new work until it is taken back: with endpoints.Cordoned it
	// is not ready, with endpoints.Drained its workers get no jobs either. It ends with the
	// server.
	Cordon(c endpoints.Cordon)
	// DrainHolders has workers of endpoints end after their jobs, by the holders of their
	// reservations.
	DrainHolders(holders []string)
}

// A ProgramState is a Program as its operators see it.
type ProgramState struct {
	Name    string
	Cordon  endpoints.Cordon
	Err     error // why the server is not ready; nil: it is
	Since   time.Time
	Version string
}

// A ReloadReport says what a reload of the configuration has changed.
type ReloadReport struct {
	// Changed are the fields whose new values are in force.
	Changed []string `json:"changed"`
	// Restart are the fields that have other values in the file and need a restart.
	Restart []string `json:"restart"`
	// Endpoints are those of the configuration that were changed, by id.
	Endpoints ReloadedEndpoints `json:"endpoints"`
}

// ReloadedEndpoints are the ids of shared endpoints that a reload has changed.
type ReloadedEndpoints struct {
	Added   []string `json:"added"`
	Changed []string `json:"changed"`
	Removed []string `json:"removed"`
}

var errNoReload = problem.New(problem.NotImplemented, "this program has no configuration that can be read anew")

func reload(c *call) error {
	if c.program == nil {
		return errNoReload
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
	})
}
