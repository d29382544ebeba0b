package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

// ask makes a request of a handler and prints the answer.
func ask(h http.Handler, method, path, key, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
}

// examplePods is a service with made-up hosts.
func examplePods() *pods.Service {
	cat := catalog.Sample()
	s, err := pods.New(memory.NewPods(), cat, pods.Hosts(cat, memory.NewRuntime(nil)), nil)
	if err != nil {
		panic(err) // the sample fits together
	}
	return s
}

func exampleJobs() *serverless.Service {
	endpoints := memory.NewEndpoints()
	if err := endpoints.Create(context.Background(), &serverless.Endpoint{ID: "upper", Name: "upper"}); err != nil {
		panic(err)
	}
	return serverless.New(memory.NewJobs(), endpoints, nil)
}

func exampleKeys() httpapi.Authenticator {
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "secret", User: "alice", Scopes: []string{"*"}}}, time.Now)
	if err != nil {
		panic(err)
	}
	return keys
}

// The whole interface, to be served below / or, with http.StripPrefix, anywhere.
func ExampleNew() {
	h := httpapi.New(httpapi.Services{
		Pods:       examplePods(),
		Registries: registries.New(memory.NewRegistries(), nil),
		Jobs:       exampleJobs(),
	}, &httpapi.Options{Auth: exampleKeys()})

	ask(h, "GET", "/v2/registries", "Bearer secret", "")
	ask(h, "GET", "/v2/pods", "Bearer wrong", "")
	ask(h, "POST", "/v1/pods/none/reset", "Bearer secret", "")
	// Output:
	// 200 {"registries":[]}
	// 401 {"title":"Unauthorized","status":401,"detail":"invalid or expired token"}
	// 404 {"title":"Not Found","status":404,"detail":"pod not found"}
}

// One area on an address of its own, as the interface has it.
func ExampleNewControl() {
	h := httpapi.NewControl(httpapi.Services{Pods: examplePods()}, &httpapi.Options{Auth: exampleKeys()})

	ask(h, "POST", "/v2/pods", "Bearer secret", `{"name":"p","image":"i","colour":"red"}`)
	ask(h, "GET", "/v2/catalog/cpus/cpu3c", "Bearer secret", "")
	ask(h, "GET", "/v2/registries", "Bearer secret", "") // there are none here
	// Output:
	// 422 {"title":"Unprocessable Content","status":422,"detail":"Request validation failed.","errors":["/colour: unknown property"]}
	// 200 {"id":"cpu3c","name":"Compute-Optimized","group":"Gen 3","vcpu":{"min":2,"max":32},"ramGbPerVcpu":2,"price":{"securePerVcpu":0.03,"serverlessPerVcpu":0.02}}
	// 404 {"title":"Not Found","status":404,"detail":"The requested path was not found."}
}

// Jobs alone, with a worker in the same process.
func ExampleNewJobs() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	jobs := exampleJobs()
	go jobs.Run(ctx)
	go jobs.Serve(ctx, "upper", serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) {
		return []byte(strings.ToUpper(string(t.Input))), nil
	}), nil)
	h := httpapi.NewJobs(jobs, &httpapi.Options{Auth: exampleKeys()})

	r := httptest.NewRequest(http.MethodPost, "/v2/upper/runsync", strings.NewReader(`{"input":{"a":"b"}}`))
	r.Header.Set("Authorization", "secret") // the scheme may be left out here
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, strings.Contains(w.Body.String(), `"output":{"A":"B"},"status":"COMPLETED"`))
	// Output: 200 true
}

// Reset alone.
func ExampleNewLegacy() {
	mux := http.NewServeMux()
	mux.Handle("rest.example.com/v1/", httpapi.NewLegacy(examplePods(), &httpapi.Options{Auth: exampleKeys()}))

	ask(mux, "POST", "http://rest.example.com/v1/pods/none/reset", "Bearer secret", "")
	// Output: 404 {"title":"Not Found","status":404,"detail":"pod not found"}
}

// Middleware of a program's own answers like the handlers.
func ExampleWriteProblem() {
	closed := problem.New(problem.Unavailable, "closed on Sundays")
	h := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { httpapi.WriteProblem(w, closed) })

	ask(h, "GET", "/", "", "")
	// Output: 503 {"title":"Service Unavailable","status":503,"detail":"closed on Sundays"}
}

func ExampleParseScope() {
	p, err := httpapi.ParseScope("endpoint:*:run")
	fmt.Println(p.Area, p.Endpoint, p.Level == httpapi.Run, err)
	_, err = httpapi.ParseScope("pods:delete")
	fmt.Println(err)
	// Output:
	// endpoint * true <nil>
	// httpapi: unknown scope "pods:delete": must be *, read or write of pods, registries or endpoints (pods:read), or endpoint:ID:run, endpoint:ID:read
}
