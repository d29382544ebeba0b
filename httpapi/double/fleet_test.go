package double_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/serverless"
)

const workImage = "org/worker:1"

// minute returns a worker that takes a minute for each job.
func minute(s *apitest.Server) func(context.Context, *serverless.Task) ([]byte, error) {
	return func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		return k.Input, s.Sleep(ctx, time.Minute)
	}
}

// scaled starts a server with an endpoint "e". It has 0 to 3 workers, which take 20 s to start
// and end after 30 s without a job.
func scaled(t *testing.T, o *double.Options) *apitest.Server {
	t.Helper()
	s := apitest.StartWith(t, o)
	s.Image(workImage, minute(s), &double.ImageOptions{ColdStart: 20 * time.Second})
	s.Declare("e", obj{"image": workImage, "workers": obj{"min": 0, "max": 3, "idleTimeout": 30}})
	return s
}

type workerBody struct {
	ID, Status string
}

// workers returns the statuses of the workers of an endpoint, as the API lists them.
func workers(t *testing.T, s *apitest.Server, endpoint string) (list []string) {
	t.Helper()
	var body struct{ Workers []workerBody }
	if err := json.Unmarshal([]byte(want(t, s, 200, "GET", "/v2/serverless/"+endpoint+"/workers", "").body), &body); err != nil {
		t.Fatal(err)
	}
	for _, w := range body.Workers {
		list = append(list, w.Status)
	}
	return list
}

// wantWorkers compares the workers of "e", as "2 RUNNING, 1 IDLE".
func wantWorkers(t *testing.T, s *apitest.Server, when string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, workers(t, s, "e")); diff != "" {
		t.Errorf("%s (%v), workers (-want +got):\n%s", when, s.Now().Sub(double.DefaultStart), diff)
	}
}

const (
	running  = "RUNNING"
	idle     = "IDLE"
	starting = "INITIALIZING"
)

func TestWorkersScaleByTheClock(t *testing.T) {
	s := scaled(t, nil)
	wantWorkers(t, s, "without a job")
	var last string
	for range 6 {
		last = run(t, s, "e", `{"input":{}}`)
	}
	wantWorkers(t, s, "the first job starts the first worker", starting)
	s.Advance(4*time.Second - time.Millisecond)
	wantWorkers(t, s, "before the queue delay", starting)
	s.Advance(time.Millisecond)
	wantWorkers(t, s, "jobs have waited for the queue delay", starting, starting, starting)
	s.Advance(16*time.Second - time.Millisecond)
	wantWorkers(t, s, "before the cold start is over", starting, starting, starting)
	s.Advance(time.Millisecond)
	if got := workers(t, s, "e"); strings.Count(fmt.Sprint(got), running) != 1 {
		t.Errorf("at the end of the first cold start: %v, want one that runs a job", got)
	}
	s.Advance(4 * time.Second)
	wantWorkers(t, s, "all have come", running, running, running)

	// The first worker has its second job from 20+60 s on, the others from 24+60 s.
	s.Advance(2*time.Minute - time.Millisecond)
	if got := status(t, s, "e", last); got != "IN_PROGRESS" {
		t.Errorf("the last job is %s, want IN_PROGRESS", got)
	}
	s.Advance(time.Millisecond)
	if got := status(t, s, "e", last); got != "COMPLETED" {
		t.Errorf("the last job is %s 144 s after the start, want COMPLETED", got)
	}
	wantWorkers(t, s, "all is done", idle, idle, idle)
	s.Advance(26*time.Second - time.Millisecond)
	wantWorkers(t, s, "before the first has been idle for 30 s", idle, idle, idle)
	s.Advance(time.Millisecond)
	wantWorkers(t, s, "the first has been idle for 30 s", idle, idle)
	s.Advance(4*time.Second - time.Millisecond)
	wantWorkers(t, s, "before the others have been idle for 30 s", idle, idle)
	s.Advance(time.Millisecond)
	wantWorkers(t, s, "scaled to zero")

	body := want(t, s, 200, "GET", "/v2/serverless/e/decisions", "").body
	for _, reason := range []string{"the first worker starts for the first job", "a job has waited for 4s", "workers that no job has needed for 30s end"} {
		if !strings.Contains(body, reason) {
			t.Errorf("the decisions %s do not say %q", body, reason)
		}
	}
}

func TestScaledEndpointIsTheSameEveryTime(t *testing.T) {
	story := func(seed uint64) string {
		s := scaled(t, &double.Options{Seed: seed})
		var log strings.Builder
		for range 7 {
			run(t, s, "e", `{"input":{}}`)
			s.Advance(3 * time.Second)
			log.WriteString(want(t, s, 200, "GET", "/v2/serverless/e/workers", "").body)
		}
		s.RunUntilIdle()
		s.Advance(time.Hour)
		log.WriteString(want(t, s, 200, "GET", "/v2/serverless/e/decisions", "").body)
		fmt.Fprintf(&log, "%+v", s.Double.Jobs())
		return log.String()
	}
	one := story(7)
	for range 5 {
		if diff := cmp.Diff(one, story(7)); diff != "" {
			t.Fatalf("the second time (-want +got):\n%s", diff)
		}
	}
}

func TestRunUntilIdleStartsTheWorkersThatJobsWaitFor(t *testing.T) {
	s := scaled(t, nil)
	job := run(t, s, "e", `{"input":{}}`)
	if got := s.RunUntilIdle(); got != 80*time.Second {
		t.Errorf("RunUntilIdle = %v, want 80s: a cold start and a minute", got)
	}
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED"})
}

func TestEndpointMadeOverHTTPHasWorkersOfItsImage(t *testing.T) {
	s := scaled(t, nil)
	id := want(t, s, 201, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+workImage+`","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":2,"max":2},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`).field("id")
	s.Advance(20 * time.Second)
	if diff := cmp.Diff([]string{idle, idle}, workers(t, s, id)); diff != "" {
		t.Errorf("workers (-want +got):\n%s", diff)
	}
	want(t, s, 204, "DELETE", "/v2/serverless/"+id, "")
	s.Advance(time.Second)
	h, err := s.Jobs.Health(t.Context(), "e")
	if err != nil || h.Workers != (serverless.WorkerCounts{}) {
		t.Errorf("workers of e = %+v, %v, want none", h.Workers, err)
	}
}

func TestReleaseReplacesWorkersByTheClock(t *testing.T) {
	s := scaled(t, nil)
	s.Image("org/worker:2", func(context.Context, *serverless.Task) ([]byte, error) { return []byte(`"two"`), nil }, &double.ImageOptions{ColdStart: 10 * time.Second})
	s.Declare("e", obj{"image": workImage, "workers": obj{"min": 1, "max": 2, "idleTimeout": 30}})
	s.Advance(20 * time.Second)
	wantWorkers(t, s, "the minimum", idle)
	s.Declare("e", obj{"image": "org/worker:2", "workers": obj{"min": 1, "max": 2, "idleTimeout": 30}})
	s.Advance(0)
	wantWorkers(t, s, "after the release", starting)
	s.Advance(10 * time.Second)
	wantWorkers(t, s, "the new one has come", idle)
	if a := want(t, s, 200, "POST", "/v2/e/runsync", `{"input":{}}`); !strings.Contains(a.body, `"two"`) {
		t.Errorf("runsync = %s, want the output of the new image", a.body)
	}
}

func TestWorkersThatCrashBackOffByTheClock(t *testing.T) {
	for _, tt := range []struct {
		fault, status, says string
	}{
		{double.FaultCrash, "UNHEALTHY", "a worker ended before it had done a job: exit code 1"},
		{double.FaultPull, "UNHEALTHY", "the image could not be pulled"},
		{double.FaultOOM, "UNHEALTHY", "killed for its memory"},
		{double.FaultUnhealthy, starting, ""},
		{double.FaultNoCapacity, "THROTTLED", "there is no capacity for a worker"},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			s := scaled(t, nil)
			clearFault := s.Fault(double.Fault{Name: tt.fault})
			job := run(t, s, "e", `{"input":{}}`)
			s.Advance(5 * time.Minute)
			if got := fmt.Sprint(workers(t, s, "e")); !strings.Contains(got, tt.status) {
				t.Errorf("workers = %s, want %s", got, tt.status)
			}
			if body := want(t, s, 200, "GET", "/v2/serverless/e/decisions", "").body; !strings.Contains(body, tt.says) {
				t.Errorf("the decisions %s do not say %q", body, tt.says)
			}
			clearFault()
			s.Advance(20 * time.Minute) // a worker that does not ask for a job is replaced after 15 minutes
			s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED"})
		})
	}
}

func TestWorkerOfAnImageDiesWithItsContainer(t *testing.T) {
	s := scaled(t, nil)
	s.Image("org/chunks", func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		for i := range 3 {
			if err := k.Emit(ctx, fmt.Append(nil, i)); err != nil {
				return nil, err
			}
		}
		return []byte(`"all"`), nil
	}, nil)
	s.Declare("c", obj{"image": "org/chunks"})
	s.Fault(double.Fault{Name: double.FaultWorkerDies, Endpoint: "c", Chunks: 2, Count: 1})
	job := run(t, s, "c", `{"input":{}}`)
	s.RunUntilIdle()
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED", Output: "all"})
	if h := want(t, s, 200, "GET", "/v2/c/health", ""); !strings.Contains(h.body, `"retried":1`) {
		t.Errorf("health = %s, want one retried", h.body)
	}
}

func TestImageSetsStayAfterAReset(t *testing.T) {
	s := scaled(t, nil)
	s.ImageScript("org/script:*", nil).Reply("scripted")
	s.Reset(4)
	for image, want := range map[string]string{workImage: "COMPLETED", "org/script:1": "IN_QUEUE"} {
		s.Declare("x", obj{"image": image})
		job := run(t, s, "x", `{"input":{}}`)
		s.RunUntilIdle()
		if got := status(t, s, "x", job); got != want {
			t.Errorf("a job of %s after a reset is %s, want %s", image, got, want)
		}
	}
}

func TestImageScriptIsWhatWorkersDo(t *testing.T) {
	s := apitest.Start(t)
	s.ImageScript("org/script:*", &double.ImageOptions{Concurrency: 2}).When(obj{"n": 1}).Reply("one").Fail("no")
	s.Declare("e", obj{"image": "org/script:7", "workers": obj{"max": 1}})
	one, two := run(t, s, "e", `{"input":{"n":1}}`), run(t, s, "e", `{"input":{"n":2}}`)
	s.RunUntilIdle()
	s.RequireJob(t, apitest.JobMatch{ID: one, Status: "COMPLETED", Output: "one"})
	s.RequireJob(t, apitest.JobMatch{ID: two, Status: "FAILED", Error: "no"})
}

func TestWorkersAreBilledUpToWhenSomebodyLooks(t *testing.T) {
	s := scaled(t, nil)
	bill := func() string { return want(t, s, 200, "GET", "/v2/billing/serverless", "").body }
	empty := bill()
	want(t, s, 201, "POST", "/v2/serverless", `{"name":"mine","type":"QUEUE","image":"`+workImage+`","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":1,"max":2},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`)
	s.Advance(30 * time.Minute)
	first := bill()
	s.Advance(20 * time.Minute)
	if second := bill(); first == empty || second == first {
		t.Errorf("bills of nothing, half an hour and 50 minutes:\n%s\n%s\n%s\nwant three that differ", empty, first, second)
	}
}
