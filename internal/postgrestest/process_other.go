//go:build !linux

package postgrestest

import (
	"context"
	"fmt"
	"os"
	"os/exec"
)

var immediate = os.Kill

type process struct{ exited chan struct{} }

func start(*exec.Cmd, string) (*process, error) { return nil, errMissing }

func (p *process) stop(os.Signal) {}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, name, args...)
}

func (s *Server) commandAt(ctx context.Context, path string, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, path, args...)
}

func ownDir() (string, error) { return "", fmt.Errorf("%w, on Linux", errMissing) }
