package fleet

import (
	"slices"
	"time"

	"github.com/podyard/podyard/serverless/queue"
)

// A ColdStart is how long a worker took to start.
type ColdStart struct {
	At   queue.Instant // when the scaler saw that the worker had asked for its first job
	Took time.Duration // since the worker was decided
}

// MaxColdStarts is how many cold starts are kept of an endpoint.
const MaxColdStarts = 50

func (q *endpointWorkers) addColdStart(c ColdStart) {
	if len(q.cold) == MaxColdStarts {
		q.cold = slices.Delete(q.cold, 0, 1)
	}
	q.cold = append(q.cold, c)
}
