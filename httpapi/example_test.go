package httpapi_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
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

// ask sends a request to a handler and prints the answer.
func ask(h http.Handler, method, path, key, body string) {
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	r.Header.Set("Authorization", key)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	fmt.Println(w.Code, w.Body)
}

// examplePods returns a service with made-up hosts.
func examplePods() *pods.Service {
	cat := catalog.Sample()
	s, err := pods.New(memory.NewPods(), cat, pods.SimulatedHosts(cat, memory.NewRuntime(nil)), nil)
	if err != nil {
		panic(err) // the sample data is consistent
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
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "secret", User: "alice", Scopes: []string{"*", "endpoint:upper:work"}}}, time.Now)
	if err != nil {
		panic(err)
	}
	return keys
}

// Serve the whole interface at / or, with http.StripPrefix, below any path.
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

// Serve one part of the interface at its own address.
func ExampleNewControl() {
	h := httpapi.NewControl(httpapi.Services{Pods: examplePods()}, &httpapi.Options{Auth: exampleKeys()})

	ask(h, "POST", "/v2/pods", "Bearer secret", `{"name":"p","image":"i","colour":"red"}`)
	ask(h, "GET", "/v2/catalog/cpus/cpu3c", "Bearer secret", "")
	ask(h, "GET", "/v2/registries", "Bearer secret", "") // the control API alone does not serve registries here
	// Output:
	// 422 {"title":"Unprocessable Entity","status":422,"detail":"Request validation failed.","errors":["/colour: unknown property"]}
	// 200 {"id":"cpu3c","name":"Compute-Optimized","group":"Gen 3","vcpu":{"min":2,"max":32},"ramGbPerVcpu":2,"price":{"securePerVcpu":0.03,"serverlessPerVcpu":0.02}}
	// 404 {"title":"Not Found","status":404,"detail":"The requested path was not found."}
}

// Serve only jobs, with a worker in the same process.
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

// Serve the whole interface below a prefix, next to a program's other routes.
func ExampleNew_belowAPrefix() {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "fine") })
	mux.Handle("/cloud/", http.StripPrefix("/cloud", httpapi.New(httpapi.Services{Jobs: exampleJobs()}, &httpapi.Options{
		Auth:      exampleKeys(),
		PublicURL: "https://example.com/cloud", // the start of an endpoint's requestUrls
	})))

	ask(mux, "GET", "/healthz", "", "")
	ask(mux, "GET", "/cloud/v2/upper/health", "Bearer secret", "")
	// Output:
	// 200 fine
	// 200 {"jobs":{"completed":0,"failed":0,"inProgress":0,"inQueue":0,"retried":0},"workers":{"idle":0,"initializing":0,"ready":0,"running":0,"throttled":0,"unhealthy":0}}
}

// sessions maps session tokens to the users of a program.
type sessions map[string]string

func (s sessions) Authenticate(_ context.Context, key string) (httpapi.Identity, error) {
	user, ok := s[key]
	if !ok {
		return httpapi.Identity{}, httpapi.ErrKey
	}
	everything, err := httpapi.ParseScope("*")
	return httpapi.Identity{User: user, Scopes: []httpapi.Permission{everything}}, err
}

// A program with its own users decides who a caller is and what the caller may do.
func ExampleAuthenticator() {
	h := httpapi.NewControl(httpapi.Services{Pods: examplePods()}, &httpapi.Options{Auth: sessions{"token-1": "alice"}})

	ask(h, "GET", "/v2/pods", "Bearer token-1", "")
	ask(h, "GET", "/v2/pods", "Bearer token-2", "")
	// Output:
	// 200 {"pods":[],"pagination":{"nextCursor":null,"hasNextPage":false}}
	// 401 {"title":"Unauthorized","status":401,"detail":"invalid or expired token"}
}

// Use a fixed set of keys. Only digests are kept, and a key can be given as a digest.
func ExampleNewKeys() {
	digest := sha256.Sum256([]byte("key-of-bob"))
	keys, err := httpapi.NewKeys([]httpapi.Key{
		{Secret: "key-of-alice", User: "alice", Scopes: []string{"*"}},
		{Secret: "sha256:" + hex.EncodeToString(digest[:]), User: "bob", Scopes: []string{"pods:read"}},
	}, time.Now)
	if err != nil {
		panic(err)
	}
	h := httpapi.NewControl(httpapi.Services{Pods: examplePods()}, &httpapi.Options{Auth: keys})

	ask(h, "GET", "/v2/pods", "Bearer key-of-bob", "")
	ask(h, "POST", "/v2/pods", "Bearer key-of-bob", "{}")
	// Output:
	// 200 {"pods":[],"pagination":{"nextCursor":null,"hasNextPage":false}}
	// 403 {"title":"Forbidden","status":403,"detail":"access denied"}
}

// List operations with the scope that each needs.
func ExampleOperations() {
	for _, o := range httpapi.Operations() {
		if o.Scope == httpapi.ScopeRegistriesWrite && o.NotOffered == "" {
			fmt.Println(o.Name, o.Methods, o.Path)
		}
	}
	// Output:
	// createRegistry [POST] /v2/registries
	// deleteRegistry [DELETE] /v2/registries/{id}
}

// Middleware can find the operation of a request before the handler runs.
func ExampleOperationTable_Find() {
	table := httpapi.Operations()
	u, err := url.Parse("/v2/upper/status/7?ttl=60000")
	if err != nil {
		panic(err)
	}
	o, values := table.Find("GET", u)
	fmt.Println(o.Name, values["endpoint"], values["job"], o.Scope)
	// Output: status upper 7 endpoint:{endpoint}:read
}

// Serve only the worker protocol, at an address that only workers reach.
func ExampleNewWorkers() {
	h := httpapi.NewWorkers(exampleJobs(), &httpapi.Options{Auth: exampleKeys()})

	ask(h, "GET", "/v2/upper/ping/worker-1", "secret", "")
	ask(h, "GET", "/v2/upper/health", "secret", "")
	// Output:
	// 200 {"accepted":true}
	// 404 {"title":"Not Found","status":404,"detail":"The requested path was not found.","error":"The requested path was not found."}
}

// Serve only the operation reset.
func ExampleNewLegacy() {
	mux := http.NewServeMux()
	mux.Handle("rest.example.com/v1/", httpapi.NewLegacy(examplePods(), &httpapi.Options{Auth: exampleKeys()}))

	ask(mux, "POST", "http://rest.example.com/v1/pods/none/reset", "Bearer secret", "")
	// Output: 404 {"title":"Not Found","status":404,"detail":"pod not found"}
}

// Middleware of a program can answer errors as the handlers do.
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
	// httpapi: unknown scope "pods:delete": must be *, operator, read or write of pods, registries, secrets or endpoints (pods:read), or run, read or work of an endpoint (endpoint:ID:run)
}
