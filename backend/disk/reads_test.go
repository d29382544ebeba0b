package disk

import (
	"context"

	"github.com/podyard/podyard/serverless/serverlesstest"
)

var _ serverlesstest.ReadCounter = (*Jobs)(nil)

// Reads implements serverlesstest.ReadCounter: jobs in the index, and blocks of tables.
func (q *Jobs) Reads(context.Context) (int64, error) {
	e, err := q.s.engine()
	if err != nil {
		return 0, err
	}
	blocks := e.db.Metrics().BlockCache
	e.jobs.mu.Lock()
	defer e.jobs.mu.Unlock()
	return e.jobs.x.Reads() + blocks.Hits + blocks.Misses, nil
}
