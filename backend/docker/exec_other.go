//go:build !linux

package docker

import (
	"context"

	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/problem"
)

func signalMarked(string, string, bool) bool { return false }

var errNoDial = problem.New(problem.NotImplemented, "ports of this pod are not forwarded: its network is not one of this server's machine")

func (p *pod) dial(context.Context, string, pods.Streams) error { return errNoDial }
