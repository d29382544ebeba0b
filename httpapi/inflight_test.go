package httpapi_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// limitedTo gives every user the same limits.
func limitedTo(l budget.Limits, all budget.Totals) func(*httpapi.Options) {
	return func(o *httpapi.Options) {
		o.InFlight = budget.NewInFlight(budget.NewSet(budget.Users{Limits: l}), all, time.Now)
	}
}

// head begins a POST of a user.
func head(key, path string, length int) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: podyard.test\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n", path, key, length)
}

func (w *testAPI) wantHeld(p *budget.Pool, user string, want int64) {
	w.t.Helper()
	synctest.Wait()
	if of, _, _ := p.InUse(user); of != want {
		w.t.Errorf("%s holds %d, want %d", user, of, want)
	}
}

func TestABodyWaitsUnreadForRoomAndIsRefusedAfter30Seconds(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{RequestBytes: 1 << 20}, budget.Totals{}), func(w *testAPI) {
		connect, held := w.dialPipe(), w.options.InFlight.Requests
		body := string(padded(`{"input":{}}`, 1<<20))
		first := connect()
		first.send(w.t, head(aliceKey, "/v2/idle/run", len(body))+body[:1<<20-1])
		w.wantHeld(held, "alice", 1<<20)

		began := time.Now()
		refused := connect()
		refused.send(w.t, head(aliceKey, "/v2/idle/run", 1000))
		res, answer := refused.answer(w.t)
		if res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !strings.Contains(answer, "requestBytes is full: 1048576 of 1048576") || !res.Close {
			w.t.Errorf("a body without room: %d %v %s", res.StatusCode, res.Header, answer)
		}
		if took := time.Since(began); took < 30*time.Second || took > 33*time.Second {
			w.t.Errorf("it was refused after %v", took)
		}

		other := connect()
		other.send(w.t, head(bobKey, "/v2/idle/run", 12)+`{"input":{}}`)
		if res, _ := other.answer(w.t); res.StatusCode != http.StatusOK {
			w.t.Errorf("another user gets %d", res.StatusCode)
		}
		exempt := connect()
		exempt.send(w.t, head(aliceFree, "/v2/idle/run", 12)+`{"input":{}}`)
		if res, _ := exempt.answer(w.t); res.StatusCode != http.StatusOK {
			w.t.Errorf("an exempt key gets %d", res.StatusCode)
		}

		second := connect()
		second.send(w.t, head(aliceKey, "/v2/idle/run", 12)) // and nothing: it waits for room
		synctest.Wait()
		first.send(w.t, body[1<<20-1:])
		if res, _ := first.answer(w.t); res.StatusCode != http.StatusOK {
			w.t.Errorf("the first body = %d", res.StatusCode)
		}
		second.send(w.t, `{"input":{}}`)
		if res, _ := second.answer(w.t); res.StatusCode != http.StatusOK {
			w.t.Errorf("the one that has waited = %d", res.StatusCode)
		}
		w.wantHeld(held, "alice", 0)
	})
}

func TestAnAnnouncedBodyTakesNoMoreRoomThanWhatHasArrived(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{RequestBytes: 8 << 20}, budget.Totals{}), func(w *testAPI) {
		connect := w.dialPipe()
		for range 20 {
			connect().send(w.t, head(aliceKey, "/v2/idle/run", 10<<20)+"{")
		}
		w.wantHeld(w.options.InFlight.Requests, "alice", 20*64<<10)
	})
}

func TestBodiesThatGrowTogetherBeyondTheLimitAllArrive(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{RequestBytes: 1 << 20}, budget.Totals{RequestBytes: 1 << 20}), func(w *testAPI) {
		connect := w.dialPipe()
		done := make(chan int, 6)
		for range cap(done) {
			go func() {
				c := connect()
				c.send(w.t, head(aliceKey, "/v2/idle/run", 900<<10)+string(padded(`{"input":{}}`, 900<<10)))
				res, _ := c.answer(w.t)
				done <- res.StatusCode
			}()
		}
		for range cap(done) {
			if status := <-done; status != 200 {
				w.t.Errorf("a body = %d", status)
			}
		}
		w.wantHeld(w.options.InFlight.Requests, "alice", 0)
	})
}

func TestAClientThatDoesNotReadALargeAnswerIsCutOffAndAWaitIsNot(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{ResponseBytes: 4 << 20}, budget.Totals{}), func(w *testAPI) {
		connect, held := w.dialPipe(), w.options.InFlight.Responses
		job := w.call("POST", "/v2/echo/runsync", `{"input":{"do":"echo","pad":"`+strings.Repeat("x", 3<<20)+`"}}`, "Authorization: Bearer "+aliceFree).field("id")
		ask := "GET /v2/echo/status/" + job + " HTTP/1.1\r\nHost: podyard.test\r\nAuthorization: Bearer " + aliceKey + "\r\n\r\n"
		slow := connect()
		slow.send(w.t, ask)
		synctest.Wait()
		if of, _, _ := held.InUse("alice"); of < 3<<20 || of > 4<<20 {
			w.t.Errorf("an answer of 3 MB counts %d bytes", of)
		}
		waits := connect()
		waits.send(w.t, strings.Replace(ask, "/echo/status/"+job, "/idle/job-stop/w", 1))
		time.Sleep(time.Second) // the client that does not read is cut off before this one has waited too long
		began := time.Now()
		next := connect()
		next.send(w.t, ask)
		if res, answer := next.answer(w.t); res.StatusCode != http.StatusOK || len(answer) < 3<<20 {
			w.t.Errorf("the next answer = %d with %d bytes", res.StatusCode, len(answer))
		}
		if took := time.Since(began); took < 28*time.Second || took > 30*time.Second {
			w.t.Errorf("it waited %v for the one that nobody reads", took)
		}
		if n, _ := io.Copy(io.Discard, slow.Reader); n > 1<<20 {
			w.t.Errorf("the client that did not read gets %d bytes later", n)
		}
		w.wantHeld(held, "alice", 0)
	})
}

func TestARunSyncWithoutRoomForItsOutputNamesTheJob(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{ResponseBytes: 1 << 20}, budget.Totals{}), func(w *testAPI) {
		full := w.options.InFlight.Responses.Hold("alice")
		full.Force(1 << 20)
		a := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"do":"echo","pad":"`+strings.Repeat("x", 100_000)+`"}}`, "Authorization: Bearer "+aliceKey)
		if a.field("status") != "IN_PROGRESS" || a.field("id") == "" {
			w.t.Errorf("runsync = %s", a.body[:100])
		}
		ask := "/v2/echo/status/" + a.field("id")
		refused := w.want(429, "GET", ask, "", "Authorization: Bearer "+aliceKey)
		if refused.header.Get("Retry-After") == "" {
			w.t.Error("a 429 does not say when to come again")
		}
		full.Release()
		w.want(200, "GET", ask, "", "Authorization: Bearer "+aliceKey)
	})
}

func TestRequestsThatStayOpenAreCountedForTheirUser(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{Connections: 2, Streams: 1}, budget.Totals{}), func(w *testAPI) {
		connect := w.dialPipe()
		job := w.call("POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+aliceFree).field("id")
		ask := func(path string) (c rawConn) {
			c = connect()
			c.send(w.t, "GET "+path+" HTTP/1.1\r\nHost: podyard.test\r\nAuthorization: Bearer "+aliceKey+"\r\n\r\n")
			synctest.Wait()
			return c
		}
		wait := "/v2/idle/status-sync/" + job
		first := ask(wait)
		ask("/v2/idle/stream/" + job + "?wait=90000")
		for path, name := range map[string]string{wait: "connections", "/v2/idle/events": "streams"} {
			if name == "streams" {
				ask(path)
			}
			if res, answer := ask(path).answer(w.t); res.StatusCode != http.StatusTooManyRequests || res.Header.Get("Retry-After") != "1" || !strings.Contains(answer, "budget "+name+" is full") {
				w.t.Errorf("one more %s = %d %s", path, res.StatusCode, answer)
			}
		}
		_ = first.Close()
		synctest.Wait()
		ask(wait)
		w.wantHeld(w.options.InFlight.Open[budget.Connections], "alice", 2)
		time.Sleep(5 * time.Minute)
		w.wantHeld(w.options.InFlight.Open[budget.Connections], "alice", 0)
	})
}

func TestALongListIsWrittenInPartsAndIsTheSame(t *testing.T) {
	bubble(t, func(w *testAPI) {
		var want []string
		for i := range 40 {
			name := fmt.Sprintf("t%02d", i)
			body := fmt.Sprintf(`{"name":%q,"image":"org/a","env":{"A":%q}}`, name, strings.Repeat("<x>", 2000))
			w.want(201, "POST", "/v2/templates", body, "Authorization: Bearer "+aliceFree)
			want = append(want, name)
		}
		c := w.dialPipe()()
		c.send(w.t, "GET /v2/templates HTTP/1.1\r\nHost: podyard.test\r\nAuthorization: Bearer "+aliceFree+"\r\n\r\n")
		res, answer := c.answer(w.t)
		if res.StatusCode != http.StatusOK || len(res.TransferEncoding) != 1 || res.Header.Get("Content-Type") != "application/json" {
			w.t.Errorf("the list = %d %v", res.StatusCode, res.Header)
		}
		for _, name := range want {
			if strings.Count(answer, `"name":"`+name+`"`) != 1 {
				w.t.Errorf("the list has not %s once", name)
			}
		}
		if whole := w.call("GET", "/v2/templates", "", "Authorization: Bearer "+aliceFree); whole.body != answer {
			w.t.Error("the parts are not the whole")
		}
	})
}

// A readsQueue counts how often jobs are read with their payloads.
type readsQueue struct {
	serverless.JobQueue
	reads atomic.Int64
}

func (q *readsQueue) Get(ctx context.Context, now queue.Instant, ref serverless.Ref) (serverless.Job, error) {
	q.reads.Add(1)
	return q.JobQueue.Get(ctx, now, ref)
}

func TestALargeOutputIsNotReadBeforeThereIsRoomForIt(t *testing.T) {
	bubble(t, func(w *testAPI) {
		jobs := &readsQueue{JobQueue: memory.NewJobs()}
		w.jobs = serverless.New(jobs, newEndpoints(w.t), nil)
		run(w.t, w.jobs.Run)
		run(w.t, func(ctx context.Context) error {
			return w.jobs.Serve(ctx, "echo", serverless.WorkerFunc(work), &serverless.ServeOptions{Drain: time.Millisecond})
		})
		limitedTo(budget.Limits{ResponseBytes: 1 << 20}, budget.Totals{})(&w.options)
		w.handler = httpapi.NewJobs(w.jobs, &w.options)
		job := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"do":"echo","pad":"`+strings.Repeat("x", 100_000)+`"}}`).field("id")
		full := w.options.InFlight.Responses.Hold("alice")
		full.Force(1 << 20)
		jobs.reads.Store(0)
		var all sync.WaitGroup
		for _, ask := range []string{"status", "status", "status-sync"} {
			all.Go(func() { w.want(429, "GET", "/v2/echo/"+ask+"/"+job, "") })
		}
		all.Wait()
		if n := jobs.reads.Load(); n != 0 {
			w.t.Errorf("answers without room have read the output %d times", n)
		}
		for _, ask := range []string{"status", "status-sync"} {
			all.Go(func() { w.want(200, "GET", "/v2/echo/"+ask+"/"+job, "") })
		}
		synctest.Wait()
		full.Release()
		all.Wait()
		if n := jobs.reads.Load(); n != 2 {
			w.t.Errorf("two answers have read the output %d times", n)
		}
	})
}

// roomy has a job with a large output and chunks, and another one for workers that is queued.
func roomy(t *testing.T, room int64, f func(w *testAPI, full *budget.Hold, asks map[string]func() answer)) {
	t.Helper()
	const workKey = "key-of-a-worker-of-alice"
	set := func(o *httpapi.Options) {
		limitedTo(budget.Limits{ResponseBytes: room}, budget.Totals{})(o)
		known, err := httpapi.NewKeys([]httpapi.Key{{Secret: workKey, User: "alice", Scopes: []string{"*", "operator"}}}, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		o.Auth = httpapi.AnyOf(o.Auth, known)
	}
	bubbleWith(t, set, func(w *testAPI) {
		large := strings.Repeat("x", 200_000)
		as := "Authorization: Bearer " + aliceKey
		done := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"do":"echo","pad":"`+large+`"}}`, as).field("id")
		streams := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, as).field("id")
		w.want(200, "GET", "/v2/idle/job-take/w1", "", "Authorization: Bearer "+operatorFree)
		w.want(200, "POST", "/v2/idle/job-stream/w1/"+streams, `{"output":"`+large+`"}`, "Authorization: Bearer "+operatorFree)
		w.want(200, "POST", "/v2/idle/run", `{"input":{"pad":"`+large+`"}}`, as)
		get := func(path, key string) func() answer {
			return func() answer { return w.call("GET", path, "", "Authorization: Bearer "+key) }
		}
		full := w.options.InFlight.Responses.Hold("alice")
		f(w, &full, map[string]func() answer{
			"a status":          get("/v2/echo/status/"+done, aliceKey),
			"a part":            get("/v2/idle/stream/"+streams, aliceKey),
			"a job of a worker": get("/v2/idle/job-take/w1", workKey),
			"an OpenAI answer": func() answer {
				return w.call("POST", "/v2/echo/openai/v1/x", `{"do":"echo","pad":"`+large+`"}`, as)
			},
		})
	})
}

func TestWhatIsLargerThanAllRoomForAnswersComesAllTheSame(t *testing.T) {
	roomy(t, 100_000, func(w *testAPI, _ *budget.Hold, asks map[string]func() answer) {
		for name, ask := range asks {
			if a := ask(); a.status != 200 || len(a.body) < 200_000 {
				w.t.Errorf("%s of 200,000 bytes with room for 100,000 = %d with %d bytes %.200s", name, a.status, len(a.body), a.body)
			}
		}
		w.wantHeld(w.options.InFlight.Responses, "alice", 0)
	})
}

func TestEveryLargeAnswerWaitsForRoom(t *testing.T) {
	roomy(t, 1<<20, func(w *testAPI, full *budget.Hold, asks map[string]func() answer) {
		full.Force(1 << 20)
		var all sync.WaitGroup
		var mu sync.Mutex
		came := map[string]bool{}
		for name, ask := range asks {
			all.Go(func() {
				a := ask()
				mu.Lock()
				defer mu.Unlock()
				if came[name] = true; a.status != 200 || len(a.body) < 200_000 {
					w.t.Errorf("%s = %d with %d bytes %.200s", name, a.status, len(a.body), a.body)
				}
			})
		}
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mu.Lock()
		if len(came) > 0 {
			w.t.Errorf("without room came %v", came)
		}
		mu.Unlock()
		full.Release()
		all.Wait()
		w.wantHeld(w.options.InFlight.Responses, "alice", 0)
	})
}

// Who does not read has some answers with records, each of which may have a megabyte, and no more.
func TestAnswersWithRecordsTakeTurns(t *testing.T) {
	bubbleWith(t, limitedTo(budget.Limits{ResponseBytes: 1 << 20}, budget.Totals{}), func(w *testAPI) {
		turns := w.options.InFlight.Records.Hold("alice")
		for turns.Try(1) {
		}
		as := "Authorization: Bearer " + aliceKey
		for _, path := range []string{"/v2/pods/none", "/v2/templates/none", "/v2/echo/schedules/none", "/v2/echo/dead/none", "/v2/echo/attempts/none", "/v2/echo/batch/none"} {
			if a := w.call("GET", path, "", as); a.status != 429 || !strings.Contains(a.body, "responseBytes") {
				w.t.Errorf("%s without a turn = %d %s", path, a.status, a.body)
			}
		}
		w.want(200, "POST", "/v2/echo/run", `{"input":{}}`, as) // has no record
		turns.Release()
		w.want(404, "GET", "/v2/pods/none", "", as)
	})
}
