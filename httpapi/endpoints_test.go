package httpapi_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"iter"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/podfleet"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/fleet"
)

// Keys of the worlds with endpoints.
const (
	alicesEndpoints = "key-of-alice-for-endpoints"
	bobsEndpoints   = "key-of-bob-for-endpoints"
	readsEndpoints  = "key-of-alice-that-reads-endpoints"
	bobsWork        = "key-of-bob-for-work-on-idle"
)

func endpointKeys(now func() time.Time) []httpapi.Key {
	return append(keys(now),
		httpapi.Key{Secret: alicesEndpoints, User: "alice", Scopes: []string{"endpoints:write", "registries:write", "endpoint:*:run"}, Exempt: true},
		httpapi.Key{Secret: bobsEndpoints, User: "bob", Scopes: []string{"endpoints:write", "endpoint:*:run"}, Exempt: true},
		httpapi.Key{Secret: readsEndpoints, User: "alice", Scopes: []string{"endpoints:read"}, Exempt: true},
		httpapi.Key{Secret: alicesAll, User: "alice", Scopes: []string{"*"}, Exempt: true},
		httpapi.Key{Secret: bobsAll, User: "bob", Scopes: []string{"*"}, Exempt: true},
		httpapi.Key{Secret: bobsWork, User: "bob", Scopes: []string{"endpoint:idle:work"}, Exempt: true},
	)
}

// testCatalog is the catalog for the workers of these tests.
type testCatalog struct{}

func (testCatalog) Flavor(id string, vcpus int) (int, bool) {
	if id != "cpu5c" {
		return 0, false
	}
	if vcpus > 8 {
		return 0, true
	}
	return 2 * vcpus, true
}

func (testCatalog) Pool(id string) []string {
	return map[string][]string{"ADA_24": {"RTX 4090"}, "ADA_48": {"L40", "L40S"}}[id]
}

func (testCatalog) DataCenter(id string) bool { return id == "US-KS-2" }

// A scriptedSender is a Sender that returns the given statuses in order, and then 200.
type scriptedSender struct {
	mu       sync.Mutex
	statuses []int
}

func (r *scriptedSender) Send(context.Context, *serverless.Delivery) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.statuses) == 0 {
		return 200, nil
	}
	s := r.statuses[0]
	r.statuses = r.statuses[1:]
	if s == 0 {
		return 0, errors.New("connection refused")
	}
	return s, nil
}

// withEndpoints runs f in a synctest bubble with a world whose jobs service has a catalog,
// registries and a webhook receiver that fails at first. The endpoint shared is declared,
// and echo has a worker.
func withEndpoints(t *testing.T, set func(*serverless.Options, *httpapi.Options), f func(w *testAPI)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		plain := newTestAPI(t, nil)
		w := &testAPI{t: t, services: plain.services, options: plain.options, pods: plain.pods}
		options := &serverless.Options{
			Meter: podfleet.Meter(catalog.Sample(), w.services.Billing),
			Rand:  rand.NewChaCha8([32]byte{4}), Catalog: testCatalog{}, Registries: w.services.Registries, Templates: podfleet.Templates(w.services.Templates), Sender: &scriptedSender{statuses: []int{500, 0}},
		}
		if set != nil {
			set(options, &w.options)
		}
		known, err := httpapi.NewKeys(endpointKeys(time.Now), time.Now)
		if err != nil {
			t.Fatal(err)
		}
		w.jobs = serverless.New(memory.NewJobs(), newEndpoints(t), withSchedules(options, known))
		w.services.Jobs, w.options.Auth = w.jobs, known
		w.handler = httpapi.New(w.services, &w.options)
		name, image := "shared", "org/shared:1"
		if _, err := w.jobs.DeclareEndpoint(t.Context(), "shared", endpoints.CreateRequest{
			Type: endpoints.QueueType, Settings: endpoints.Settings{
				Name: &name, Image: &image, CPU: []endpoints.CPUSettings{{ID: "cpu5c", VCPU: 2}}, Env: map[string]string{"TOKEN": "s3cret"},
				Scaling: &endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
			},
		}); err != nil {
			t.Fatal(err)
		}
		run(t, w.jobs.Run)
		run(t, func(ctx context.Context) error {
			return w.jobs.Serve(ctx, "echo", serverless.WorkerFunc(work), &serverless.ServeOptions{ID: "worker-1", Drain: time.Millisecond})
		})
		synctest.Wait()
		f(w)
	})
}

// as returns the Authorization header with a key.
func as(key string) string { return "Authorization: Bearer " + key }

const (
	cpuEndpoint = `{"name":"py","type":"QUEUE","image":"org/worker:1","cpu":[{"id":"cpu5c","vcpuCount":4}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`
	gpuEndpoint = `{"name":"sd","type":"QUEUE","image":"org/sd:1","gpu":{"pools":["ADA_24","ADA_48"],"excludedTypes":[" L40"],"count":2,"minCudaVersion":"12.1"},` +
		`"args":"--a 'b c'","disk":20,"ports":["8000/http"],"env":{"M":"sdxl"},"workers":{"min":1,"max":5,"idleTimeout":5},` +
		`"scaling":{"type":"QUEUE_DELAY","queueDelay":0.5},"dataCenterIds":["US-KS-2"],"networkVolumes":[],"timeout":60000,"flashboot":"FLASHBOOT"}`
)

// member returns a part of a JSON answer by its path.
func (a answer) member(t *testing.T, path ...string) any {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(a.body), &v); err != nil {
		t.Fatalf("%s: %v", a.body, err)
	}
	for _, name := range path {
		v = v.(map[string]any)[name]
	}
	return v
}

func TestWireOfEndpoints(t *testing.T) {
	var got strings.Builder
	withEndpoints(t, nil, func(w *testAPI) {
		w.transcript = &got
		w.want(200, "GET", "/v2/serverless", "", as(readsEndpoints))
		id := w.want(201, "POST", "/v2/serverless", gpuEndpoint, as(alicesEndpoints)).field("id")
		at := "/v2/serverless/" + id
		w.want(200, "GET", at, "", as(readsEndpoints))
		w.want(200, "PATCH", at, `{"image":"org/sd:2","env":{"M":"flux"},"gpu":{"pools":["ADA_48"]},"name":"flux"}`, as(alicesEndpoints))
		w.want(200, "PATCH", at, `{"workers":{"max":9},"scaling":{"type":"REQUEST_COUNT","requestCount":3},"gpu":{"minCudaVersion":"","allowedCudaVersions":["12.8"]}}`, as(alicesEndpoints))
		w.want(200, "GET", at+"/releases", "", as(readsEndpoints))
		w.want(204, "DELETE", at, "", as(alicesEndpoints))
		w.want(404, "GET", at, "", as(alicesEndpoints))
		id = w.want(201, "POST", "/v2/serverless", cpuEndpoint, as(alicesEndpoints)).field("id")
		w.want(200, "PATCH", "/v2/serverless/"+id, `{"cpu":[{"id":"cpu5c","vcpuCount":8},{"id":"cpu5c","vcpuCount":2}]}`, as(alicesEndpoints))
		w.want(200, "GET", "/v2/serverless/shared", "", as(bobsEndpoints))
		w.want(403, "PATCH", "/v2/serverless/shared", `{"name":"mine"}`, as(bobsEndpoints))
		w.want(200, "GET", "/v2/serverless", "", as(bobsEndpoints))
		job := w.want(200, "POST", "/v2/echo/runsync", `{"input":{},"webhook":"http://example.com/hook"}`, as(alicesEndpoints)).field("id")
		deliveries := "/v2/serverless/echo/deliveries/" + job
		time.Sleep(time.Second)
		w.want(200, "GET", deliveries, "", as(readsEndpoints))
		w.want(200, "GET", "/v2/serverless/echo/deliveries", "", as(readsEndpoints))
		time.Sleep(29 * time.Second)
		w.want(200, "POST", deliveries+"/redeliver", "", as(alicesEndpoints))
		time.Sleep(time.Second)
		w.want(200, "GET", deliveries, "", as(readsEndpoints))
		w.want(200, "GET", "/v2/serverless/echo/deliveries?state=delivered", "", as(readsEndpoints))
	})
	compareGolden(t, "endpoints", got.String())
}

func TestEndpointTakesJobsAtOnceAndOnlyItsOwners(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/serverless", cpuEndpoint, as(alicesEndpoints)).field("id")
		job := w.want(200, "POST", "/v2/"+id+"/run", `{"input":{}}`, as(alicesEndpoints)).field("id")
		for _, path := range []string{"/run", "/runsync", "/status/" + job, "/cancel/" + job, "/purge-queue", "/retry/" + job} {
			w.want(404, "POST", "/v2/"+id+path, `{"input":{}}`, as(bobsEndpoints))
		}
		w.want(404, "GET", "/v2/"+id+"/health", "", as(bobsEndpoints))
		w.want(404, "GET", "/v2/"+id+"/metrics", "", as(bobsEndpoints))
		w.want(404, "POST", "/v2/"+id+"/openai/v1/completions", "{}", as(bobsEndpoints))
		w.want(404, "GET", "/v2/"+id+"/job-take/thief", "", as(bobsEndpoints))
		w.want(404, "POST", "/v2/"+id+"/job-done/thief/"+job, "{}", as(bobsEndpoints))
		w.want(404, "GET", "/v2/"+id+"/requests", "", as(bobsEndpoints))
		w.want(204, "DELETE", "/v2/serverless/"+id, "", as(alicesEndpoints))
		w.want(404, "GET", "/v2/"+id+"/status/"+job, "", as(alicesEndpoints))
	})
}

func TestRequestURLsBeginWithThePublicURL(t *testing.T) {
	for base, want := range map[string]string{
		"":                         "http://podyard.test/v2/shared/status/{job_id}",
		"https://api.example.com/": "https://api.example.com/v2/shared/status/{job_id}",
		"https://example.com/gpu":  "https://example.com/gpu/v2/shared/status/{job_id}",
	} {
		withEndpoints(t, func(_ *serverless.Options, o *httpapi.Options) { o.PublicURL = base }, func(w *testAPI) {
			a := w.want(200, "GET", "/v2/serverless/shared", "", as(readsEndpoints))
			if got := a.member(t, "requestUrls", "status"); got != want {
				t.Errorf("with the public URL %q the address is %v, want %s", base, got, want)
			}
		})
	}
}

func TestScopesOfEndpoints(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		id := w.want(201, "POST", "/v2/serverless", cpuEndpoint, as(alicesEndpoints)).field("id")
		at := "/v2/serverless/" + id
		for _, r := range []string{"GET /v2/serverless", "GET " + at, "GET " + at + "/releases", "GET " + at + "/workers", "GET " + at + "/decisions"} {
			method, path, _ := strings.Cut(r, " ")
			w.want(200, method, path, "", as(readsEndpoints))
			w.want(403, method, path, "", as(aliceFree))
		}
		for _, r := range []string{"POST /v2/serverless", "PATCH " + at, "DELETE " + at, "POST " + at + "/deliveries/x/redeliver"} {
			method, path, _ := strings.Cut(r, " ")
			w.want(403, method, path, "{}", as(readsEndpoints))
		}
		if got := w.call(http.MethodHead, at, "", as(readsEndpoints)).status; got != 200 {
			t.Errorf("HEAD of an endpoint = %d, want 200", got)
		}
		if got := w.call(http.MethodHead, at+"/workers/w/logs", "", as(readsEndpoints)).status; got != 404 {
			t.Errorf("HEAD of the log of a worker that does not exist = %d, want 404", got)
		}
	})
}

// endpointRefusals are the refusals for operations on endpoints.
func endpointRefusals() []refusal {
	const valid = `"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":1}`
	const sharedOnly = "the endpoint is shared: only an operator may do this"
	bob, reader, operator := []string{as(bobsEndpoints)}, []string{as(readsEndpoints)}, []string{as(operatorFree)}
	return []refusal{
		{"GET /v2/serverless", "", 401, "missing bearer token", []string{"Authorization:"}},
		{"GET /v2/serverless", "", 401, "malformed authorization header", []string{"Authorization: " + alicesEndpoints}},
		{"GET /v2/serverless", "", 403, "access denied", []string{as(aliceFree)}},

		{"POST /v2/serverless", "", 400, "the body is empty: it must be a JSON object", nil},
		{"POST /v2/serverless", "[]", 422, "the body must be a JSON object", nil},
		{"POST /v2/serverless", `{"name":"a","name":"b"}`, 400, "the body is not JSON: duplicate object member name at /name, byte 12", nil},
		{"POST /v2/serverless", "x", 415, "the body must be application/json", []string{"Content-Type: text/plain"}},
		{"POST /v2/serverless", "{}", 422, "/name: is required | /type: is required | /image: is required | /scaling: is required", nil},
		{"POST /v2/serverless", "{}", 403, "access denied", reader},
		{"POST /v2/serverless", `{` + valid + `,"templateId":1,"locked":true,"mounts":{}}`, 422, "/templateId: must be a string | /locked: unknown property | /mounts: unknown property", nil},
		{"POST /v2/serverless", `{"name":1,"type":2,"image":3,"gpu":4,"cpu":5,"args":6,"disk":"7","ports":8,"env":9,"registry":10,"workers":11,"scaling":12,"dataCenterIds":13,"networkVolumes":14,"timeout":"15","flashboot":16}`, 422,
			"/name: must be a string | /type: must be a string | /image: must be a string | /gpu: must be an object | /cpu: must be an array | /args: must be a string | /disk: must be an integer | /ports: must be an array | /env: must be an object | /registry: must be a string | /workers: must be an object | /scaling: must be an object | /dataCenterIds: must be an array | /networkVolumes: must be an array | /timeout: must be an integer | /flashboot: must be a string", nil},
		{"POST /v2/serverless", `{"name":"n","type":"LOAD_BALANCER","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, 400, "/type: load-balancing endpoints are not offered: use QUEUE", nil},
		{"POST /v2/serverless", `{"name":"n","type":"queue","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, 422, "/type: must be one of QUEUE, LOAD_BALANCER", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 400, "exactly one of gpu and cpu must be set", nil},
		{"POST /v2/serverless", `{` + valid + `,"gpu":{"pools":["ADA_24"]}}`, 400, "exactly one of gpu and cpu must be set", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[1,{},{"id":"cpu5c","vcpuCount":3,"memory":1},{"id":"cpu9","vcpuCount":2},{"id":"cpu5c","vcpuCount":16}],"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422,
			`/cpu/0: must be an object | /cpu/1/id: is required | /cpu/1/vcpuCount: is required | /cpu/2/memory: unknown property | /cpu/2/vcpuCount: must be a power of two, at least 2 | /cpu/3/id: unknown CPU flavor "cpu9" | /cpu/4/vcpuCount: flavor cpu5c does not have 16 vCPUs`, nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2},{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422, "/cpu/1: cpu5c with 2 vCPUs is listed twice", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[],"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422, "/cpu: must have at least 1 entry", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":[],"id":"L40"},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422, "/gpu/id: unknown property | /gpu/pools: must have at least 1 entry", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422, "/gpu/pools: is required", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["L40"],"count":0,"allowedCudaVersions":["12"],"minCudaVersion":null},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 422,
			`/gpu/pools/0: unknown GPU pool "L40" | /gpu/count: must be at least 1 | /gpu/allowedCudaVersions/0: must be a version as major.minor | /gpu/minCudaVersion: must be a string`, nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["ADA_24"],"excludedTypes":["L40"]},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 400, `/gpu/excludedTypes/0: GPU type "L40" is in none of the pools`, nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["ADA_24"],"excludedTypes":["RTX 4090"]},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 400, "/gpu/excludedTypes: leaves no GPU type of the pools", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["ADA_24"],"allowedCudaVersions":["12.8"],"minCudaVersion":"12.1"},"scaling":{"type":"QUEUE_DELAY","queueDelay":1}}`, 400, "/gpu/minCudaVersion: minCudaVersion and allowedCudaVersions exclude each other: clear one of them", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{}}`, 422, "/scaling/type: is required", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY"}}`, 422, "/scaling/queueDelay: is required", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":0.4,"requestCount":1}}`, 422, "/scaling/queueDelay: must be from 0.5 to 604800 seconds | /scaling/requestCount: unknown property", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":1e999}}`, 422, "/scaling/queueDelay: must be from 0.5 to 604800 seconds", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":1.5,"queueDelay":4}}`, 422, "/scaling/queueDelay: unknown property | /scaling/requestCount: must be an integer", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"REQUEST_COUNT","requestCount":0}}`, 422, "/scaling/requestCount: must be at least 1", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"scaling":{"type":"LOAD","queueDelay":4,"value":1}}`, 422, "/scaling/value: unknown property | /scaling/type: must be one of QUEUE_DELAY, REQUEST_COUNT", nil},
		{"POST /v2/serverless", `{` + valid + `,"workers":{"min":-1,"max":1.5,"idleTimeout":0,"spare":1}}`, 422, "/workers/spare: unknown property | /workers/min: must be from 0 to 1000 | /workers/max: must be an integer | /workers/idleTimeout: must be from 1 to 3600 seconds", nil},
		{"POST /v2/serverless", `{` + valid + `,"workers":{"min":1e300,"max":99999999999999999999,"idleTimeout":1e300}}`, 422, "/workers/min: must be from 0 to 1000 | /workers/max: must be from 0 to 1000 | /workers/idleTimeout: must be from 1 to 3600 seconds", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","gpu":{"pools":["ADA_24"],"count":1e30},"scaling":{"type":"REQUEST_COUNT","requestCount":1e30}}`, 422, "/gpu/count: must be at most 2147483647 | /scaling/requestCount: must be at most 2147483647", nil},
		{"POST /v2/serverless", `{"name":"","type":"","image":"","cpu":[{"id":"","vcpuCount":1e30}],"scaling":{"type":""}}`, 422, "/name: must not be empty | /type: must be one of QUEUE, LOAD_BALANCER | /image: must not be empty | /cpu/0/id: must not be empty | /cpu/0/vcpuCount: must be at most 2147483647 | /scaling/type: must be one of QUEUE_DELAY, REQUEST_COUNT", nil},
		{"POST /v2/serverless", `{` + valid + `,"workers":{"min":4}}`, 400, "/workers/min: min, 4, must not be above max, 3", nil},
		{"POST /v2/serverless", `{"name":"n","type":"QUEUE","image":"i","cpu":[{"id":"cpu5c","vcpuCount":2}],"workers":{"idleTimeout":5},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, 400, "/workers/idleTimeout: does not apply to an endpoint that scales by REQUEST_COUNT", nil},
		{"POST /v2/serverless", `{` + valid + `,"timeout":4999,"flashboot":"on","dataCenterIds":["US-KS-2","MOON-1"]}`, 422, `/dataCenterIds/1: unknown data center "MOON-1" | /timeout: must be from 5000 to 604800000 milliseconds | /flashboot: must be one of OFF, FLASHBOOT, PRIORITY_FLASHBOOT`, nil},
		{"POST /v2/serverless", `{` + valid + `,"timeout":604800001}`, 422, "/timeout: must be from 5000 to 604800000 milliseconds", nil},
		{"POST /v2/serverless", `{` + valid + `,"networkVolumes":["vol1"],"registry":"nothere"}`, 400, `/registry: registry credential "nothere" does not exist | /networkVolumes/0: network volume "vol1" does not exist`, nil},
		{"POST /v2/serverless", `{` + valid + `,"registry":""}`, 422, "/registry: must be an id or null", nil},
		{"POST /v2/serverless", `{` + valid + `,"ports":["80"],"env":{"A":1},"args":"'","disk":0}`, 422, "/args: has a single quote that is not closed | /disk: must be 1 to 1048576 GB | /ports/0: must be port/protocol: 1 to 65535, and tcp, udp or http | /env/A: must be a string", nil},

		{"GET /v2/serverless/{id}", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}", "", 403, "access denied", []string{as(aliceFree)}},

		{"PATCH /v2/serverless/{id}", `{"name":""}`, 422, "/name: must not be empty", nil},
		{"PATCH /v2/serverless/{id}", `{"image":"","cpu":[{"id":"","vcpuCount":3}]}`, 422, "/image: must not be empty | /cpu/0/id: must not be empty | /cpu/0/vcpuCount: must be a power of two, at least 2", nil},
		{"PATCH /v2/serverless/{id}", `{"type":"QUEUE","createdAt":"now"}`, 422, "/type: unknown property | /createdAt: unknown property", nil},
		{"PATCH /v2/serverless/{id}", `{"name":null,"image":null,"cpu":null,"workers":null,"scaling":null,"timeout":null,"flashboot":null}`, 422,
			"/name: must be a string | /image: must be a string | /cpu: must be an array | /workers: must be an object | /scaling: must be an object | /timeout: must be an integer | /flashboot: must be a string", nil},
		{"PATCH /v2/serverless/{id}", `{"gpu":{"pools":["ADA_24"]}}`, 400, "/gpu: the endpoint was not created with GPUs, and what it computes with cannot be changed", nil},
		{"PATCH /v2/serverless/{gpu}", `{"cpu":[{"id":"cpu5c","vcpuCount":2}]}`, 400, "/cpu: the endpoint was not created with CPUs, and what it computes with cannot be changed", nil},
		{"PATCH /v2/serverless/{gpu}", `{"gpu":{"excludedTypes":["L40"]}}`, 422, "/gpu/excludedTypes: needs pools: the two are one selection", nil},
		{"PATCH /v2/serverless/{gpu}", `{"gpu":{"allowedCudaVersions":["12.8"]}}`, 400, "/gpu/minCudaVersion: minCudaVersion and allowedCudaVersions exclude each other: clear one of them", nil},
		{"PATCH /v2/serverless/{id}", `{"workers":{"min":4}}`, 400, "/workers/min: min, 4, must not be above max, 3", nil},
		{"PATCH /v2/serverless/{id}", `{"workers":{"idleTimeout":5},"scaling":{"type":"REQUEST_COUNT","requestCount":1}}`, 400, "/workers/idleTimeout: does not apply to an endpoint that scales by REQUEST_COUNT", nil},
		{"PATCH /v2/serverless/{id}", `{"name":"mine"}`, 404, "endpoint not found", bob},
		{"PATCH /v2/serverless/shared", `{"nonsense`, 403, "the endpoint belongs to the service's configuration and cannot be changed", nil},
		{"PATCH /v2/serverless/nothere", "{", 404, "endpoint not found", nil},
		{"PATCH /v2/serverless/{id}", `{"name":"mine"}`, 403, "access denied", reader},

		{"DELETE /v2/serverless/{id}", "", 404, "endpoint not found", bob},
		{"DELETE /v2/serverless/nothere", "", 404, "endpoint not found", nil},
		{"DELETE /v2/serverless/shared", "", 403, "the endpoint belongs to the service's configuration and cannot be changed", nil},
		{"DELETE /v2/serverless/{id}", "", 403, "access denied", reader},

		{"GET /v2/serverless/{id}/builds", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere/builds", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}/builds?limit=101", "", 422, "limit must be an integer from 1 to 100", nil},
		{"GET /v2/serverless/{id}/builds", "", 401, "invalid or expired token", []string{as(oldKey)}},
		{"GET /v2/serverless/{id}/builds/x", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/{id}/builds/x", "", 404, "build not found", nil},
		{"GET /v2/serverless/{id}/builds/x", "", 401, "invalid or expired token", []string{as(oldKey)}},
		{"GET /v2/serverless/{id}/releases", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere/releases", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}/releases", "", 401, "invalid or expired token", []string{as(oldKey)}},

		{"GET /v2/serverless/{id}/workers", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere/workers", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}/workers", "", 403, "access denied", []string{as(aliceFree)}},

		{"GET /v2/serverless/{id}/workers/w/logs", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/{id}/workers/nothere/logs", "", 404, "worker not found", nil},
		{"GET /v2/serverless/echo/workers/worker-1/logs", "", 404, "the log of this worker is not kept here", operator},
		{"GET /v2/serverless/echo/workers/worker-1/logs", "", 403, sharedOnly, nil},
		{"GET /v2/serverless/echo/workers/worker-1/logs", "", 403, sharedOnly, reader},
		{"GET /v2/serverless/echo/workers", "", 403, sharedOnly, nil},
		{"GET /v2/serverless/{id}/jobs?limit=0", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/idle/jobs?status=RUNNING", "", 422, "status must be one of IN_QUEUE, IN_PROGRESS, COMPLETED, FAILED, CANCELLED, TIMED_OUT", nil},
		{"GET /v2/serverless/idle/jobs?limit=1001", "", 422, "limit must be an integer from 1 to 1000", nil},
		{"GET /v2/serverless/idle/jobs?cursor=", "", 422, "cursor must not be empty", nil},
		{"GET /v2/serverless/idle/jobs?cursor=AAAAAAAAAAAAAAAAAAAAAAAAAAA", "", 422, "cursor must be one that an answer to the same request has returned", nil},
		{"GET /v2/serverless/echo/decisions", "", 403, sharedOnly, nil},

		{"GET /v2/serverless/{id}/decisions", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere/decisions", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/idle/decisions?jobId=", "", 422, "jobId must not be empty", nil},
		{"GET /v2/serverless/nothere/decisions?jobId=", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/idle/decisions?jobId={job}", "", 404, "job not found", nil},
		{"GET /v2/serverless/idle/decisions?jobId={queued}", "", 404, "job not found", bob},

		{"GET /v2/serverless/{id}/queue", "", 404, "endpoint not found", bob},
		{"GET /v2/serverless/nothere/queue", "", 404, "endpoint not found", operator},
		{"GET /v2/serverless/idle/queue", "", 403, sharedOnly, nil},
		{"GET /v2/serverless/{id}/queue", "", 403, "access denied", []string{as(aliceFree)}},

		{"PATCH /v2/serverless/{id}/queue", "", 400, "the body is empty: it must be a JSON object", nil},
		{"PATCH /v2/serverless/{id}/queue", "[]", 422, "the body must be a JSON object", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"paused":true,"paused":false}`, 400, "the body is not JSON: duplicate object member name at /paused, byte 15", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"perKey":0,"perUser":-1,"total":1000001,"ageing":-1,"deadLetter":2592000001,"paused":null,"ready":1,"retry":{"attempts":0,"delay":5,"maxDelay":4,"times":1}}`, 422,
			"/perKey: must be from 1 to 1000000, or null for no limit | /perUser: must be from 1 to 1000000, or null for no limit | /total: must be from 1 to 1000000, or null for no limit | /ageing: must be from 0 to 604800000 milliseconds | /retry/times: unknown property | /retry/attempts: must be from 1 to 20 | /retry/delay: must be at most maxDelay, which is 4 | /deadLetter: must be from 0 to 2592000000 milliseconds | /paused: must be true or false | /ready: unknown property", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"rate":{"limit":0,"per":999},"perKeyRate":{"limit":1000001,"per":2592000001},"perUserRate":{"limit":1,"burst":3},"keys":{"a/b":{"perKey":0,"rate":{"limit":-1,"per":1000}},"":{"perUser":1}}}`, 422,
			"/rate/limit: must be from 1 to 1000000 | /rate/per: must be from 1000 to 2592000000 milliseconds | /perKeyRate/limit: must be from 1 to 1000000 | /perKeyRate/per: must be from 1000 to 2592000000 milliseconds | /perUserRate/per: is required | /perUserRate/burst: unknown property | /keys//perUser: unknown property | /keys/: a key has 1 to 128 characters | /keys/a~1b/perKey: must be from 1 to 1000000, or null for that of all keys | /keys/a~1b/rate/limit: must be from 1 to 1000000", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"rate":5,"perKeyRate":[],"keys":{"a":1}}`, 422,
			"/rate: must be an object | /perKeyRate: must be an object | /keys/a: must be an object", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"perKey":"1","perUser":1.5,"total":1e300,"ageing":604800001,"deadLetter":true,"retry":3}`, 422,
			"/perKey: must be an integer | /perUser: must be an integer | /total: must be from 1 to 1000000, or null for no limit | /ageing: must be from 0 to 604800000 milliseconds | /retry: must be an object | /deadLetter: must be an integer", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"retain":0}`, 422, "/retain: must be from 60000 to 2592000000 milliseconds, or null for the default", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"retain":59999,"total":0}`, 422, "/total: must be from 1 to 1000000, or null for no limit | /retain: must be from 60000 to 2592000000 milliseconds, or null for the default", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"retain":2592000001}`, 422, "/retain: must be from 60000 to 2592000000 milliseconds, or null for the default", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"retain":"1h"}`, 422, "/retain: must be an integer", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"retain":[60000]}`, 422, "/retain: must be an integer", nil},
		{"PATCH /v2/serverless/{id}/queue", `{"paused":true}`, 404, "endpoint not found", bob},
		{"PATCH /v2/serverless/idle/queue", `{"nonsense`, 403, sharedOnly, nil},
		{"PATCH /v2/serverless/nothere/queue", "{", 404, "endpoint not found", operator},
		{"PATCH /v2/serverless/{id}/queue", `{"paused":true}`, 403, "access denied", reader},

		{"DELETE /v2/serverless/{id}/workers/none", "", 404, "worker not found", nil},
		{"DELETE /v2/serverless/{id}/workers/none", "", 404, "endpoint not found", bob},
		{"DELETE /v2/serverless/nothere/workers/none", "", 404, "endpoint not found", nil},
		{"DELETE /v2/serverless/idle/workers/none", "", 403, sharedOnly, nil},
		{"DELETE /v2/serverless/idle/workers/none", "", 404, "worker not found", operator},
		{"DELETE /v2/serverless/{id}/workers/none", "", 403, "access denied", reader},

		{"GET /v2/serverless/echo/deliveries?state=lost", "", 422, "state must be one of pending, delivered, failed", nil},
		{"GET /v2/serverless/echo/deliveries?limit=0", "", 422, "limit must be an integer from 1 to 1000", nil},
		{"GET /v2/serverless/echo/deliveries?cursor=x", "", 422, "cursor must be one that an answer to the same request has returned", nil},
		{"GET /v2/serverless/nothere/deliveries", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}/deliveries", "", 404, "endpoint not found", bob},

		{"GET /v2/serverless/echo/deliveries/{job}", "", 404, "job not found", bob},
		{"GET /v2/serverless/echo/deliveries/nothere", "", 404, "job not found", nil},
		{"GET /v2/serverless/nothere/deliveries/{job}", "", 404, "endpoint not found", nil},
		{"GET /v2/serverless/{id}/deliveries/{job}", "", 404, "job not found", nil},

		{"POST /v2/serverless/echo/deliveries/{job}/redeliver", "", 404, "job not found", bob},
		{"POST /v2/serverless/echo/deliveries/{job}/redeliver", "", 409, "the job has no webhook", nil},
		{"POST /v2/serverless/idle/deliveries/{queued}/redeliver", "", 409, "the job has not ended, and its webhook is sent when it has", nil},
		{"POST /v2/serverless/nothere/deliveries/{job}/redeliver", "", 404, "endpoint not found", nil},
		{"POST /v2/serverless/echo/deliveries/{job}/redeliver", "", 403, "access denied", reader},
	}
}

// endpointOperations are the operations on endpoints.
var endpointOperations = requestsOf(func(o httpapi.Operation) bool { return o.Area == httpapi.AreaEndpoints })

func TestRefusedRequestsOfEndpointsNameThePlaceAndChangeNothing(t *testing.T) {
	covered := map[string]int{}
	withEndpoints(t, nil, func(w *testAPI) {
		alice := as(alicesEndpoints)
		id := w.want(201, "POST", "/v2/serverless", cpuEndpoint, alice).field("id")
		gpu := w.want(201, "POST", "/v2/serverless", gpuEndpoint, alice).field("id")
		names := strings.NewReplacer("{id}", id, "{gpu}", gpu,
			"{job}", w.want(200, "POST", "/v2/echo/runsync", `{"input":{}}`, alice).field("id"),
			"{queued}", w.want(200, "POST", "/v2/idle/run", `{"input":{},"webhook":"http://example.com/"}`, alice).field("id"))
		state := func() string {
			return w.want(200, "GET", "/v2/serverless", "", alice).body + w.want(200, "GET", "/v2/idle/requests", "", alice).body +
				w.want(200, "GET", "/v2/serverless/"+id+"/queue", "", alice).body
		}
		before := state()
		for _, row := range endpointRefusals() {
			method, path, _ := strings.Cut(row.request, " ")
			for _, op := range endpointOperations {
				if matchesOperation(op, row.request) {
					covered[op]++
				}
			}
			a := w.call(method, names.Replace(path), row.body, append([]string{alice}, row.headers...)...)
			if got := a.faults(t); a.status != row.status || got != row.want {
				t.Errorf("%s %s %q\n got %d %s\nwant %d %s", row.request, short(row.body), row.headers, a.status, got, row.status, row.want)
			}
			if after := state(); after != before {
				t.Fatalf("%s %s changed\n%s\nto\n%s", row.request, short(row.body), before, after)
			}
		}
	})
	for _, op := range endpointOperations {
		if covered[op] < 3 {
			t.Errorf("%s is refused by %d rows, want 3", op, covered[op])
		}
	}
}

// An idleFleet is a Fleet whose workers run at once and never take a job. Each has a log of
// three lines.
type idleFleet struct {
	takes   time.Duration // a start, before it is answered: never in the pass of the scaler that asks for it
	mu      sync.Mutex
	workers map[serverless.WorkerID]fleet.Instance
	changed []func(fleet.Instance)
}

func (b *idleFleet) Start(_ context.Context, w fleet.WorkerSpec) error {
	time.Sleep(b.takes) // virtual time
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, ok := b.workers[w.ID]; ok {
		return nil
	}
	f := fleet.Instance{
		Endpoint: w.Endpoint, ID: w.ID, Release: w.Release, Image: w.Container.Image, State: fleet.InstanceRunning,
		Started: time.Now(), DataCenter: "US-KS-2",
	}
	if w.GPU != nil {
		f.GPUType, f.GPUs = "NVIDIA L40S", w.GPU.Count
	} else {
		f.CPU, f.VCPUs = w.CPU[0].ID, w.CPU[0].VCPU
	}
	b.workers[w.ID] = f
	for _, tell := range b.changed {
		tell(f)
	}
	return nil
}

func (b *idleFleet) Stop(_ context.Context, _ string, id serverless.WorkerID, _ time.Duration) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.workers, id)
	return nil
}

func (b *idleFleet) Workers(context.Context) ([]fleet.Instance, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Values(b.workers)), nil
}

func (b *idleFleet) Watch(ctx context.Context, f func(fleet.Instance)) error {
	b.mu.Lock()
	b.changed = append(b.changed, f)
	b.mu.Unlock()
	<-ctx.Done()
	return ctx.Err()
}

func (b *idleFleet) WorkerLogs(_ context.Context, _ string, _ serverless.WorkerID, q fleet.LogQuery) iter.Seq2[fleet.LogLine, error] {
	return func(yield func(fleet.LogLine, error) bool) {
		epoch := time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)
		for i, text := range []string{"one", "two", "three"} {
			l := fleet.LogLine{At: epoch.Add(time.Duration(i) * time.Second), Seq: uint64(i + 1), Text: text}
			if (l.At.After(q.After) || l.At.Equal(q.After) && l.Seq > q.AfterSeq) && !yield(l, nil) {
				return
			}
		}
	}
}

func TestWireOfWorkers(t *testing.T) {
	var got strings.Builder
	withEndpoints(t, func(o *serverless.Options, _ *httpapi.Options) {
		o.Fleet = &idleFleet{workers: map[serverless.WorkerID]fleet.Instance{}}
		o.WorkerURL = func() string { return "http://podyard.test/v2" }
	}, func(w *testAPI) {
		w.transcript = &got
		alice := as(alicesEndpoints)
		w.want(200, "GET", "/v2/serverless/echo/workers", "", as(operatorFree))
		w.want(200, "GET", "/v2/serverless/echo/releases", "", alice)
		at := "/v2/serverless/" + w.want(201, "POST", "/v2/serverless", gpuEndpoint, alice).field("id")
		time.Sleep(90 * time.Second)
		list := w.want(200, "GET", at+"/workers", "", alice)
		id := list.member(t, "workers").([]any)[0].(map[string]any)["id"].(string)
		logs := at + "/workers/" + id + "/logs"
		w.listen(time.Second, logs, alice)
		w.listen(time.Second, logs+"?source=system", alice)
		w.listen(time.Second, logs+"?source=container&tail=1", alice)
		w.listen(time.Second, logs, alice, "Last-Event-ID: 2000-01-01T00:00:01Z/000000000002")
		w.want(422, "GET", logs+"?tail=5001", "", alice)
		w.want(200, "GET", at+"/decisions", "", alice)
		job := w.want(200, "POST", strings.Replace(at, "/serverless", "", 1)+"/run", `{"input":{}}`, alice).field("id")
		time.Sleep(time.Second)
		w.want(200, "GET", at+"/decisions?jobId="+job, "", alice)
		w.want(200, "PATCH", at, `{"disk":30,"workers":{"min":0}}`, alice)
		time.Sleep(time.Second)
		w.want(200, "GET", at+"/workers", "", alice)
		w.want(200, "GET", at+"/releases", "", alice)
		w.want(409, "DELETE", "/v2/serverless/echo/workers/worker-1", "", as(operatorFree))
		w.want(204, "DELETE", at+"/workers/"+w.call("GET", at+"/workers", "", alice).member(t, "workers").([]any)[0].(map[string]any)["id"].(string), "", alice)
	})
	compareGolden(t, "workers", got.String())
}

func TestWireOfServerlessBilling(t *testing.T) {
	var got strings.Builder
	withEndpoints(t, func(o *serverless.Options, _ *httpapi.Options) {
		o.Fleet = &idleFleet{workers: map[serverless.WorkerID]fleet.Instance{}}
		o.WorkerURL = func() string { return "http://podyard.test/v2" }
	}, func(w *testAPI) {
		w.transcript = &got
		alice := as(alicesEndpoints)
		w.want(200, "GET", "/v2/billing/serverless", "")
		const patient = `"env":{"RUNPOD_INIT_TIMEOUT":"86400"}` // these workers never ask for a job
		gpu := w.want(201, "POST", "/v2/serverless", strings.Replace(gpuEndpoint, `"env":{"M":"sdxl"}`, patient, 1), alice).field("id")
		synctest.Wait() // wait until its worker has an id
		w.want(201, "POST", "/v2/serverless", strings.Replace(cpuEndpoint, `"cpu":`, `"workers":{"min":2},`+patient+`,"cpu":`, 1), alice)
		time.Sleep(90*time.Minute + 500*time.Millisecond) // between two runs of the scaler
		w.want(204, "DELETE", "/v2/serverless/"+gpu, "", alice)
		time.Sleep(90 * time.Minute)
		w.want(200, "GET", "/v2/billing/serverless?bucketSize=hour&lastN=4", "")
		w.want(200, "GET", "/v2/billing/serverless?serverlessId="+gpu, "")
		w.want(200, "GET", "/v2/billing?bucketSize=hour&lastN=4", "")
		w.want(200, "GET", "/v2/billing/serverless", "", as(bobKey))
	})
	compareGolden(t, "billing_serverless", got.String())
}

func TestEndpointPatchedWithWhatItShowsStaysAsItIs(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		alice := as(alicesEndpoints)
		counting := strings.Replace(cpuEndpoint, `"type":"QUEUE_DELAY","queueDelay":4`, `"type":"REQUEST_COUNT","requestCount":4`, 1)
		for _, body := range []string{cpuEndpoint, gpuEndpoint, counting} {
			before := w.want(201, "POST", "/v2/serverless", body, alice)
			shown := before.member(t).(map[string]any)
			for _, name := range []string{"id", "type", "requestUrls", "createdAt"} { // members that no request can change
				delete(shown, name)
			}
			if cpu, ok := shown["cpu"].([]any); ok {
				delete(cpu[0].(map[string]any), "memory") // follows from the flavor
			}
			if gpu, ok := shown["gpu"].(map[string]any); ok && gpu["minCudaVersion"] == nil {
				gpu["minCudaVersion"] = ""
			}
			b, err := json.Marshal(shown)
			if err != nil {
				t.Fatal(err)
			}
			at := "/v2/serverless/" + before.field("id")
			if after := w.want(200, "PATCH", at, string(b), alice); after.body != before.body {
				t.Errorf("patched with what it shows:\n%s\nwas\n%s", after.body, before.body)
			}
			if got := w.want(200, "GET", at+"/releases", "", alice).member(t, "endpointVersion"); got != 1.0 {
				t.Errorf("a change of nothing made version %v", got)
			}
		}
	})
}

func TestRequestURLsFollowTheSchemeOfTheRequest(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		r := w.request(w.t.Context(), "GET", "/v2/serverless/shared", "", as(readsEndpoints))
		r.TLS = &tls.ConnectionState{}
		res, err := handlerTransport{w.handler}.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		b, err := io.ReadAll(res.Body)
		if want := "https://podyard.test/v2/shared/run"; err != nil || !strings.Contains(string(b), want) {
			t.Errorf("over TLS the answer is %s (%v), want addresses like %s", b, err, want)
		}
	})
}
