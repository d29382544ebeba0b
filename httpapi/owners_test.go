package httpapi_test

import (
	"net/http"
	"strings"
	"testing"

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
			// Workers of the server's own process: one that runs, and an id that is kept for one.
			{"echo/worker-1", map[string]int{alicesEndpoints: 403, operatorFree: 403, w.jobs.WorkerKey("echo", "worker-1"): 403}},
			{"idle/local-idle", map[string]int{alicesEndpoints: 403, operatorFree: 403, bobsWork: 403}},
			{private + "/local-1", map[string]int{alicesEndpoints: 403, bobsEndpoints: 404, operatorFree: 403}},
		} {
			endpoint, id, _ := strings.Cut(row.worker, "/")
			for key, want := range row.may {
				for _, request := range []string{"GET ping/" + id, "GET ping/" + id + "?status=unhealthy", "POST job-done/" + id + "/j", "POST job-stream/" + id + "/j"} {
					method, path, _ := strings.Cut(request, " ")
					if a := w.call(method, "/v2/"+endpoint+"/"+path, `{"output":1}`, "Authorization: "+key); a.status != want {
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
		if _, err := w.jobs.Submit(t.Context(), "bob", "idle", serverless.Request{Input: []byte(`{}`)}); err != nil {
			t.Fatal(err)
		}
		at := "/v2/" + id
		w.want(http.StatusOK, "POST", at+"/run", `{"input":{}}`, as(alicesEndpoints))
		if list := w.want(http.StatusOK, "GET", at+"/requests", "", as(alicesEndpoints)).body; !strings.Contains(list, `"total":1,`) {
			t.Errorf("the requests of the owner are %s, want the one job", list)
		}
		for _, path := range []string{"/workers", "/decisions"} {
			w.want(http.StatusOK, "GET", "/v2/serverless/"+id+path, "", as(alicesEndpoints))
			w.want(http.StatusNotFound, "GET", "/v2/serverless/"+id+path, "", as(bobsEndpoints))
		}
		if got := w.want(http.StatusOK, "POST", at+"/purge-queue", "", as(alicesEndpoints)).body; got != `{"removed":1,"status":"completed"}` {
			t.Errorf("a purge by the owner = %s, want the job removed", got)
		}
	})
}
