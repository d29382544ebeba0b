package double_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

type obj = map[string]any

func echo(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil }

// An answer is the answer to a request.
type answer struct {
	code   int
	header http.Header
	body   string
}

func (a answer) field(name string) string {
	var m obj
	_ = json.Unmarshal([]byte(a.body), &m)
	s, _ := m[name].(string)
	return s
}

// call makes a request in the process; headers are "Name: value".
func call(t testing.TB, s *apitest.Server, method, path, body string, headers ...string) answer {
	t.Helper()
	a, err := try(t, s.Client(), method, double.BaseURL+path, body, headers...)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func try(t testing.TB, c *http.Client, method, url, body string, headers ...string) (a answer, err error) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	for _, h := range headers {
		k, v, _ := strings.Cut(h, ": ")
		r.Header.Set(k, v)
	}
	res, err := c.Do(r)
	if err != nil {
		return a, err
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(b)}, err
}

// want makes a call and wants a status.
func want(t testing.TB, s *apitest.Server, code int, method, path, body string, headers ...string) answer {
	t.Helper()
	a := call(t, s, method, path, body, headers...)
	if a.code != code {
		t.Fatalf("%s %s = %d %s, want %d", method, path, a.code, a.body, code)
	}
	return a
}

// run submits a job and returns its id.
func run(t testing.TB, s *apitest.Server, endpoint, body string) string {
	t.Helper()
	return want(t, s, 200, "POST", "/v2/"+endpoint+"/run", body).field("id")
}

func status(t testing.TB, s *apitest.Server, endpoint, job string) string {
	t.Helper()
	a := call(t, s, "GET", "/v2/"+endpoint+"/status/"+job, "")
	if a.code != 200 {
		return fmt.Sprint(a.code)
	}
	return a.field("status")
}

const pod = `{"name":"web","image":"web","cpu":{"id":"cpu3c","vcpuCount":2}}`

// As in the product, an accepted stop cannot be cancelled.
func TestAnAcceptedStopAllowsNothingButTerminate(t *testing.T) {
	s := startFaulty(t)
	id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
	s.Advance(time.Minute)
	action := "/v2/pods/" + id + "/action"
	stopped := want(t, s, 200, "POST", action, `{"action":"stop"}`)
	if !strings.Contains(stopped.body, `"status":"RUNNING","actions":["terminate"]`) {
		t.Errorf("the answer to the stop is %s, want RUNNING with terminate as the only action", stopped.body)
	}
	for _, a := range []string{"restart", "stop"} {
		want(t, s, 409, "POST", action, `{"action":"`+a+`"}`)
	}
	s.Advance(time.Minute)
	if got := podStatus(t, s, id); got != "EXITED" {
		t.Errorf("pod = %s, want EXITED", got)
	}
}

func podStatus(t testing.TB, s *apitest.Server, id string) string {
	t.Helper()
	return want(t, s, 200, "GET", "/v2/pods/"+id, "").field("status")
}

func TestNothingHappensByItselfWhileTheClockStands(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("q")
	job := run(t, s, "q", `{"input":{},"policy":{"ttl":10000}}`)
	id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
	for range 3 {
		if got := status(t, s, "q", job) + " " + podStatus(t, s, id); got != "IN_QUEUE PROVISIONING" {
			t.Fatalf("job and pod = %s, want IN_QUEUE PROVISIONING", got)
		}
	}
	if !s.Now().Equal(double.DefaultStart) {
		t.Errorf("Now = %v, want %v", s.Now(), double.DefaultStart)
	}
}

func TestEveryDeadlineFollowsTheClock(t *testing.T) {
	for _, tt := range []struct {
		rule         string
		body         string
		until, after time.Duration
		before, then string
	}{
		{"ttl", `{"input":{"to":"queue"},"policy":{"ttl":10000}}`, 9999 * time.Millisecond, time.Millisecond, "IN_QUEUE", "404"},
		{"default ttl", `{"input":{"to":"queue"}}`, 24*time.Hour - time.Millisecond, time.Millisecond, "IN_QUEUE", "404"},
		{"retention of run", `{"input":{"to":"reply"}}`, 30*time.Minute - time.Millisecond, time.Millisecond, "COMPLETED", "404"},
		{"retain of run", `{"input":{"to":"reply"},"policy":{"ttl":10000},"queue":{"retain":3600000}}`, time.Hour - time.Millisecond, time.Millisecond, "COMPLETED", "404"},
		{"far start", `{"input":{"to":"reply"},"queue":{"startAfter":31622400000}}`, 366*24*time.Hour - time.Millisecond, time.Millisecond, "IN_QUEUE", "COMPLETED"},
		{"execution timeout", `{"input":{"to":"hang"},"policy":{"executionTimeout":5000}}`, 4999 * time.Millisecond, time.Millisecond, "IN_PROGRESS", "TIMED_OUT"},
		{"default execution timeout", `{"input":{"to":"hang"}}`, 10*time.Minute - time.Millisecond, time.Millisecond, "IN_PROGRESS", "TIMED_OUT"},
		{"a worker's own time", `{"input":{"to":"wait"}}`, time.Minute - time.Millisecond, time.Millisecond, "IN_PROGRESS", "COMPLETED"},
	} {
		t.Run(tt.rule, func(t *testing.T) {
			s := apitest.Start(t)
			endpoint := "script"
			if strings.Contains(tt.body, `"to":"queue"`) {
				endpoint = "q"
			}
			s.Queue("q")
			s.Endpoint("script").When(obj{"to": "reply"}).Reply("done").
				When(obj{"to": "wait"}).After(time.Minute).Reply("done").When(obj{"to": "hang"}).Hang()
			job := run(t, s, endpoint, tt.body)
			s.Advance(tt.until)
			if got := status(t, s, endpoint, job); got != tt.before {
				t.Errorf("after %v: %s, want %s", tt.until, got, tt.before)
			}
			s.Advance(tt.after)
			if got := status(t, s, endpoint, job); got != tt.then {
				t.Errorf("after %v more: %s, want %s", tt.after, got, tt.then)
			}
		})
	}
}

func TestPodsGoThroughTheirStagesByTheClock(t *testing.T) {
	s := apitest.Start(t)
	id := want(t, s, 201, "POST", "/v2/pods", pod).field("id")
	for _, stage := range []struct {
		after time.Duration
		want  string
	}{{0, "PROVISIONING"}, {500 * time.Millisecond, "STARTING"}, {500 * time.Millisecond, "RUNNING"}} {
		s.Advance(stage.after)
		if got := podStatus(t, s, id); got != stage.want {
			t.Errorf("after %v: %s, want %s", stage.after, got, stage.want)
		}
	}
	util := func() string {
		a := want(t, s, 200, "GET", "/v2/pods/"+id, "")
		_, rest, _ := strings.Cut(a.body, `"runtime":`)
		rest, _, _ = strings.Cut(rest, `"ports"`)
		return rest
	}
	before := util()
	if before != util() {
		t.Error("the utilisation moves while the clock stands")
	}
	if s.Advance(time.Minute); before == util() {
		t.Errorf("the utilisation is the same a minute later: %s", before)
	}
}

func TestQuotaWindowsFollowTheClock(t *testing.T) {
	o := &double.Options{}
	o.Quotas.Minute = 2
	s := apitest.StartWith(t, o)
	want(t, s, 200, "GET", "/v2/pods", "")
	want(t, s, 200, "GET", "/v2/pods", "")
	a := want(t, s, 429, "GET", "/v2/pods", "")
	if got := a.header.Get("Retry-After"); got != "60" {
		t.Errorf("Retry-After = %q, want 60", got)
	}
	s.Advance(time.Minute)
	want(t, s, 200, "GET", "/v2/pods", "")
}

func TestWebhookIsTriedAgainByTheClock(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").Reply("done")
	s.Fault(double.Fault{Name: double.FaultWebhookDown, Count: 2})
	run(t, s, "e", `{"input":{},"webhook":"https://client.test/hook"}`)
	s.RequireWebhook(t, apitest.WebhookMatch{Fault: double.FaultWebhookDown, Times: 1})
	s.Advance(9999 * time.Millisecond)
	s.RequireWebhook(t, apitest.WebhookMatch{Times: 1})
	s.Advance(time.Millisecond)
	s.RequireWebhook(t, apitest.WebhookMatch{Times: 2})
	if got := s.RunUntilIdle(); got != 10*time.Second {
		t.Errorf("RunUntilIdle = %v, want 10s: the third try", got)
	}
	d := s.RequireWebhook(t, apitest.WebhookMatch{Status: 200, Body: obj{"status": "COMPLETED", "output": "done"}, Times: 1})
	if !d.At.Equal(double.DefaultStart.Add(20 * time.Second)) {
		t.Errorf("delivered at %v, want 20 s after the start", d.At)
	}
}

func TestRunUntilIdleEndsWhatAWorkerHasAndLeavesWhatWaits(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("q")
	s.Handle("slow", func(ctx context.Context, k *serverless.Task) ([]byte, error) {
		return k.Input, s.Sleep(ctx, 42*time.Minute)
	})
	waits := run(t, s, "q", `{"input":{}}`)
	slow := run(t, s, "slow", `{"input":{},"policy":{"executionTimeout":3600000}}`)
	if got := s.RunUntilIdle(); got != 42*time.Minute {
		t.Errorf("RunUntilIdle = %v, want 42m", got)
	}
	if got := status(t, s, "slow", slow) + " " + status(t, s, "q", waits); got != "COMPLETED IN_QUEUE" {
		t.Errorf("jobs = %s, want COMPLETED IN_QUEUE", got)
	}
	if got := s.RunUntilIdle(); got != 0 {
		t.Errorf("RunUntilIdle of an idle server = %v, want 0", got)
	}
}

func TestHeldRequestIsAnsweredAtTheInstantTheJobEnds(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").After(20 * time.Second).Reply("late")
	got := make(chan answer, 1)
	go func() {
		a, err := try(t, s.Client(), "POST", double.BaseURL+"/v2/e/runsync", `{"input":{}}`)
		if err != nil {
			a.body = err.Error()
		}
		got <- a
	}()
	for len(s.Double.Jobs()) == 0 || s.Double.Jobs()[0].Status != "IN_PROGRESS" {
		s.Advance(0) // until the request is held
	}
	s.Advance(24 * time.Hour) // far beyond the retention of the result
	if a := <-got; !strings.Contains(a.body, `"output":"late"`) || !strings.Contains(a.body, `"executionTime":20000`) {
		t.Errorf("runsync = %d %s, want the output after 20000 ms", a.code, a.body)
	}
}

func TestHoldEndsByVirtualTime(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").Hang()
	got := make(chan answer, 1)
	go func() {
		a, _ := try(t, s.Client(), "POST", double.BaseURL+"/v2/e/runsync?wait=300000", `{"input":{}}`)
		got <- a
	}()
	for len(s.Double.Jobs()) == 0 {
		s.Advance(0)
	}
	s.Advance(time.Hour)
	if a := <-got; a.field("status") != "IN_PROGRESS" {
		t.Errorf("runsync = %d %s, want IN_PROGRESS: its wait is over before the execution timeout", a.code, a.body)
	}
}

func TestHoldEndsByWallTimeSoThatOneThreadNeverHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		s.Endpoint("e").Hang()
		began := time.Now()
		a := want(t, s, 200, "POST", "/v2/e/runsync?wait=5000", `{"input":{}}`)
		if d := time.Since(began); a.field("status") != "IN_PROGRESS" || d != 5*time.Second {
			t.Errorf("runsync = %s after %v, want IN_PROGRESS after 5s of the wall's time", a.body, d)
		}
		if !s.Now().Equal(double.DefaultStart) {
			t.Errorf("Now = %v, want %v: it stands", s.Now(), double.DefaultStart)
		}
	})
}

func TestWorksInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		s.Handle("echo", echo)
		s.Endpoint("slow").After(time.Hour).Stream(1, 2, 3)
		if a := want(t, s, 200, "POST", "/v2/echo/runsync", `{"input":{"a":1}}`); a.field("status") != "COMPLETED" {
			t.Errorf("runsync = %s", a.body)
		}
		job := run(t, s, "slow", `{"input":{},"policy":{"executionTimeout":7200000}}`)
		s.Advance(time.Hour)
		if got := status(t, s, "slow", job); got != "COMPLETED" {
			t.Errorf("job = %s, want COMPLETED", got)
		}
	})
}

func TestWorkerThatBlocksElsewhereDoesNotStopTheClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := apitest.Start(t)
		release := make(chan struct{})
		s.Handle("blocks", func(_ context.Context, k *serverless.Task) ([]byte, error) {
			<-release
			return k.Input, nil
		})
		job := run(t, s, "blocks", `{"input":{}}`)
		began := time.Now()
		s.Advance(5 * time.Minute) // thirty renewals of its lease
		if d := time.Since(began); d != double.DefaultSettle {
			t.Errorf("Advance took %v of wall time, want %v, once", d, double.DefaultSettle)
		}
		close(release)
		s.Advance(0)
		synctest.Wait()
		if got := status(t, s, "blocks", job); got != "COMPLETED" {
			t.Errorf("job = %s, want COMPLETED", got)
		}
	})
}

func TestRemoteWorkerSeenLatelyIsNotLostByAnAdvance(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("remote")
	has, finish := make(chan struct{}), make(chan struct{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- worker.Run(ctx, serverless.WorkerFunc(func(_ context.Context, k *serverless.Task) ([]byte, error) {
			close(has)
			<-finish
			return k.Input, nil
		}), &worker.Options{URL: double.BaseURL + "/v2", Endpoint: "remote", ID: "w1", Key: s.Key, Client: s.Client()})
	}()
	job := run(t, s, "remote", `{"input":{"n":1},"policy":{"executionTimeout":604800000,"ttl":604800000}}`)
	<-has
	s.Advance(6 * 24 * time.Hour)
	if got := status(t, s, "remote", job); got != "IN_PROGRESS" {
		t.Errorf("job = %s, want IN_PROGRESS: its worker is alive by the wall's time", got)
	}
	close(finish)
	want(t, s, 200, "GET", "/v2/remote/status-sync/"+job, "") // held until the job has ended, since the clock stands
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED", Worker: "w1"})
	if h := want(t, s, 200, "GET", "/v2/remote/health", ""); !strings.Contains(h.body, `"retried":0`) {
		t.Errorf("health = %s, want nothing retried", h.body)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestAWorkerStartedWithItsEnvironmentDoesTheJobs(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("remote")
	env := s.Double.WorkerEnv(double.BaseURL, "remote", "w1")
	opts, err := worker.FromEnv(func(name string) string { return env[name] })
	if err != nil {
		t.Fatal(err)
	}
	opts.Client = s.Client()
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- worker.Run(ctx, serverless.WorkerFunc(echo), opts) }()
	job := want(t, s, 200, "POST", "/v2/remote/runsync", `{"input":{"n":1}}`).field("id")
	s.RequireJob(t, apitest.JobMatch{ID: job, Status: "COMPLETED", Worker: "w1"})
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestChunksComeAtThePaceOfTheirScript(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").Every(time.Minute).Stream(1, 2)
	job := run(t, s, "e", `{"input":{}}`)
	for _, part := range []string{`"output":1`, `"output":2`} {
		s.Advance(time.Second)
		if a := want(t, s, 200, "GET", "/v2/e/stream/"+job, ""); strings.Count(a.body, `"output"`) != 1 || !strings.Contains(a.body, part) {
			t.Errorf("stream = %s, want %s and no other", a.body, part)
		}
		s.Advance(time.Minute)
	}
	if got := status(t, s, "e", job); got != "COMPLETED" {
		t.Errorf("job = %s, want COMPLETED", got)
	}
}

func TestTimeDoesNotGoBack(t *testing.T) {
	s := apitest.Start(t)
	s.SetTime(double.DefaultStart.Add(time.Hour))
	if err := s.Double.SetTime(t.Context(), double.DefaultStart); err == nil {
		t.Error("SetTime to the past = nil, want an error")
	}
	if err := s.Double.Advance(t.Context(), -time.Second); err == nil {
		t.Error("Advance(-1s) = nil, want an error")
	}
	if want := double.DefaultStart.Add(time.Hour); !s.Now().Equal(want) {
		t.Errorf("Now = %v, want %v", s.Now(), want)
	}
}
