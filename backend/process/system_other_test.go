//go:build !linux

package process

import (
	"testing"

	"github.com/podyard/podyard/pods"
)

func wantNoProcesses(*testing.T, string) {}

func serverPods() []pods.Spec { return nil }
