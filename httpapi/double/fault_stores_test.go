package double_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/serverless"
)

func TestFaultStoreIsOfEveryStore(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultStore})
	for _, path := range []string{
		"/v2/pods", "/v2/pods/x", "/v2/registries", "/v2/network-volumes", "/v2/templates", "/v2/account/ssh-keys", "/v2/billing",
		"/v2/serverless", "/v2/serverless/echo", "/v2/echo/health", "/v2/echo/status/x", "/v2/echo/requests",
	} {
		want(t, s, 503, "GET", path, "")
	}
	want(t, s, 503, "POST", "/v2/registries", `{"name":"r","username":"u","password":"p"}`)
	want(t, s, 503, "POST", "/v2/pods", pod)
	want(t, s, 503, "POST", "/v2/echo/purge-queue", "")
	s.Double.ClearFaults()
	want(t, s, 200, "GET", "/v2/pods", "")
	s.RequireRequest(t, apitest.RequestMatch{Fault: double.FaultStore, Times: 15})
}

// Count counts requests that use a store, each of them once.
func TestFaultStoreCountsRequestsThatComeToAStore(t *testing.T) {
	s := startFaulty(t)
	s.Fault(double.Fault{Name: double.FaultStore, Count: 1})
	want(t, s, 404, "GET", "/v2/nothing/of/this/kind", "")
	want(t, s, 401, "GET", "/v2/pods", "", "Authorization: Bearer wrong")
	want(t, s, 422, "POST", "/v2/registries", `{}`)
	if n := len(s.Double.Faults()); n != 1 {
		t.Fatalf("%d faults are left, want 1: no request has come to a store", n)
	}
	want(t, s, 503, "POST", "/v2/echo/run", `{"input":{}}`)
	want(t, s, 200, "POST", "/v2/echo/run", `{"input":{}}`)
}

// product returns the service on stores that fail by a plan, without the double.
func product(t *testing.T, rules ...fault.Rule) http.Handler {
	t.Helper()
	plan, cat := fault.NewPlan(1, rules...), catalog.Sample()
	store := fault.Pods(memory.NewPods(), plan)
	p, err := pods.New(store, cat, pods.SimulatedHosts(cat, memory.NewRuntime(nil)), nil)
	if err != nil {
		t.Fatal(err)
	}
	keys, err := httpapi.NewKeys([]httpapi.Key{{Secret: "k", User: "u", Scopes: []string{"*"}}}, time.Now)
	if err != nil {
		t.Fatal(err)
	}
	endpoints := memory.NewEndpoints()
	if err := endpoints.Create(t.Context(), &serverless.Endpoint{ID: "echo"}); err != nil {
		t.Fatal(err)
	}
	jobs := serverless.New(fault.Jobs(memory.NewJobs(), plan), fault.Endpoints(endpoints, plan), nil)
	return httpapi.New(httpapi.Services{Pods: p, Jobs: jobs}, &httpapi.Options{Auth: keys})
}

// A fault has the same answer from backend/fault and from the double.
func TestAFaultIsAnsweredAsInTheProduct(t *testing.T) {
	for _, row := range []struct {
		fault        double.Fault
		rule         fault.Rule
		method, path string
		body         string
		code         int
	}{
		{double.Fault{Name: double.FaultStore}, fault.Rule{Call: "*"}, "POST", "/v2/echo/run", `{"input":{}}`, 503},
		{double.Fault{Name: double.FaultStore}, fault.Rule{Call: "jobs.*"}, "GET", "/v2/echo/status/x", "", 503},
		{double.Fault{Name: double.FaultStore}, fault.Rule{Call: "pods.Create", Kind: fault.CrashBefore}, "POST", "/v2/pods", pod, 503},
		{double.Fault{Name: double.FaultStore}, fault.Rule{Call: "pods.List"}, "GET", "/v2/pods", "", 503},
		{double.Fault{Name: double.FaultNoCapacity}, fault.Rule{Call: "pods.Claimed", Kind: fault.Full}, "POST", "/v2/pods", pod, 400},
		{double.Fault{Name: double.FaultNoCapacity}, fault.Rule{Call: "pods.Claimed", Err: pods.ErrNoCapacity}, "POST", "/v2/pods", pod, 400},
	} {
		s := startFaulty(t)
		s.Fault(row.fault)
		a := want(t, s, row.code, row.method, row.path, row.body)
		r := httptest.NewRequestWithContext(t.Context(), row.method, row.path, strings.NewReader(row.body))
		r.Header.Set("Authorization", "Bearer k")
		rec := httptest.NewRecorder()
		product(t, row.rule).ServeHTTP(rec, r)
		if rec.Code != a.code || rec.Header().Get("Content-Type") != a.header.Get("Content-Type") {
			t.Errorf("%s %s with %+v = %d %s, the double answers %d %s", row.method, row.path, row.rule, rec.Code, rec.Body, a.code, a.body)
		}
		if row.fault.Name == double.FaultNoCapacity {
			if diff := cmp.Diff(rec.Body.String(), a.body); diff != "" {
				t.Errorf("%s %s with %+v (-product +double):\n%s", row.method, row.path, row.rule, diff)
			}
		}
	}
}

// action performs an action on a pod and wants a status.
func action(t *testing.T, s *apitest.Server, code int, id, what string) answer {
	t.Helper()
	if what == "reset" {
		return want(t, s, code, "POST", "/v1/pods/"+id+"/reset", "")
	}
	return want(t, s, code, "POST", "/v2/pods/"+id+"/action", `{"action":"`+what+`"}`)
}

// Actions that need new compute are refused, and the pod does not change.
func TestFaultNoCapacityRefusesStartAndReset(t *testing.T) {
	for _, what := range []string{"start", "reset"} {
		s := startFaulty(t)
		id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
		s.Advance(time.Minute)
		action(t, s, 200, id, "stop")
		s.Advance(time.Minute)
		before := want(t, s, 200, "GET", "/v2/pods/"+id, "").body
		s.Fault(double.Fault{Name: double.FaultNoCapacity, Count: 1})
		if a := action(t, s, 400, id, what); !strings.Contains(a.body, "2 vCPUs of cpu3c on its host") {
			t.Errorf("the refusal %s does not say what is missing and where", a.body)
		}
		if diff := cmp.Diff(before, want(t, s, 200, "GET", "/v2/pods/"+id, "").body); diff != "" {
			t.Errorf("the refused %s changed the pod (-before +after):\n%s", what, diff)
		}
		action(t, s, 200, id, what)
		s.Advance(time.Minute)
		if got := podStatus(t, s, id); got != "RUNNING" {
			t.Errorf("after the %s the pod is %s, want RUNNING", what, got)
		}
	}
}

// A pod keeps its compute. Requests that need no capacity do not use up the fault.
func TestFaultNoCapacityIsForThoseWhoNeedRoom(t *testing.T) {
	s := startFaulty(t)
	id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
	s.Advance(time.Minute)
	s.Fault(double.Fault{Name: double.FaultNoCapacity, Count: 1})
	for _, what := range []string{"restart", "reset", "stop"} {
		action(t, s, 200, id, what)
		s.Advance(time.Minute)
	}
	want(t, s, 200, "GET", "/v2/catalog/cpus", "")
	want(t, s, 422, "POST", "/v2/pods", `{}`)
	if n := len(s.Double.Faults()); n != 1 {
		t.Fatalf("%d faults are left, want 1", n)
	}
	want(t, s, 400, "POST", "/v2/pods", pod)
	want(t, s, 201, "POST", "/v2/pods", pod)
	s.RequireRequest(t, apitest.RequestMatch{Operation: "createPod", Fault: double.FaultNoCapacity, Times: 1})
}

// Full hosts are also full in the catalog.
func TestFaultNoCapacityShowsInTheCatalog(t *testing.T) {
	s := startFaulty(t)
	const path = "/v2/catalog/gpus?include=AVAILABILITY&product=POD"
	before := want(t, s, 200, "GET", path, "").body
	s.Fault(double.Fault{Name: double.FaultNoCapacity})
	if after := want(t, s, 200, "GET", path, "").body; after == before {
		t.Errorf("the catalog is the same while all hosts are full: %s", after)
	}
	s.Double.ClearFaults()
	if diff := cmp.Diff(before, want(t, s, 200, "GET", path, "").body); diff != "" {
		t.Errorf("after the fault (-before +after):\n%s", diff)
	}
}

// A worker prefers its data centers, and goes elsewhere when they are full.
func TestFaultNoCapacityOfADataCenterSendsWorkersElsewhere(t *testing.T) {
	s := apitest.Start(t)
	s.Image("img", func(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil }, nil)
	s.Fault(double.Fault{Name: double.FaultNoCapacity, DataCenter: "EU-RO-1"})
	s.Declare("e", map[string]any{"image": "img", "dataCenterIds": []string{"EU-RO-1"}, "workers": map[string]any{"max": 1}})
	job := run(t, s, "e", `{"input":{}}`)
	s.RunUntilIdle()
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED"})
}

// The fault has the same answer as the product when a limit is reached.
func TestFaultRateLimitedAnswersAsTheLimitsOfTheProduct(t *testing.T) {
	for _, row := range []struct{ method, path, body, limit, policy, detail string }{
		{"GET", "/v2/pods", "", `"minute";r=0;t=7, "hour";r=`, `"minute";q=600;w=60, "hour";q=18000;w=3600`, "rate limit exceeded for the minute window"},
		{"POST", "/v2/echo/run", `{"input":{}}`, `"run";r=0;t=7`, `"run";q=1000;w=10`, "rate limit exceeded for run: 1000 requests per 10 s"},
		{"GET", "/v2/echo/health", "", "", "", "rate limit exceeded"},
	} {
		s := startFaulty(t)
		s.Fault(double.Fault{Name: double.FaultRateLimited, RetryAfter: 7, Count: 1})
		a := want(t, s, 429, row.method, row.path, row.body)
		if !strings.HasPrefix(a.header.Get("RateLimit"), row.limit) || !strings.HasPrefix(a.header.Get("RateLimit-Policy"), row.policy) {
			t.Errorf("%s: RateLimit %q and RateLimit-Policy %q, want %q and %q", row.path, a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy"), row.limit, row.policy)
		}
		if a.header.Get("Retry-After") != "7" || a.field("detail") != row.detail {
			t.Errorf("%s: Retry-After %q and detail %q, want 7 and %q", row.path, a.header.Get("Retry-After"), a.field("detail"), row.detail)
		}
	}
}
