//go:build !linux

package process

import (
	"os/exec"
	"testing"
)

func wantNoProcesses(*testing.T, string) {}

func runOnLinux(string, []string) bool { return false }

func insideCommand(string) func(args ...string) []string { return nil }

func apart(*exec.Cmd) {}
