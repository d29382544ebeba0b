package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A cutQueue ends a request while it reads a job.
type cutQueue struct {
	serverless.JobQueue
	cut context.CancelFunc
}

func (q *cutQueue) Get(ctx context.Context, _ queue.Instant, _ serverless.Ref) (serverless.Job, error) {
	q.cut()
	<-ctx.Done()
	return serverless.Job{}, ctx.Err()
}

// Proxies repeat a 503 and not a 500, which would also have no line in the log.
func TestARequestThatTheEndOfTheServerCutsIsA503(t *testing.T) {
	bubble(t, func(w *testAPI) {
		jobs := &cutQueue{JobQueue: memory.NewJobs()}
		w.jobs = serverless.New(jobs, newEndpoints(w.t), nil)
		run(w.t, w.jobs.Run)
		h := httpapi.NewJobs(w.jobs, &w.options)
		ctx, cut := context.WithCancel(w.t.Context())
		jobs.cut = cut
		r := httptest.NewRequestWithContext(ctx, http.MethodGet, "/v2/idle/status/abc", nil)
		r.Header.Set("Authorization", "Bearer "+aliceKey)
		a := httptest.NewRecorder()
		if h.ServeHTTP(a, r); a.Code != http.StatusServiceUnavailable || a.Header().Get("Retry-After") == "" {
			w.t.Errorf("%d %v %s", a.Code, a.Header(), a.Body)
		}
	})
}
