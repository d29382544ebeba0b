package memory

import (
	"context"

	"github.com/podyard/podyard/serverless/serverlesstest"
)

var _ serverlesstest.ReadCounter = (*Jobs)(nil)

// Reads implements serverlesstest.ReadCounter.
func (q *Jobs) Reads(context.Context) (int64, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.x.Reads(), nil
}
