package double_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
)

func TestAJobThatFailsTwiceSucceedsWithItsThirdAttempt(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	s.Fault(double.Fault{Name: double.FaultJobFails, Endpoint: "echo", Count: 2})
	job := run(t, s, "echo", `{"input":{},"queue":{"retry":{"attempts":3,"delay":60000,"jitter":0}}}`)
	s.Advance(time.Minute)
	if got := status(t, s, "echo", job); got != "IN_QUEUE" {
		t.Errorf("after two failures the job is %s, want IN_QUEUE", got)
	}
	s.Advance(2 * time.Minute)
	if got := status(t, s, "echo", job); got != "COMPLETED" {
		t.Errorf("after the third attempt the job is %s, want COMPLETED", got)
	}
	got := want(t, s, 200, "GET", "/v2/echo/attempts/"+job, "").body
	if strings.Count(got, `"error":"a fault of the test double"`) != 2 {
		t.Errorf("attempts = %s, want two failures by the fault", got)
	}
}

func TestAJobThatFailsForGoodLeavesADeadLetter(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	want(t, s, 200, "PATCH", "/v2/serverless/echo/queue", `{"deadLetter":3600000,"retry":{"attempts":2,"delay":1000}}`)
	healed := s.Fault(double.Fault{Name: double.FaultJobFails})
	job := run(t, s, "echo", `{"input":{"a":1}}`)
	s.Advance(time.Minute)
	if got := want(t, s, 200, "GET", "/v2/echo/dead", "").body; !strings.Contains(got, job) {
		t.Errorf("dead letters = %s, want that of %s", got, job)
	}
	healed()
	again := want(t, s, 200, "POST", "/v2/echo/dead/"+job+"/redrive", "").field("id")
	s.Advance(0)
	if got := status(t, s, "echo", again); got != "COMPLETED" {
		t.Errorf("the job that was redriven is %s, want COMPLETED", got)
	}
}

func TestAMissedScheduleIsCaughtUpOrNotAsItSays(t *testing.T) {
	s := apitest.Start(t)
	s.Handle("echo", echo)
	of := func(catchUp string) string {
		return want(t, s, 201, "POST", "/v2/echo/schedules", fmt.Sprintf(`{"cron":"0 * * * *","run":{"input":{}},"catchUp":%q}`, catchUp)).field("id")
	}
	none, last := of("none"), of("last")
	s.Fault(double.Fault{Name: double.FaultScheduleMissed, Endpoint: "echo", Count: 1})
	s.Advance(time.Hour + 2*time.Minute)
	for id, outcome := range map[string]string{none: "missed", last: "submitted"} {
		if got := want(t, s, 200, "GET", "/v2/echo/schedules/"+id, "").body; strings.Count(got, `"outcome":`) != 1 || !strings.Contains(got, `"outcome":"`+outcome+`"`) {
			t.Errorf("the schedule is %s, want %s", got, outcome)
		}
	}
	s.Advance(time.Hour)
	if got := want(t, s, 200, "GET", "/v2/echo/schedules/"+none, "").body; !strings.Contains(got, `"outcome":"submitted"`) {
		t.Errorf("the next instant is missed too: %s", got)
	}
}

func TestAHandlerServesALoadBalancingEndpoint(t *testing.T) {
	s := apitest.Start(t)
	hung := make(chan struct{})
	s.HandleHTTP("web", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hang" {
			close(hung)
			<-r.Context().Done()
			return
		}
		fmt.Fprintf(w, "%s %s", r.Method, r.URL.Path)
	}))
	url := s.URL() + "/lb/web"
	ask := func(path string) (code int, body, worker string) {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+path, nil)
		if err != nil {
			return 0, err.Error(), ""
		}
		r.Header.Set("Authorization", "Bearer "+s.Double.Key())
		res, err := http.DefaultClient.Do(r)
		if err != nil {
			return 0, err.Error(), ""
		}
		defer res.Body.Close()
		b, _ := io.ReadAll(res.Body) // an answer that is cut short is not the expected one
		return res.StatusCode, string(b), res.Header.Get("X-Runpod-Worker-Id")
	}
	up := func() {
		t.Helper()
		if code, body, worker := ask("/a//b"); code != 200 || body != "GET /a//b" || worker != "local-web" {
			t.Errorf("GET = %d %q of %q, want the answer of the handler", code, body, worker)
		}
	}
	up()
	s.Fault(double.Fault{Name: double.FaultBalancedWorker, Endpoint: "web", Count: 1})
	if code, _, _ := ask("/"); code != 502 {
		t.Errorf("GET of a worker that is down = %d, want 502", code)
	}
	up()
	go ask("/hang")
	<-hung
	s.Advance(time.Hour) // does not wait for it
	s.Reset(7)
	up()
	want(t, s, 400, "POST", "/v2/web/run", `{"input":{}}`)
}
