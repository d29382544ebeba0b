package httpapi_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// countedEndpoints counts reads of an endpoint.
type countedEndpoints struct {
	*memory.Endpoints
	reads atomic.Int32
}

func (s *countedEndpoints) Get(ctx context.Context, id string) (*serverless.Endpoint, error) {
	s.reads.Add(1)
	return s.Endpoints.Get(ctx, id)
}

// A slowBody arrives after d, and calls a function before.
type slowBody struct {
	d         time.Duration
	meanwhile func()
	text      io.Reader
}

func (b *slowBody) Read(p []byte) (int, error) {
	if b.d > 0 {
		time.Sleep(b.d)
		b.meanwhile()
		b.d = 0
	}
	return b.text.Read(p)
}

// A change of the endpoint while a body arrives applies to the job.
func TestASubmitReadsTheEndpointOnceUnlessItsBodyIsSlow(t *testing.T) {
	nothing := func(*countedEndpoints) {}
	for _, row := range []struct {
		path      string
		slow      time.Duration
		meanwhile func(*countedEndpoints)
		reads     int32
		status    int
	}{
		{"/v2/e/run", 0, nothing, 1, 200},
		{"/v2/e/runsync?wait=1000", 0, nothing, 1, 200},
		{"/v2/e/run", 5 * time.Millisecond, nothing, 1, 200},
		{"/v2/e/run", time.Second, nothing, 2, 200},
		{"/v2/e/run", time.Second, func(s *countedEndpoints) { _ = s.Delete(t.Context(), "e") }, 2, 404},
	} {
		synctest.Test(t, func(t *testing.T) {
			store := &countedEndpoints{Endpoints: memory.NewEndpoints()}
			if err := store.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
				t.Fatal(err)
			}
			keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "u", Scopes: []string{"*"}}}, time.Now)
			if err != nil {
				t.Fatal(err)
			}
			h := httpapi.NewJobs(serverless.New(memory.NewJobs(), store, nil), &httpapi.Options{Auth: keys})
			r := httptest.NewRequest(http.MethodPost, row.path, &slowBody{row.slow, func() { row.meanwhile(store) }, strings.NewReader(`{"input":{}}`)})
			r.Header.Set("Authorization", "k")
			rec := httptest.NewRecorder()
			h.ServeHTTP(rec, r)
			if got := store.reads.Load(); rec.Code != row.status || got != row.reads {
				t.Errorf("%s with a body after %v = %d %s with %d reads of the endpoint, want %d with %d", row.path, row.slow, rec.Code, rec.Body, got, row.status, row.reads)
			}
		})
	}
}
