package httpapi_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/podyard/podyard/httpapi"
)

// statusOf returns the answer of a handler to a request of alice.
func statusOf(t *testing.T, h http.Handler, method, url string) (status int, body string) {
	t.Helper()
	r := httptest.NewRequest(method, url, nil)
	r.Header.Set("Authorization", "Bearer "+aliceFree)
	rec := httptest.NewRecorder()
	h.ServeHTTP(rec, r)
	b, err := io.ReadAll(rec.Result().Body)
	if err != nil {
		t.Fatal(err)
	}
	return rec.Code, string(b)
}

func TestAreasServeTheirOwnPathsAndNoOthers(t *testing.T) {
	bubble(t, func(w *testAPI) {
		control := httpapi.NewControl(w.services, &w.options)
		jobs := httpapi.NewJobs(w.services.Jobs, &w.options)
		legacy := httpapi.NewLegacy(w.services.Pods, &w.options)
		for _, row := range []struct {
			method, path string
			want         [4]int // whole, control, jobs, legacy
		}{
			{"GET", "/v2/pods", [4]int{200, 200, 404, 404}},
			{"GET", "/v2/pods/x", [4]int{404, 404, 404, 404}},
			{"GET", "/v2/registries", [4]int{200, 200, 404, 404}},
			{"GET", "/v2/catalog/cpus", [4]int{200, 200, 404, 404}},
			{"GET", "/v2/echo/health", [4]int{200, 404, 200, 404}},
			{"GET", "/v2/echo/requests", [4]int{200, 404, 200, 404}},
			{"GET", "/lb/echo/x", [4]int{400, 404, 400, 404}},
			{"GET", "/v2/echo/run", [4]int{405, 404, 405, 404}},
			{"GET", "/v1/pods/x/reset", [4]int{405, 404, 404, 405}},
			{"POST", "/v1/pods", [4]int{404, 404, 404, 404}},
			{"GET", "/", [4]int{404, 404, 404, 404}},
			{"GET", "/v2", [4]int{404, 404, 404, 404}},
			{"GET", "/v1", [4]int{404, 404, 404, 404}},
		} {
			for i, h := range []http.Handler{w.handler, control, jobs, legacy} {
				if got, body := statusOf(t, h, row.method, row.path); got != row.want[i] {
					t.Errorf("%s %s on handler %d = %d %s, want %d", row.method, row.path, i, got, body, row.want[i])
				}
			}
		}
	})
}

func TestHandlersWorkBelowAPrefixOnHostsAndBesideOthers(t *testing.T) {
	bubble(t, func(w *testAPI) {
		mux := http.NewServeMux()
		mux.Handle("/cloud/", http.StripPrefix("/cloud", w.handler))
		mux.Handle("api.test/", httpapi.NewControl(w.services, &w.options))
		mux.Handle("jobs.test/", httpapi.NewJobs(w.services.Jobs, &w.options))
		mux.Handle("rest.test/v1/", httpapi.NewLegacy(w.services.Pods, &w.options))
		mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusTeapot) })
		for url, want := range map[string]int{
			"http://any.test/cloud/v2/pods":            200,
			"http://any.test/cloud/v2/echo/health":     200,
			"http://any.test/cloud/v2/pods/":           404,
			"http://any.test/cloud/":                   404,
			"http://any.test/healthz":                  418,
			"http://any.test/v2/pods":                  404,
			"http://api.test/v2/pods":                  200,
			"http://api.test/v2/echo/health":           404,
			"http://jobs.test/v2/echo/health":          200,
			"http://jobs.test/v2/pods":                 404,
			"http://rest.test/v1/pods/x/reset":         405,
			"http://rest.test/v1/pods/x":               404,
			"http://any.test/cloud/v2/pods/x/../../v2": 307, // the program's own mux redirects; the handlers do not
		} {
			if got, body := statusOf(t, mux, "GET", url); got != want {
				t.Errorf("GET %s = %d %s, want %d", url, got, body, want)
			}
		}
	})
}

func TestHandlersMadeApartShareTheQuotasTheyAreGiven(t *testing.T) {
	bubbleWith(t, quotas(2, 0, 0), func(w *testAPI) {
		control := httpapi.NewControl(w.services, &w.options)
		legacy := httpapi.NewLegacy(w.services.Pods, &w.options)
		whole := w.handler
		for i, row := range []struct {
			handler        http.Handler
			method, target string
			want           int
		}{
			{control, "GET", "/v2/pods", 200}, {legacy, "POST", "/v1/pods/x/reset", 404}, {whole, "GET", "/v2/pods", 429},
		} {
			w.handler = row.handler
			if got := w.call(row.method, row.target, "").status; got != row.want {
				t.Errorf("request %d = %d, want %d", i, got, row.want)
			}
		}
	})
}

func TestWithoutAuthEverythingIsRefused(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for name, h := range map[string]http.Handler{
			"nil options":  httpapi.New(w.services, nil),
			"zero options": httpapi.New(w.services, &httpapi.Options{}),
		} {
			w.handler = h
			for _, op := range operations {
				method, path := pathOf(op)
				for _, key := range []string{aliceKey, "Bearer " + aliceKey, "", "Bearer"} {
					if got := w.call(method, path, "", "Authorization: "+key).status; got != 401 {
						t.Errorf("with %s, %s with %q = %d, want 401", name, op, key, got)
					}
				}
			}
		}
	})
}

func TestServiceThatIsNotThereHasNoPaths(t *testing.T) {
	bubble(t, func(w *testAPI) {
		whole := w.services
		for _, op := range operations {
			method, path := pathOf(op)
			w.handler = httpapi.New(httpapi.Services{}, &w.options)
			if a := w.call(method, path, ""); a.status != 404 || a.faults(t) != "The requested path was not found." {
				t.Errorf("%s without services = %d %s, want 404", op, a.status, a.body)
			}
		}
		w.handler = httpapi.New(httpapi.Services{Pods: whole.Pods}, &w.options)
		w.want(200, "GET", "/v2/pods", "")
		w.want(404, "GET", "/v2/registries", "")
		w.want(404, "GET", "/v2/echo/health", "")
		w.handler = httpapi.NewJobs(nil, &w.options)
		w.want(404, "GET", "/v2/echo/health", "")
		w.handler = httpapi.NewLegacy(nil, &w.options)
		w.want(404, "POST", "/v1/pods/x/reset", "")
	})
}
