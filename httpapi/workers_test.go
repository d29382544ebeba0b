package httpapi_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// A sdkWorker is a worker of the endpoint idle that uses the protocol as the stock SDK
// does.
type sdkWorker struct {
	*testAPI
	id string
}

func (w *testAPI) hand(id string) sdkWorker { return sdkWorker{w, id} }

func (h sdkWorker) key() string {
	return "Authorization: " + h.jobs.WorkerKey("idle", serverless.WorkerID(h.id))
}

// path returns one of its URLs: op is "job-take", or "job-done" with a job.
func (h sdkWorker) path(op string, job ...string) string {
	return "/v2/idle/" + strings.Join(append([]string{op, h.id}, job...), "/") + "?gpu=NVIDIA+RTX+A5000"
}

// take asks for a job and returns its id, or "".
func (h sdkWorker) take() string {
	h.t.Helper()
	switch a := h.call("GET", h.path("job-take")+"&job_in_progress=0", "", h.key()); a.status {
	case http.StatusOK:
		return a.field("id")
	case http.StatusNoContent:
		return ""
	default:
		h.t.Fatalf("job-take = %d %s", a.status, a.body)
		return ""
	}
}

// report posts a body as the SDK does: JSON with the media type of a form.
func (h sdkWorker) report(op, job, body string) answer {
	h.t.Helper()
	return h.want(http.StatusOK, "POST", h.path(op, job)+"&isStream=false", body, h.key(), "Content-Type: application/x-www-form-urlencoded")
}

func (h sdkWorker) ping(jobs ...string) {
	h.t.Helper()
	q := ""
	if len(jobs) > 0 {
		q = "&job_id=" + strings.Join(jobs, ",")
	}
	h.want(http.StatusOK, "GET", h.path("ping")+q+"&runpod_version=1.12.0", "", h.key())
}

// submit submits a job to idle as alice and returns its id.
func (w *testAPI) submit(input string) string {
	w.t.Helper()
	return w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":`+input+`}`).field("id")
}

func (w *testAPI) statusOf(job string) answer {
	w.t.Helper()
	return w.want(http.StatusOK, "GET", "/v2/idle/status/"+job, "")
}

const accepted = `{"accepted":true}`

func refusedReport(a answer) bool { return strings.HasPrefix(a.body, `{"accepted":false,"reason":"`) }

func TestAWorkerIsGivenTheJobAsItWasSubmittedAndWhatOnlyItSees(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{"a": 1.50,"a":2},"webhook":"https://example.com/","s3Config":{"bucketName":"b"}}`).field("id")
		a := w.call("GET", w.hand("w1").path("job-take"), "", w.hand("w1").key())
		if want := `{"id":"` + id + `","input":{"a": 1.50,"a":2},"s3Config":{"bucketName":"b"}}`; a.body != want {
			t.Errorf("the worker gets %s\nwant %s", a.body, want)
		}
	})
}

func TestWhatAWorkerReportsIsWhatItsCallerReads(t *testing.T) {
	for name, tt := range map[string]struct{ body, status, rest string }{
		"value":                      {`{"output": [1, {"x": null}]}`, "COMPLETED", `"output":[1, {"x": null}]`},
		"nothing":                    {`{}`, "COMPLETED", `"status"`},
		"null output":                {`{"output":null}`, "COMPLETED", `"output":null`},
		"error":                      {`{"error":"no"}`, "FAILED", `"error":"no"`},
		"error and output":           {`{"output":{"x":1},"error":"no"}`, "FAILED", `"output":{"x":1}`},
		"error that is not a string": {`{"error":{"code":7}}`, "FAILED", `"error":"{\"code\":7}"`},
		"error that is null":         {`{"error":null,"output":1}`, "COMPLETED", `"output":1`},
		"unicode":                    {`{"output":"\u00fc\ud83d\ude00ü"}`, "COMPLETED", `"output":"\u00fc\ud83d\ude00ü"`},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				h, id := w.hand("w1"), w.submit(`{}`)
				advance(time.Second)
				h.take()
				advance(2 * time.Second)
				if a := h.report("job-done", id, tt.body); a.body != accepted {
					t.Fatalf("job-done answers %s, want %s", a.body, accepted)
				}
				a := w.statusOf(id)
				for _, want := range []string{tt.rest, `"status":"` + tt.status + `"`, `"delayTime":1000`, `"executionTime":2000`, `"workerId":"w1"`} {
					if !strings.Contains(a.body, want) {
						t.Errorf("the caller reads %s, want %s in it", a.body, want)
					}
				}
			})
		})
	}
}

func TestAJobTakeIsHeldFor25SecondsAndWokenByAJob(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, began := w.hand("w1"), time.Now()
		if id := h.take(); id != "" || time.Since(began) != 25*time.Second {
			t.Errorf("job-take of an empty queue answers %q after %v, want nothing after 25 s", id, time.Since(began))
		}
		got := make(chan string)
		go func() { got <- h.take() }()
		advance(10 * time.Second)
		began = time.Now()
		id := w.submit(`{}`)
		if taken := <-got; taken != id || time.Since(began) != 0 {
			t.Errorf("the held job-take answers %q after %v, want %s at once", taken, time.Since(began), id)
		}
	})
}

func TestWorkersThatWaitAreServedInTheOrderTheyCame(t *testing.T) {
	bubble(t, func(w *testAPI) {
		type gift struct{ worker, job string }
		got := make(chan gift, 3)
		for i := range 3 {
			h := w.hand(fmt.Sprint("w", i))
			go func() { got <- gift{h.id, h.take()} }()
			advance(time.Second)
		}
		for i := range 3 {
			id := w.submit(`{}`)
			if g := <-got; g != (gift{fmt.Sprint("w", i), id}) {
				t.Errorf("job %d went to %s, want the worker that has waited longest", i, g.worker)
			}
		}
	})
}

func TestABatchIsAnArrayOfAtMostAsManyJobsOldestFirst(t *testing.T) {
	bubble(t, func(w *testAPI) {
		var ids []string
		for range 5 {
			ids = append(ids, w.submit(`{}`))
		}
		h := w.hand("w1")
		batch := func(n int) string {
			return w.want(http.StatusOK, "GET", h.path("job-take-batch")+fmt.Sprintf("&batch_size=%d&job_in_progress=0", n), "", h.key()).body
		}
		array := func(ids []string) string {
			return `[{"id":"` + strings.Join(ids, `","input":{}},{"id":"`) + `","input":{}}]`
		}
		if got, want := batch(3), array(ids[:3]); got != want {
			t.Errorf("the first batch is %s, want %s", got, want)
		}
		if got, want := batch(10), array(ids[3:]); got != want {
			t.Errorf("the second batch is %s, want %s", got, want)
		}
	})
}

// After an error, a stock worker would repeat the request at once.
func TestABatchSizeOutOfBoundsIsTheNearestAndNoError(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for range 7 {
			w.submit(`{}`)
		}
		h := w.hand("w1")
		for _, row := range []struct {
			size string
			want int
		}{{"", 1}, {"x", 1}, {"0", 1}, {"-3", 1}, {"100000", 3}} {
			body := w.want(http.StatusOK, "GET", h.path("job-take-batch")+"&batch_size="+row.size, "", h.key()).body
			if got := strings.Count(body, `"id"`); got != row.want {
				t.Errorf("batch_size=%s took %d jobs, want %d", row.size, got, row.want)
			}
		}
	})
}

func TestAJobIsItsWorkersWhileItPingsAndAnothersAfterThat(t *testing.T) {
	bubble(t, func(w *testAPI) {
		first, second, id := w.hand("w1"), w.hand("w2"), w.submit(`{}`)
		first.take()
		for range 54 { // nine minutes
			advance(10 * time.Second)
			first.ping(id)
		}
		if a := w.statusOf(id); a.field("status") == "IN_QUEUE" {
			t.Fatalf("a job of a worker that pings is %s", a.body)
		}
		advance(30 * time.Second)
		if got := second.take(); got != id {
			t.Fatalf("the second worker gets %q 30 s after the last ping, want %s", got, id)
		}
		if a := first.report("job-done", id, `{"output":"late"}`); !refusedReport(a) {
			t.Errorf("a result of the first worker answers %s, want that it is refused", a.body)
		}
		second.report("job-done", id, `{"output":"right"}`)
		if a := w.statusOf(id); !strings.Contains(a.body, `"output":"right"`) {
			t.Errorf("the caller reads %s, want the second worker's result", a.body)
		}
		if a := w.call("GET", "/v2/idle/health", ""); !strings.Contains(a.body, `"retried":1`) {
			t.Errorf("health is %s, want 1 retried", a.body)
		}
	})
}

func TestAResultIsTakenFromTheWorkerThatLostTheJobWhileNobodyElseHasIt(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		advance(45 * time.Second)
		if a := w.statusOf(id); a.field("status") != "IN_QUEUE" {
			t.Fatalf("after 45 s without a ping the job is %s, want it queued again", a.body)
		}
		if a := h.report("job-done", id, `{"output":1}`); a.body != accepted {
			t.Errorf("the result answers %s, want %s: the work is done", a.body, accepted)
		}
		if a := w.statusOf(id); a.field("status") != "COMPLETED" {
			t.Errorf("the job is %s, want COMPLETED", a.body)
		}
	})
}

func TestAJobThatNeverArrivedIsGivenAgainAndCounted(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take() // the worker did not get the answer
		advance(90 * time.Second / 100)
		if got := h.take(); got != id {
			t.Errorf("the worker that says that it has no job gets %q, want %s", got, id)
		}
		if a := w.call("GET", "/v2/idle/health", ""); !strings.Contains(a.body, `"retried":1`) {
			t.Errorf("health is %s, want 1 retried", a.body)
		}
	})
}

// The handler has returned what the SDK cannot encode. The SDK writes a line to its log and asks for
// the next job.
func TestAJobThatEndsWithoutAResultThreeTimesHasFailedAndSaysWhy(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		for range 3 {
			if got := h.take(); got != id {
				t.Fatalf("the worker gets %q, want %s", got, id)
			}
			advance(time.Second)
		}
		h.take()
		want := `"error":"worker lost: the job was given to workers 3 times and none of them reported a result; the last one: it asked for another job and had reported no result"`
		if a := w.statusOf(id); a.field("status") != "FAILED" || !strings.Contains(a.body, want) {
			t.Errorf("the job is %s, want FAILED with %s", a.body, want)
		}
	})
}

// Version 1.7.1 of the SDK says that it has no job while it runs one.
func TestAWorkerThatMiscountsItsJobsKeepsThem(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		for range 3 {
			advance(time.Second) // and the request is held for 25 s
			w.call("GET", h.path("job-take")+"&job_in_progress=0", "", h.key(), "User-Agent: RunPod-Python-SDK/1.7.1 (Linux 6; x86_64)")
			h.ping()
		}
		h.report("job-done", id, `{"output":1}`)
		if a := w.call("GET", "/v2/idle/health", ""); !strings.Contains(a.body, `"completed":1`) || !strings.Contains(a.body, `"retried":0`) {
			t.Errorf("health is %s, want 1 completed and 0 retried", a.body)
		}
	})
}

func TestAWorkerThatHasAnotherJobKeepsBoth(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, first, second := w.hand("w1"), w.submit(`{}`), w.submit(`{}`)
		h.take()
		advance(time.Minute / 4)
		for _, query := range []string{"&job_in_progress=1", ""} {
			if a := w.call("GET", h.path("job-take")+query, "", h.key()); query != "" && a.field("id") != second {
				t.Errorf("the worker gets %s, want %s", a.body, second)
			}
		}
		for _, id := range []string{first, second} {
			if a := h.report("job-done", id, `{"output":1}`); a.body != accepted {
				t.Errorf("the result of %s answers %s, want %s", id, a.body, accepted)
			}
		}
	})
}

func TestACancelledJobIsToldToItsWorkerOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		got := make(chan answer)
		stop := func() { got <- w.call("GET", h.path("job-stop"), "", h.key()) }
		go stop()
		advance(time.Second)
		w.want(http.StatusOK, "POST", "/v2/idle/cancel/"+id, "")
		if a := <-got; a.body != `{"jobsToStop":["`+id+`"]}` {
			t.Errorf("job-stop answers %d %s, want the id", a.status, a.body)
		}
		began := time.Now()
		go stop()
		if a := <-got; a.status != http.StatusNoContent || time.Since(began) != 25*time.Second {
			t.Errorf("the next job-stop answers %d %s after %v, want 204 after 25 s", a.status, a.body, time.Since(began))
		}
	})
}

func TestALyingWorkerHarmsNoJob(t *testing.T) {
	bubble(t, func(w *testAPI) {
		honest, liar := w.hand("w1"), w.hand("w2")
		running, queued := w.submit(`{}`), w.submit(`{}`)
		if honest.take() != running {
			t.Fatal("the first job is not taken first")
		}
		before := w.statusOf(running).body + w.statusOf(queued).body
		for _, job := range []string{running, queued, "no-such-job"} {
			for _, lie := range []struct{ op, body string }{
				{"job-done", `{"output":"lie"}`}, {"job-done", `{"error":"lie"}`},
				{"job-done", `{"status":"IN_PROGRESS","output":"lie"}`}, {"job-stream", `{"output":"lie"}`},
			} {
				if a := liar.report(lie.op, job, lie.body); !refusedReport(a) {
					t.Errorf("%s %s about %s answers %s, want that it is refused", lie.op, lie.body, job, a.body)
				}
			}
		}
		for _, lists := range []string{running, queued, "no-such-job", running + "," + queued} {
			if a := w.want(http.StatusOK, "GET", liar.path("ping")+"&job_id="+lists, "", liar.key()); !refusedReport(a) {
				t.Errorf("a ping that lists %s answers %s, want that it is refused", lists, a.body)
			}
		}
		if after := w.statusOf(running).body + w.statusOf(queued).body; after != before {
			t.Errorf("the jobs are %s\nwant as they were %s", after, before)
		}
		honest.report("job-done", running, `{"output":1}`)
		done := w.statusOf(running).body
		for _, late := range []struct{ op, body string }{
			{"job-done", `{"output":2}`}, {"job-done", `{"status":"IN_PROGRESS","output":"50%"}`}, {"job-stream", `{"output":3}`},
		} {
			if a := honest.report(late.op, running, late.body); !refusedReport(a) {
				t.Errorf("%s %s after the end answers %s, want that it is refused", late.op, late.body, a.body)
			}
		}
		if a := w.statusOf(running).body; a != done {
			t.Errorf("after late reports the job is %s\nwant %s", a, done)
		}
	})
}

// A stock worker does not look at the answer, and goes on as if it had reported.
func TestAReportThatCanNeverBeTakenFailsItsJobAtOnceAndSaysWhy(t *testing.T) {
	result, chunk := "the worker's result", "a chunk of the worker's result"
	for _, row := range []struct{ op, body, want string }{
		{"job-done", `{"output": NaN}`, result + " is not JSON: invalid character 'N' at start of value at /output, byte 11"},
		{"job-done", `{"output": [1, Infinity]}`, result + " is not JSON: invalid character 'I' at start of value at /output/1, byte 15"},
		{"job-done", ``, result + " is empty: it must be a JSON object"},
		{"job-done", `{`, result + " is not JSON: "},
		{"job-done", `{"output":1}}`, result + " is not JSON: "},
		{"job-done", `{"output":1,"output":2}`, result + " is not JSON: duplicate"},
		{"job-done", `output=1`, result + " is not JSON: "},
		{"job-done", `[]`, result + " must be a JSON object"},
		{"job-done", `null`, result + " must be a JSON object"},
		{"job-stream", `{"output": NaN}`, chunk + " is not JSON: invalid character 'N' at start of value at /output, byte 11"},
		{"job-stream", `{"metrics":{}}`, chunk + ": /output: "},
		{"job-stream", `1`, chunk + " must be a JSON object"},
	} {
		t.Run(row.op+" "+row.body, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				h, id := w.hand("w1"), w.submit(`{}`)
				h.take()
				a := h.report(row.op, id, row.body)
				if !refusedReport(a) || !strings.HasPrefix(a.field("reason"), row.want) {
					t.Errorf("the report answers %s, want that it is refused: %s", a.body, row.want)
				}
				if s := w.statusOf(id); s.field("status") != "FAILED" || s.field("error") != a.field("reason") || !strings.Contains(s.body, `"workerId":"w1"`) {
					t.Errorf("the job is %s, want FAILED with the reason of the answer", s.body)
				}
				stop := w.call("GET", h.path("job-stop"), "", h.key())
				if told := strings.Contains(stop.body, id); told != (row.op == "job-stream") {
					t.Errorf("job-stop answers %d %s: a worker is told to stop after a chunk, and not after its result", stop.status, stop.body)
				}
				if a := h.report("job-done", id, `{"output":1}`); !refusedReport(a) {
					t.Errorf("the report after that answers %s, want that it is refused", a.body)
				}
			})
		})
	}
}

// A report that was cut off has no end, so nobody knows what it was. The worker sends it again.
func TestAReportThatWasCutOffChangesNothing(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		connect, body := w.dialPipe(), `{"output":"a result of some length"}`
		head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: podyard\r\n%s\r\n", h.path("job-done", id), h.key())
		for cut := range 20 {
			for _, sent := range []string{
				fmt.Sprintf("Content-Length: %d\r\n\r\n%s", len(body), body[:cut*len(body)/20]),
				fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s", len(body), body[:cut*len(body)/20]),
			} {
				c := connect()
				c.send(w.t, head+sent)
				_ = c.Close()
				synctest.Wait()
			}
			if a := w.statusOf(id); a.field("status") != "IN_PROGRESS" {
				t.Fatalf("after a report that was cut at %d of 20 the job is %s, want it unchanged", cut, a.body)
			}
		}
		c := connect()
		c.send(w.t, fmt.Sprintf("%sContent-Length: %d\r\n\r\n%s", head, len(body), body))
		if res, answer := c.answer(w.t); res.StatusCode != http.StatusOK || answer != accepted {
			t.Errorf("the whole report answers %d %s, want %s", res.StatusCode, answer, accepted)
		}
		if a := w.statusOf(id); a.field("status") != "COMPLETED" {
			t.Errorf("the job is %s, want COMPLETED", a.body)
		}
	})
}

func TestAResultOverTheLimitFailsItsJobAndNamesTheLimit(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id, other := w.hand("w1"), w.submit(`{}`), w.submit(`{}`)
		h.take()
		body := `{"output":"` + strings.Repeat("x", 30<<20) + `"}`
		if a := h.report("job-done", id, body); !refusedReport(a) || !strings.Contains(a.body, "20 MB") {
			t.Errorf("a result of 30 MB answers %s, want that it is refused, naming the limit", a.body)
		}
		if a := w.statusOf(id); a.field("status") != "FAILED" || !strings.Contains(a.body, "20 MB") {
			t.Errorf("the job is %s, want FAILED naming the limit", a.body)
		}
		if got := h.take(); got != other {
			t.Errorf("the next job is %q, want %s", got, other)
		}
	})
}

func TestAnItemThatDoesNotFitFailsItsJobAndNamesTheLimit(t *testing.T) {
	mega := `{"output":"` + strings.Repeat("x", 1<<20) + `"}`
	for name, tt := range map[string]struct {
		items []string
		want  string
	}{
		"one of 20 MB":         {[]string{`{"output":"` + strings.Repeat("x", 20<<20) + `"}`}, "a chunk of the worker's result is larger than 20971520 bytes (20 MB)"},
		"70 that nobody reads": {slices.Repeat([]string{mega}, 70), "a chunk was not taken: the stream is full: too many of its bytes were not read; the limit is 67108864 bytes (64 MB)"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *testAPI) {
				h, id := w.hand("w1"), w.submit(`{}`)
				h.take()
				var last answer
				for _, item := range tt.items {
					if last = h.report("job-stream", id, item); last.body != accepted {
						break
					}
				}
				if !refusedReport(last) {
					t.Errorf("the last item answers %s, want that it is refused", last.body)
				}
				h.report("job-done", id, `{"output":[]}`)
				if a := w.statusOf(id); a.field("status") != "FAILED" || a.field("error") != tt.want {
					t.Errorf("the job is %s, want FAILED: %s", a.body, tt.want)
				}
			})
		})
	}
}

func TestAWorkersKeyWorksForItsEndpointAndNothingElse(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h := w.hand("w1")
		id := w.submit(`{}`)
		for _, tt := range []struct {
			want         int
			method, path string
			key          string
		}{
			{http.StatusForbidden, "GET", "/v2/idle/job-take/w2?x=1", h.key()},
			{http.StatusForbidden, "GET", "/v2/echo/job-take/w1?x=1", h.key()},
			{http.StatusForbidden, "POST", "/v2/echo/job-done/w1/" + id + "?x=1", h.key()},
			{http.StatusForbidden, "GET", "/v2/idle/job-take/w1?x=1", "Authorization: Bearer " + aliceKey},
			{http.StatusUnauthorized, "GET", "/v2/idle/job-take/w1?x=1", "Authorization: wk_idle.w1.AAAA"},
			{http.StatusUnauthorized, "GET", "/v2/idle/ping/w1?x=1", "Authorization:"},
			{http.StatusUnauthorized, "GET", "/v2/idle/status/" + id, h.key()},
			{http.StatusUnauthorized, "POST", "/v2/idle/run", h.key()},
			{http.StatusUnauthorized, "GET", "/v2/pods", h.key()},
			{http.StatusNotFound, "GET", "/v2/nowhere/job-take/w1?x=1", "Authorization: " + w.jobs.WorkerKey("nowhere", "w1")},
			{http.StatusMethodNotAllowed, "HEAD", "/v2/idle/job-take/w1?x=1", h.key()},
			{http.StatusMethodNotAllowed, "HEAD", "/v2/idle/job-stop/w1?x=1", h.key()},
			{http.StatusMethodNotAllowed, "GET", "/v2/idle/job-done/w1/" + id + "?x=1", h.key()},
			{http.StatusOK, "GET", "/v2/idle/ping/w1?x=1", "Authorization: Bearer " + h.jobs.WorkerKey("idle", "w1")},
			{http.StatusOK, "GET", "/v2/idle/ping/w1?x=1", "Authorization: Bearer " + operatorFree},
		} {
			if a := w.call(tt.method, tt.path, "", tt.key); a.status != tt.want {
				t.Errorf("%s %s with %s = %d %s, want %d", tt.method, tt.path, tt.key, a.status, a.body, tt.want)
			}
		}
	})
}

func TestAnUnhealthyWorkersJobsGoToOthersAndItGetsNoMore(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		w.want(http.StatusOK, "GET", h.path("ping")+"&status=unhealthy&check=gpu&reason=it+burns", "", h.key())
		w.submit(`{}`)
		if got := h.take(); got != "" {
			t.Errorf("the unhealthy worker gets %s, want nothing", got)
		}
		if got := w.hand("w2").take(); got != id {
			t.Errorf("another worker gets %q, want %s, which is in front", got, id)
		}
	})
}

func TestAWorkerThatAsksToBeReplacedGetsNoMoreJobs(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		waiting := make(chan string)
		go func() { waiting <- h.take() }()
		advance(time.Second)
		h.report("job-done", id, `{"output":{"ok":1},"stopPod":true}`)
		if got := <-waiting; got != "" {
			t.Errorf("the job-take that was open answers %s, want nothing", got)
		}
		next := w.submit(`{}`)
		if got := h.take(); got != "" {
			t.Errorf("the worker gets %s, want nothing", got)
		}
		if got := w.hand("w2").take(); got != next {
			t.Errorf("its successor gets %q, want %s", got, next)
		}
	})
}

func TestItemsOfAStreamAreHandedOutAsTheyCame(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		h.report("job-stream", id, `{"output": {"tok": 0}, "metrics": {"ms": 1}}`)
		h.report("job-stream", id, `{"output":"two"}`)
		if a := w.want(http.StatusOK, "GET", "/v2/idle/stream/"+id, ""); a.body != `[{"output": {"tok": 0}, "metrics": {"ms": 1}},{"output":"two","metrics":{}}]` {
			t.Errorf("the stream is %s", a.body)
		}
		h.report("job-done", id, `{"output":[]}`)
		if a := w.want(http.StatusOK, "GET", "/v2/idle/stream/"+id+"?format=envelope", ""); a.body != `{"status":"COMPLETED","stream":[]}` {
			t.Errorf("the end of the stream is %s", a.body)
		}
	})
}

func TestMetricsThatAreNoObjectAreLeftOutAndTheOutputIsKept(t *testing.T) {
	for _, form := range []struct{ format, want string }{
		{"array", `[{"output":0,"metrics":{}},{"output":1,"a\"b":[ 2 ],"metrics":{}},{"output":2,"metrics":{}},{"output":3,"metrics":{}},{"output":4,"metrics":{}}]`},
		{"envelope", `{"status":"IN_PROGRESS","stream":[{"output":0},{"output":1,"a\"b":[ 2 ]},{"output":2},{"output":3,"metrics":{}},{"output":4}]}`},
	} {
		bubble(t, func(w *testAPI) {
			h, id := w.hand("w1"), w.submit(`{}`)
			h.take()
			for _, item := range []string{`{"output":0,"metrics":5}`, `{"metrics":[],"output":1,"a\"b":[ 2 ]}`, `{"output":2,"\u006detrics":null}`} {
				a := h.report("job-stream", id, item)
				if want := `{"accepted":true,"reason":"/metrics: must be an object, and was left out"}`; a.status != http.StatusOK || a.body != want {
					t.Errorf("the report of %s = %d %s, want %s", item, a.status, a.body, want)
				}
			}
			if a := h.report("job-stream", id, `{"output":3,"metrics":{}}`); a.body != `{"accepted":true}` {
				t.Errorf("the report of an object = %s", a.body)
			}
			kept := queue.Op{ // stored by a version that did not check metrics
				Ref: serverless.Ref{Endpoint: "idle", ID: serverless.JobID(id)}, Kind: queue.OpChunk, Worker: "w1", Adopt: true,
				Payload: []byte(`{"output":4,"metrics":"fast"}`),
			}
			if err := w.jobs.Report(t.Context(), kept); err != nil {
				t.Fatal(err)
			}
			if a := w.want(http.StatusOK, "GET", "/v2/idle/stream/"+id+"?format="+form.format, ""); a.body != form.want {
				t.Errorf("the stream is\n     %s\nwant %s", a.body, form.want)
			}
		})
	}
}

func TestBlanksAroundAnItemAreNoPartOfIt(t *testing.T) {
	bubble(t, func(w *testAPI) {
		h, id := w.hand("w1"), w.submit(`{}`)
		h.take()
		h.report("job-stream", id, " {\"output\":1}\r\n")
		a := w.want(http.StatusOK, "GET", "/v2/idle/stream/"+id+"?format=array", "")
		if want := `[{"output":1,"metrics":{}}]`; a.body != want {
			t.Errorf("the stream is %s, want %s", a.body, want)
		}
	})
}

func TestAnAnswerForOpenAIsClientsThatGrowsWithoutEndIsRefusedAndItsJobCancelled(t *testing.T) {
	bubble(t, func(w *testAPI) {
		got := make(chan answer)
		go func() {
			got <- w.call("POST", "/v2/idle/openai/v1/completions", `{"prompt":"count"}`)
		}()
		h := w.hand("w1")
		id := h.take()
		piece := `{"output":"` + strings.Repeat("x", 1<<20-100) + `"}`
		for range 25 {
			h.report("job-stream", id, piece)
			synctest.Wait()
		}
		if a := <-got; a.status != http.StatusInternalServerError || !strings.Contains(a.body, "larger than 20971520 bytes") {
			t.Errorf("the answer is %d with %d bytes: %.200s", a.status, len(a.body), a.body)
		}
		if a := w.statusOf(id); !strings.Contains(a.body, "CANCELLED") {
			t.Errorf("the job is %s, want it CANCELLED", a.body)
		}
	})
}

func TestMetricsNameTheWorkersThatTakeJobsToThoseWhoMayListThem(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, id := range []string{"w2", "w1"} {
			go w.hand(id).take()
			synctest.Wait()
		}
		for key, ids := range map[string]string{operatorFree: `"w1","w2"`, aliceFree: "", adminFree: ""} {
			a := w.want(http.StatusOK, "GET", "/v2/idle/metrics", "", "Authorization: Bearer "+key)
			want := `{"workers":{"idle":2,"initializing":0,"ready":2,"running":0,"throttled":0,"unhealthy":0},"readyWorkers":[` + ids + `]}`
			if diff := cmp.Diff(want, a.body); diff != "" {
				t.Errorf("metrics (-want +got):\n%s", diff)
			}
		}
		advance(time.Minute) // until the takes end
	})
}

func TestMetricsOfAPrivateEndpointNameWorkersToItsOwner(t *testing.T) {
	bubble(t, func(w *testAPI) {
		own := "Authorization: Bearer " + w.keyOfAlice()
		few := "Authorization: Bearer " + w.want(201, "POST", "/v2/account/keys", `{"user":"alice","scopes":["pods:read"]}`, operator).field("key")
		id := w.want(201, "POST", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"max":0},"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, own).field("id")
		go w.call("GET", "/v2/"+id+"/job-take/w9", "", own)
		synctest.Wait()
		for key, want := range map[string]string{own: `"readyWorkers":["w9"]`, operator: `"readyWorkers":["w9"]`, few: `"readyWorkers":[]`} {
			if a := w.want(200, "GET", "/v2/"+id+"/metrics", "", key); !strings.Contains(a.body, want) {
				t.Errorf("metrics for %s = %s, want %s", key, a.body, want)
			}
		}
		advance(time.Minute) // until the take ends
	})
}

// The SDK appends &job_in_progress=0 to an address without a query.
func TestAnIDOfAWorkerWithWhatTheSDKAppendsIsRefusedInWords(t *testing.T) {
	bubble(t, func(w *testAPI) {
		for _, op := range []string{"job-take", "job-take-batch", "job-stop", "ping"} {
			a := w.call("GET", "/v2/idle/"+op+"/me&job_in_progress=0", "", w.hand("me&job_in_progress=0").key())
			if a.status != http.StatusBadRequest || !strings.Contains(a.body, "?gpu=cpu") {
				t.Errorf("%s = %d %s, want 400 with what to do", op, a.status, a.body)
			}
		}
	})
}

func TestAWorkerIsToldTheNumberOfAnAttemptFromTheSecondOn(t *testing.T) {
	bubble(t, func(w *testAPI) {
		id := w.want(http.StatusOK, "POST", "/v2/idle/run", `{"input":{},"queue":{"retry":{"attempts":3,"delay":1000,"jitter":0}}}`).field("id")
		h := w.hand("w1")
		for _, want := range []string{`{"id":"` + id + `","input":{}}`, `{"id":"` + id + `","input":{},"attempt":2}`, `{"id":"` + id + `","input":{},"attempt":3}`} {
			if a := w.call("GET", h.path("job-take"), "", h.key()); a.body != want {
				t.Errorf("the worker gets %s, want %s", a.body, want)
			}
			h.report("job-done", id, `{"error":"no"}`)
		}
	})
}
