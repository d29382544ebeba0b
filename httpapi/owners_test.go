package httpapi_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"path"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
)

func TestWhoDoesTheWorkOfAWorker(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		private := w.want(http.StatusCreated, "POST", "/v2/serverless", cpuEndpoint, as(alicesEndpoints)).field("id")
		own := w.jobs.WorkerKey("idle", "w1")
		for _, row := range []struct {
			worker string // endpoint and id
			may    map[string]int
		}{
			{"idle/w1", map[string]int{alicesEndpoints: 403, bobsEndpoints: 403, operatorFree: 200, bobsWork: 200, own: 200, readsEndpoints: 403, aliceFree: 403}},
			{private + "/w1", map[string]int{alicesEndpoints: 200, bobsEndpoints: 404, operatorFree: 200, bobsWork: 403, own: 403, readsEndpoints: 403}},
			{"echo/w1", map[string]int{alicesEndpoints: 403, operatorFree: 200, bobsWork: 403, own: 403}},
			{"nowhere/w1", map[string]int{alicesEndpoints: 404, operatorFree: 404, bobsWork: 403, own: 403}},
			// Workers of the server's process: one that runs, and a reserved id.
			{"echo/worker-1", map[string]int{alicesEndpoints: 403, operatorFree: 403, w.jobs.WorkerKey("echo", "worker-1"): 403}},
			{"idle/local-idle", map[string]int{alicesEndpoints: 403, operatorFree: 403, bobsWork: 403}},
			{private + "/local-1", map[string]int{alicesEndpoints: 403, bobsEndpoints: 404, operatorFree: 403}},
		} {
			endpoint, id, _ := strings.Cut(row.worker, "/")
			for key, want := range row.may {
				for _, request := range []string{"GET ping/" + id, "GET ping/" + id + "?status=unhealthy", "POST job-done/" + id + "/j", "POST job-stream/" + id + "/j"} {
					method, what, _ := strings.Cut(request, " ")
					if a := w.call(method, "/v2/"+endpoint+"/"+what, `{"output":1}`, "Authorization: "+key); a.status != want {
						t.Errorf("%s of %s with %s = %d %s, want %d", request, row.worker, key, a.status, a.body, want)
					}
				}
			}
		}
		w.want(http.StatusOK, "POST", "/v2/echo/runsync", `{"input":{}}`) // its worker still takes jobs
	})
}

func TestASharedEndpointShowsAndEndsTheCallersOwnJobsOnly(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		all := map[string]string{alicesEndpoints: "", bobsEndpoints: "", operatorFree: ""}
		for key := range all {
			all[key] = w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},"webhook":"http://example.com/"}`, as(key)).field("id")
		}
		for key, own := range all {
			list := w.want(http.StatusOK, "GET", "/v2/idle/requests?full=true", "", as(key)).body
			for _, job := range all {
				if got, want := strings.Contains(list, job), job == own; got != want {
					t.Errorf("the requests of %s have %s: %v, want %v", key, job, got, want)
				}
			}
			if !strings.Contains(list, `"total":1,`) {
				t.Errorf("the requests of %s tell of others: %s", key, list)
			}
		}
		w.want(http.StatusNotFound, "GET", "/v2/serverless/idle/decisions?jobId="+all[bobsEndpoints], "", as(alicesEndpoints))
		w.want(http.StatusNotFound, "GET", "/v2/serverless/idle/deliveries/"+all[bobsEndpoints], "", as(alicesEndpoints))
		if got := w.want(http.StatusOK, "POST", "/v2/idle/purge-queue", "", as(alicesEndpoints)).body; got != `{"removed":1,"status":"completed"}` {
			t.Errorf("a purge with endpoints:write = %s, want one job removed: the caller's", got)
		}
	})
}

func TestTheOwnerOfAPrivateEndpointSeesAndEndsAllItsJobs(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		id := w.want(http.StatusCreated, "POST", "/v2/serverless", cpuEndpoint, as(alicesEndpoints)).field("id")
		if _, err := w.jobs.Submit(w.t.Context(), "bob", "idle", serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		at := "/v2/" + id
		w.want(http.StatusOK, "POST", at+"/run", `{"input":{}}`, as(alicesEndpoints))
		if list := w.want(http.StatusOK, "GET", at+"/requests", "", as(alicesEndpoints)).body; !strings.Contains(list, `"total":1,`) {
			t.Errorf("the requests of the owner are %s, want the one job", list)
		}
		for _, list := range []string{"/workers", "/decisions"} {
			w.want(http.StatusOK, "GET", "/v2/serverless/"+id+list, "", as(alicesEndpoints))
			w.want(http.StatusNotFound, "GET", "/v2/serverless/"+id+list, "", as(bobsEndpoints))
		}
		if got := w.want(http.StatusOK, "POST", at+"/purge-queue", "", as(alicesEndpoints)).body; got != `{"removed":1,"status":"completed"}` {
			t.Errorf("a purge by the owner = %s, want the job removed", got)
		}
	})
}

func TestARefusedWorkerIsAnsweredAfterFiveSeconds(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		for _, row := range []struct {
			path, key string
			status    int
			held      time.Duration
		}{
			{"job-take/w1", "nobody", 401, 5 * time.Second},
			{"job-take/w1", "", 401, 5 * time.Second},
			{"job-take/w1", alicesEndpoints, 403, 5 * time.Second},
			{"job-take-batch/w1", alicesEndpoints, 403, 5 * time.Second},
			{"job-take-batch/w1", "nobody", 401, 5 * time.Second},
			{"job-take/local-idle", operatorFree, 403, 5 * time.Second},
			{"../nowhere/job-take/w1", operatorFree, 404, 5 * time.Second},
			{"job-take/w1", bobsWork, 204, 25 * time.Second},
			{"ping/w1", "nobody", 401, 0},
			{"ping/w1", alicesEndpoints, 403, 0},
			{"job-stop/w1", alicesEndpoints, 403, 0},
		} {
			began := time.Now()
			a := w.call("GET", path.Join("/v2/idle", row.path), "", "Authorization: "+row.key)
			if held := time.Since(began); a.status != row.status || held != row.held {
				t.Errorf("%s with %q = %d after %v, want %d after %v", row.path, row.key, a.status, held, row.status, row.held)
			}
		}
	})
}

// closedAuth is an Authenticator that cannot check keys.
type closedAuth struct{}

func (closedAuth) Authenticate(context.Context, string) (httpapi.Identity, error) {
	return httpapi.Identity{}, problem.New(problem.Unavailable, "closed for now")
}

func TestAWorkerThatCannotBeServedNowIsAnsweredAfterFiveSeconds(t *testing.T) {
	bubbleWith(t, func(o *httpapi.Options) { o.Auth = closedAuth{} }, func(w *testAPI) {
		for op, want := range map[string]time.Duration{"job-take": 5 * time.Second, "ping": 0} {
			began := time.Now()
			a := w.call("GET", "/v2/idle/"+op+"/w1", "")
			if held := time.Since(began); a.status != 503 || held != want {
				t.Errorf("%s = %d after %v, want 503 after %v", op, a.status, held, want)
			}
		}
	})
}

func TestTheWaitOfARefusedWorkerEndsWhenItGoes(t *testing.T) {
	bubble(t, func(w *testAPI) {
		ctx, leave := context.WithTimeout(w.t.Context(), time.Second)
		defer leave()
		began := time.Now()
		w.handler.ServeHTTP(httptest.NewRecorder(), w.request(ctx, "GET", "/v2/idle/job-take/w1", "", "Authorization: nobody"))
		if held := time.Since(began); held != time.Second {
			t.Errorf("a worker that went after 1 s was held for %v", held)
		}
	})
}
