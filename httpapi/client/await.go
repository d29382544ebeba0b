package client

import (
	"context"
	"fmt"
	"slices"
	"time"
)

// pollInterval is how often a pod is asked for: quotas allow many times that.
const pollInterval = 2 * time.Second

// await gets a pod until it has one of the statuses.
func await(ctx context.Context, id string, statuses []string, get func(context.Context, string) (Pod, error)) (Pod, error) {
	for {
		p, err := get(ctx, id)
		if err != nil || slices.Contains(statuses, p.Status) {
			return p, err
		}
		if p.Status == "ERROR" || p.Status == "TERMINATED" {
			return p, fmt.Errorf("client: pod %s is %s", id, p.Status)
		}
		if err := sleep(ctx, pollInterval); err != nil {
			return p, err
		}
	}
}
