package double_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/ratelimit/budget"
)

// costs are what the caller spends, as the API has it.
func costs(t *testing.T, s *apitest.Server) (x struct {
	Hour, Month, CostPerHour, CostPerMonth float64
	Ends                                   *time.Time
},
) {
	t.Helper()
	var body struct {
		Users []struct{ Cost json.RawMessage }
	}
	if err := json.Unmarshal([]byte(want(t, s, 200, "GET", "/v2/account/limits", "").body), &body); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(body.Users[0].Cost, &x); err != nil {
		t.Fatalf("cost is %s: %v", body.Users[0].Cost, err)
	}
	return x
}

// A user has 3 USD for a month, a pod of 0.69 USD an hour, and workers of an endpoint.
func TestTheEndOfABudgetStopsPodsAndWorkersAndLeavesJobsInTheQueue(t *testing.T) {
	s := apitest.StartWith(t, &double.Options{Budgets: budget.Users{Cost: budget.Cost{PerHour: 2, PerMonth: 3}}})
	s.Image(workImage, minute(s), &double.ImageOptions{ColdStart: time.Second})
	const pod = `{"name":"p","image":"img","gpu":{"id":"NVIDIA GeForce RTX 4090","count":1}}`
	p := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
	a := want(t, s, 429, "POST", "/v2/pods", strings.Replace(pod, `"count":1`, `"count":2`, 1))
	if !strings.Contains(a.body, "the budget costPerHour is full: what runs costs 0.69") || a.header.Get("Retry-After") != "" {
		t.Errorf("two GPUs more: %s, Retry-After %q", a.body, a.header.Get("Retry-After"))
	}
	e := want(t, s, 201, "POST", "/v2/serverless", `{"name":"f","type":"QUEUE","image":"`+workImage+`","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":1,"max":1},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`).field("id")
	s.Advance(time.Hour)
	x := costs(t, s)
	if x.Hour <= 0.7 || x.Month < 0.7 || x.Month > x.Hour || x.CostPerHour != 2 || x.CostPerMonth != 3 || x.Ends == nil {
		t.Errorf("after an hour: %+v, want the pod and the worker", x)
	}

	s.Advance(3 * time.Hour)
	if x = costs(t, s); x.Month >= 3 || podStatus(t, s, p) != "RUNNING" {
		t.Fatalf("after four hours %+v are spent, and the pod is %s", x, podStatus(t, s, p))
	}
	s.Advance(time.Hour)
	if x = costs(t, s); x.Month < 3 || x.Month > 3.02 || x.Hour > 0.01 || podStatus(t, s, p) != "EXITED" {
		t.Errorf("in the end %+v are spent, and the pod is %s", x, podStatus(t, s, p))
	}
	job := run(t, s, e, `{"input":{}}`)
	s.Advance(time.Minute)
	if got := status(t, s, e, job); got != "IN_QUEUE" {
		t.Errorf("a job is %s, want that it waits", got)
	}
	for path, text := range map[string]string{
		"/v2/serverless/" + e + "/decisions": "costPerMonth", "/v2/serverless/" + e + "/decisions?jobId=" + job: "costPerMonth",
		"/v2/serverless/" + e + "/workers": `"workers":[]`,
	} {
		if body := want(t, s, 200, "GET", path, "").body; !strings.Contains(body, text) {
			t.Errorf("%s is %s, want %q in it", path, body, text)
		}
	}
	a = want(t, s, 429, "POST", "/v2/pods/"+p+"/action", `{"action":"start"}`)
	if !strings.Contains(a.body, "the budget costPerMonth is used up") {
		t.Errorf("a start: %s", a.body)
	}
	next := budget.NextMonth(s.Now())
	s.Advance(next.Sub(s.Now()) + 2*time.Minute)
	if list := workers(t, s, e); len(list) != 1 {
		t.Errorf("in the next month the workers are %v, want the one of the minimum", list)
	}
	want(t, s, 200, "POST", "/v2/pods/"+p+"/action", `{"action":"start"}`)
}
