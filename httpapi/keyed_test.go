package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/problem/idempotency"
	"github.com/podyard/podyard/ratelimit/budget"
)

const (
	asAdmin = "Authorization: Bearer " + adminFree
	asRoot  = "Authorization: Bearer " + operatorFree
)

// A creation is a request that creates something, with a key, and the path that deletes it.
// Jobs are not deleted; they end with their retention.
type creation struct{ name, path, body, item string }

// creations has a row for each operation that creates something.
var creations = []creation{
	{"createPod", "/v2/pods", `{"name":"p","image":"i","cpu":{"id":"cpu3c","vcpuCount":2}}`, "/v2/pods/"},
	{"createNetworkVolume", "/v2/network-volumes", `{"name":"v","size":10,"dataCenter":"US-KS-2"}`, "/v2/network-volumes/"},
	{"createTemplate", "/v2/templates", `{"name":"t","image":"i"}`, "/v2/templates/"},
	{"createKey", "/v2/account/keys", `{"scopes":["pods:read"]}`, "/v2/account/keys/"},
	{"createCluster", "/v2/clusters", trainingCluster, "/v2/clusters/"},
	{"createRegistry", "/v2/registries", `{"name":"r","username":"u","password":"p"}`, "/v2/registries/"},
	{"createEndpoint", "/v2/serverless", `{"name":"e","type":"QUEUE","image":"i","cpu":[{"id":"cpu3c","vcpuCount":2}],"scaling":{"type":"QUEUE_DELAY","queueDelay":4}}`, "/v2/serverless/"},
	{"run", "/v2/idle/run", `{"input":{"a":1}}`, ""},
	{"runSync", "/v2/idle/runsync?wait=1000", `{"input":{"a":1}}`, ""},
	{"createSchedule", "/v2/idle/schedules", `{"cron":"0 0 1 1 *","run":{"input":{}}}`, "/v2/idle/schedules/"},
	{"createBatch", "/v2/idle/batch", `{"requests":[{"input":{"a":1}}],"finalize":true}`, ""},
}

func (c creation) status() int {
	if c.item == "" {
		return 200
	}
	return 201
}

// repeated checks that an answer is the one to a repetition.
func (w *testAPI) repeated(first, again answer) {
	w.t.Helper()
	if again.header.Get("Idempotent-Replayed") != "true" || again.status != first.status || again.field("id") != first.field("id") {
		w.t.Errorf("the repetition = %d %s with Idempotent-Replayed %q, want %d and the id %s", again.status, again.body, again.header.Get("Idempotent-Replayed"), first.status, first.field("id"))
	}
}

// An operation that is a POST either creates something and has keys, or is named here.
func TestEveryOperationThatCreatesHasKeys(t *testing.T) {
	without := []string{
		"podAction", "execPod", "resetPod", "rotateKey", "createSecret", "createGlobalVolume", "createDelegation", "redeliver",
		"reload", "cordon", "uncordon", "drain", "status", "statusSync", "stream", "cancel", "retry", "redriveDeadLetter", "purgeQueue", "actions", "openai", "runSchedule", "addToBatch", "finalizeBatch", "cancelBatch",
		"jobDone", "jobStream", "proxy",
	}
	var keyed []string
	for _, o := range httpapi.Operations() {
		switch posts := slices.Contains(o.Methods, "POST"); {
		case o.Keyed && !posts:
			t.Errorf("%s has keys and is no POST", o.Name)
		case o.Keyed:
			keyed = append(keyed, o.Name)
		case posts && !slices.Contains(without, o.Name):
			t.Errorf("%s is a POST without keys: does it create something?", o.Name)
		}
	}
	var rows []string
	for _, c := range creations {
		rows = append(rows, c.name)
	}
	if diff := cmp.Diff(keyed, rows); diff != "" {
		t.Errorf("operations with keys (-table +tested):\n%s", diff)
	}
}

func eachCreation(t *testing.T, f func(w *testAPI, c creation)) {
	t.Helper()
	for _, c := range creations {
		t.Run(c.name, func(t *testing.T) { bubble(t, func(w *testAPI) { f(w, c) }) })
	}
}

func TestARepetitionAnswersWithWhatTheFirstRequestCreated(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		first := w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		if got := first.header.Get("Idempotent-Replayed"); got != "" {
			w.t.Errorf("the first request has Idempotent-Replayed %q", got)
		}
		again := w.want(c.status(), "POST", c.path, c.body, asAdmin, `Idempotency-Key: "k"`)
		w.repeated(first, again)
		if secret := again.field("key"); secret != "" {
			w.t.Errorf("the repetition shows the secret %s", secret)
		}
		for _, other := range [][]string{{asAdmin, "Idempotency-Key: K"}, {asRoot, "Idempotency-Key: k"}, {asAdmin}} {
			if a := w.want(c.status(), "POST", c.path, c.body, other...); a.field("id") == first.field("id") || a.header.Get("Idempotent-Replayed") != "" {
				w.t.Errorf("the request with %q = %s, want another than %s", other, a.body, first.body)
			}
		}
	})
}

func TestAKeyIsForOneRequest(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		const reused = "this Idempotency-Key was used for another request: a repetition has the same path, query and body"
		sep := "?"
		if strings.Contains(c.path, "?") {
			sep = "&"
		}
		for _, r := range [][2]string{{c.path, c.body + " "}, {c.path + sep + "x=1", c.body}} {
			if a := w.want(422, "POST", r[0], r[1], asAdmin, "Idempotency-Key: k"); a.field("detail") != reused {
				w.t.Errorf("POST %s %s = %s, want %q", r[0], r[1], a.body, reused)
			}
		}
		if a := w.want(422, "POST", c.path, `{"input":1}`, asAdmin, "Idempotency-Key: k"); a.field("detail") == reused {
			w.t.Errorf("a body with faults = %s, want the faults", a.body)
		}
		w.want(400, "POST", c.path, `{`, asAdmin, "Idempotency-Key: k")
	})
}

func TestARefusedRequestLeavesItsKeyFree(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		w.want(422, "POST", c.path, `{"input":1}`, asAdmin, "Idempotency-Key: k")
		w.want(400, "POST", c.path, `{`, asAdmin, "Idempotency-Key: k")
		first := w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		w.repeated(first, w.call("POST", c.path, c.body, asAdmin, "Idempotency-Key: k"))
	})
	bubble(t, func(w *testAPI) {
		full := `{"name":"p","image":"i","gpu":{"id":"NVIDIA H200","count":9}}`
		w.want(400, "POST", "/v2/pods", full, asAdmin, "Idempotency-Key: k")
		first := w.want(201, "POST", "/v2/pods", creations[0].body, asAdmin, "Idempotency-Key: k")
		w.want(422, "POST", "/v2/pods", full, asAdmin, "Idempotency-Key: k") // the key before the capacity
		w.repeated(first, w.call("POST", "/v2/pods", creations[0].body, asAdmin, "Idempotency-Key: k"))
	})
}

// A late repetition never creates anew what was deleted.
func TestARepetitionOfWhatIsGoneIsNotFoundAndNamesIt(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		if c.name == "createBatch" {
			return // a batch is kept longer than its key
		}
		first := w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		if c.item != "" {
			w.want(204, "DELETE", c.item+first.field("id"), "", asAdmin)
			advance(time.Minute)
		} else {
			w.want(200, "POST", "/v2/idle/cancel/"+first.field("id"), "", asAdmin)
			advance(time.Hour)
		}
		gone := w.want(404, "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		if want := "the request with this Idempotency-Key created " + first.field("id") + ", which is gone"; gone.field("detail") != want {
			w.t.Errorf("the repetition = %s, want %q", gone.body, want)
		}
	})
}

func TestAKeyIsKeptFor24HoursFromTheSuccess(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		first := w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k")
		waited := time.Second // runsync
		if c.name != "runSync" {
			waited = 0
		}
		advance(idempotency.Retention - waited - time.Millisecond)
		if c.item != "" {
			w.repeated(first, w.call("POST", c.path, c.body, asAdmin, "Idempotency-Key: k"))
		}
		advance(time.Millisecond)
		if a := w.want(c.status(), "POST", c.path, c.body, asAdmin, "Idempotency-Key: k"); a.field("id") == first.field("id") {
			w.t.Errorf("the request after 24 hours = %s, want another than %s", a.body, first.body)
		}
	})
}

func TestTwinsCreateOnce(t *testing.T) {
	eachCreation(t, func(w *testAPI, c creation) {
		var first, repeated, busy atomic.Int32
		var ids sync.Map
		var calls sync.WaitGroup
		for range 16 {
			calls.Go(func() {
				switch a := w.call("POST", c.path, c.body, asAdmin, "Idempotency-Key: k"); {
				case a.status == 409:
					busy.Add(1)
				case a.status != c.status():
					w.t.Errorf("a twin = %d %s", a.status, a.body)
				case a.header.Get("Idempotent-Replayed") == "true":
					repeated.Add(1)
					ids.Store(a.field("id"), true)
				default:
					first.Add(1)
					ids.Store(a.field("id"), true)
				}
			})
		}
		calls.Wait()
		n := 0
		ids.Range(func(any, any) bool { n++; return true })
		if n != 1 || first.Load() != 1 {
			w.t.Errorf("%d ids of %d first answers, %d repetitions and %d refusals; want 1 of 1", n, first.Load(), repeated.Load(), busy.Load())
		}
	})
}

func TestARepeatedRunHasItsFirstAnswerAndARepeatedRunsyncWaitsForTheSameJob(t *testing.T) {
	bubble(t, func(w *testAPI) {
		run := w.want(200, "POST", "/v2/echo/run", `{"input":{"do":"echo"}}`, "Idempotency-Key: a")
		advance(time.Second)
		if again := w.want(200, "POST", "/v2/echo/run", `{"input":{"do":"echo"}}`, "Idempotency-Key: a"); again.body != run.body {
			t.Errorf("run again = %s, want %s", again.body, run.body)
		}
		const body = `{"input":{"do":"echo","ms":5000}}`
		sync := w.want(200, "POST", "/v2/echo/runsync?wait=1000", body, "Idempotency-Key: a")
		if got := sync.field("status"); got != "IN_PROGRESS" {
			t.Fatalf("runsync = %s, want a job that runs", sync.body)
		}
		began := time.Now()
		again := w.want(200, "POST", "/v2/echo/runsync?wait=60000", body, "Idempotency-Key: a")
		if waited := time.Since(began); again.field("status") != "COMPLETED" || again.field("id") != sync.field("id") || waited != 4*time.Second {
			t.Errorf("runsync again after %v = %s, want the end of %s after 4s", waited, again.body, sync.field("id"))
		}
		if n := strings.Count(w.want(200, "GET", "/v2/echo/requests", "").body, `"id"`); n != 2 {
			t.Errorf("%d jobs, want 2", n)
		}
	})
}

func TestARunsyncThatIsRepeatedAfterACutAndAfterItsRetentionRunsOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		const path, body, key = "/v2/echo/runsync?wait=60000", `{"input":{"do":"echo","ms":5000}}`, "Idempotency-Key: cut"
		cut, cancel := context.WithTimeout(w.t.Context(), time.Second)
		defer cancel()
		if res, err := (handlerTransport{w.handler}).RoundTrip(w.request(cut, "POST", path, body, key)); err == nil {
			_ = res.Body.Close()
		}
		again := w.want(200, "POST", path, body, key)
		if again.field("status") != "COMPLETED" {
			t.Errorf("after a cut runsync = %s, want the result", again.body)
		}
		if n := strings.Count(w.want(200, "GET", "/v2/echo/requests", "").body, `"id"`); n != 1 {
			t.Errorf("%d jobs, want 1", n)
		}
		advance(time.Hour)
		if gone := w.want(404, "POST", path, body, key); !strings.Contains(gone.body, again.field("id")) {
			t.Errorf("after its retention runsync = %s, want a 404 that names %s", gone.body, again.field("id"))
		}
		if health := w.want(200, "GET", "/v2/echo/health", "").body; !strings.Contains(health, `"completed":1`) {
			t.Errorf("health = %s, want one job that ran", health)
		}
	})
}

func TestAnEndpointThatIsDeletedDropsItsKeys(t *testing.T) {
	bubble(t, func(w *testAPI) {
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Idempotency-Key: a")
		if err := w.jobs.UndeclareEndpoint(t.Context(), "idle"); err != nil {
			t.Fatal(err)
		}
		w.want(404, "POST", "/v2/idle/run", `{"input":{}}`, "Idempotency-Key: a")
		advance(time.Second)
		if err := w.jobs.EnsureEndpoint(t.Context(), "idle"); err != nil {
			t.Fatal(err)
		}
		if a := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Idempotency-Key: a"); a.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("run on a new endpoint of the same id is a repetition: %s", a.body)
		}
	})
}

func TestAMalformedKeyIsRefused(t *testing.T) {
	const want = "Idempotency-Key must be sent once and have 1 to 255 visible ASCII characters"
	eachCreation(t, func(w *testAPI, c creation) {
		long := strings.Repeat("x", idempotency.MaxKey)
		for _, key := range []string{"a b", "ä", "\x7f", "\"\"", long + "x", `"` + long + `x"`} {
			if a := w.want(400, "POST", c.path, c.body, asAdmin, "Idempotency-Key: "+key); a.field("detail") != want {
				w.t.Errorf("the key %q = %s, want %q", key, a.body, want)
			}
		}
		w.want(c.status(), "POST", c.path, c.body, asAdmin, `Idempotency-Key: "`+long+`"`)
		for _, values := range [][]string{{""}, {"a", "a"}} {
			r := w.request(w.t.Context(), "POST", c.path, c.body, asAdmin)
			r.Header["Idempotency-Key"] = values
			res, err := handlerTransport{w.handler}.RoundTrip(r)
			if err != nil {
				w.t.Fatal(err)
			}
			_ = res.Body.Close()
			if res.StatusCode != http.StatusBadRequest {
				w.t.Errorf("the keys %q = %d, want 400", values, res.StatusCode)
			}
		}
	})
	bubble(t, func(w *testAPI) { // other operations do not look at the header
		synctest.Wait()
		w.want(200, "GET", "/v2/pods", "", "Idempotency-Key: a b")
		w.want(200, "POST", "/v2/idle/purge-queue", "", "Idempotency-Key: a b")
		w.want(404, "POST", "/v2/nowhere/run", "{", "Idempotency-Key: a b")
		w.want(415, "POST", "/v2/pods", "{}", "Idempotency-Key: a b", "Content-Type: text/plain")
		w.want(400, "POST", "/v2/pods", "{", "Idempotency-Key: "+fmt.Sprint(1))
	})
}

func TestTheBudgetOfKeysRefusesNewKeysAndNoRepetitions(t *testing.T) {
	limits := limitedTo(budget.Limits{IdempotencyKeys: 2}, budget.Totals{})
	bubbleWith(t, limits, func(w *testAPI) {
		as, key := "Authorization: Bearer "+aliceKey, "Idempotency-Key: "
		first := w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, as, key+"a")
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, as, key+"b")
		full := w.want(429, "POST", "/v2/idle/run", `{"input":{}}`, as, key+"c")
		if detail := full.field("detail"); !strings.Contains(detail, "the budget idempotencyKeys is full: 2 of 2") || full.header.Get("Retry-After") != "600" {
			w.t.Errorf("%q with Retry-After %q", detail, full.header.Get("Retry-After"))
		}
		w.repeated(first, w.call("POST", "/v2/idle/run", `{"input":{}}`, as, key+"a"))
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, as)
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+bobKey, key+"c")
		for i := range 3 { // an exempt key
			w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, "Authorization: Bearer "+aliceFree, fmt.Sprint(key, "free", i))
		}
		time.Sleep(25 * time.Hour)
		w.want(200, "POST", "/v2/idle/run", `{"input":{}}`, as, key+"c")
	})
}
