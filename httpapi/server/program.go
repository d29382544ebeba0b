package server

import (
	"context"
	"runtime/debug"

	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless/endpoints"
)

// DefaultName is the default of Options.Name.
const DefaultName = "server"

// A program is the interface of a Server to its operators.
type program struct{ *Server }

var _ httpapi.Program = program{}

// Program returns the interface for operators. The handlers of the server already use it.
func (s *Server) Program() httpapi.Program { return program{s} }

// Reload implements httpapi.Program.
func (p program) Reload(ctx context.Context) (*httpapi.ReloadReport, error) {
	if p.reload == nil {
		return nil, nil
	}
	return p.reload(ctx)
}

// State implements httpapi.Program.
func (p program) State() httpapi.ProgramState {
	s := httpapi.ProgramState{Name: p.name, Cordon: p.cordoned(), Err: p.ready(), Since: p.since, Version: p.version, Incidents: p.Incidents()}
	if p.stores.Warning != nil {
		s.Warning = p.stores.Warning()
	}
	if others := p.others.Load(); others != nil {
		s.Others = *others
	}
	return s
}

// Cordon implements httpapi.Program.
func (p program) Cordon(c endpoints.Cordon) {
	p.cordon.Store(&c)
	if p.joined != nil {
		p.joined.SetData(showing(p.name, p.version, c))
	}
	if p.services.Jobs != nil {
		p.services.Jobs.SetDraining(c == endpoints.Drained)
		p.services.Jobs.Resync()
	}
}

// DrainHolders implements httpapi.Program.
func (p program) DrainHolders(holders []string) {
	for _, h := range holders {
		if endpoint, id, ok := podfleet.Worker(h); ok && p.services.Jobs != nil {
			p.services.Jobs.ReplaceWorker(endpoint, id)
		}
	}
}

var errCordoned = problem.New(problem.Unavailable, "an operator has cordoned the server")

// cordoned returns the operator's setting.
func (s *Server) cordoned() endpoints.Cordon {
	if c := s.cordon.Load(); c != nil {
		return *c
	}
	return endpoints.NotCordoned
}

// moduleVersion returns the version of the program's module.
func moduleVersion() string {
	if b, ok := debug.ReadBuildInfo(); ok && b.Main.Version != "" {
		return b.Main.Version
	}
	return "(devel)"
}
