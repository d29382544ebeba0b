package double

import (
	"context"
	"fmt"
	"net/http"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// HandleHTTP makes a handler in this process the worker of a load-balancing endpoint, which is
// made if there is none. Requests to /lb/{endpoint}/... get to h without that prefix. The clock
// does not wait for them.
func (s *Server) HandleHTTP(ctx context.Context, endpoint string, h http.Handler) error {
	return s.serve(ctx, &localWorker{endpoint: endpoint, requests: h})
}

// joinBalanced is join for a load-balancing endpoint.
func (w *instance) joinBalanced(ctx context.Context, l *localWorker) error {
	if err := w.services.Jobs.EnsureBalanced(ctx, l.endpoint); err != nil {
		return fmt.Errorf("double: endpoint %q: %w", l.endpoint, err)
	}
	h := http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if w.faults.of(FaultBalancedWorker, l.endpoint) != nil {
			panic(http.ErrAbortHandler)
		}
		l.requests.ServeHTTP(out, r)
	})
	w.start(func(ctx context.Context) {
		// The clock stands still, so a drain would never end.
		_ = httpapi.ServeHTTP(ctx, w.services.Jobs, l.endpoint, h, &serverless.ServeOptions{ID: workerID(l.endpoint, 1), Drain: -1})
	})
	return nil
}
