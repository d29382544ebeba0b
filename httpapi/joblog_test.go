package httpapi_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless"
)

func TestWhatAJobPrintsIsReadWithIt(t *testing.T) {
	bubble(t, func(w *testAPI) {
		worker := serverless.WorkerFunc(func(_ context.Context, task *serverless.Task) ([]byte, error) {
			task.Log("step 1\x1b[2J")
			time.Sleep(time.Second)
			task.Log("step 2")
			return []byte(`1`), nil
		})
		run(w.t, func(ctx context.Context) error { return w.jobs.Serve(ctx, "idle", worker, nil) })
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{}}`).field("id")
		time.Sleep(100 * time.Millisecond)
		if got := w.want(http.StatusOK, "GET", "/v2/idle/log/"+id, "").body; strings.Count(got, `"message"`) != 1 {
			t.Errorf("while the job runs its log is %s, want its first line", got)
		}
		time.Sleep(3 * time.Second)
		const want = `","lines":[{"time":"2000-01-01T00:00:00.000Z","level":"INFO","message":"step 1\u001b[2J"},{"time":"2000-01-01T00:00:01.000Z","level":"INFO","message":"step 2"}],"dropped":0}`
		if got := w.want(http.StatusOK, "GET", "/v2/idle/log/"+id, "").body; got != `{"id":"`+id+want {
			t.Errorf("the log is\n%s\nwant\n%s", got, `{"id":"`+id+want)
		}
		w.want(http.StatusNotFound, "GET", "/v2/idle/log/"+id, "", "Authorization: Bearer "+bobKey)
	})
}
