package server

import (
	"context"

	"github.com/podyard/podyard/httpapi"
)

// A program is a Server as its operators see it.
type program struct {
	*Server

	reload func(context.Context) (*httpapi.ReloadReport, error) // may be nil
}

var _ httpapi.Program = program{}

// Reload implements httpapi.Program.
func (p program) Reload(ctx context.Context) (*httpapi.ReloadReport, error) {
	if p.reload == nil {
		return nil, nil
	}
	return p.reload(ctx)
}
