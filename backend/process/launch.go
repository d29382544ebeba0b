package process

import (
	"context"

	"github.com/podyard/podyard/backend/process/internal/supervise"
)

// LaunchPod makes this process the supervisor of a pod, or the pod itself. The main function of a
// program that was started with the arguments of Isolation.Launch calls it before anything else,
// and exits when it returns. Its error has been reported to the server already.
func LaunchPod() error { return supervise.LaunchPod() }

// RemoveAll removes the directory of a Runtime that is closed, with whatever pods have made in it,
// and ends with ctx at the latest.
func RemoveAll(ctx context.Context, dir string) error { return supervise.RemoveAll(ctx, dir) }
