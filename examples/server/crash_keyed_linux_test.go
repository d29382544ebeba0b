package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// tally is an endpoint whose only worker is the test.
const tally = "tally"

const (
	keyedRounds  = 4
	keyedCallers = 8
)

// A keyedCrash is a server that is killed while callers wait for runsync requests with keys. Its
// worker outlives it.
type keyedCrash struct {
	queueCrash
	callers sync.WaitGroup

	mu      sync.Mutex
	runs    map[string]int           // by key
	gates   map[string]chan struct{} // by key: the run may end
	answers map[string]keyedAnswer   // the last one, by key
	firsts  map[string]int           // answers that are no repetitions, by key
	cut     int                      // requests without an answer
}

// A keyedAnswer is an answer to a runsync.
type keyedAnswer struct {
	ID, Status, body string
	replayed         bool
}

// TestCrashesRunAKeyedRunsyncOnce kills the server twice for each request: when it is submitted, and
// when its job ends. Callers repeat the request until they have the result:
//
//   - a key has one job, which runs once
//   - every answer names this job, and at most one of them is not a repetition
//   - a later repetition is answered with the same result
func TestCrashesRunAKeyedRunsyncOnce(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	seed := crashSeed(t)
	c := &keyedCrash{
		queueCrash: queueCrash{t: t, rng: rand.New(rand.NewPCG(seed, 0))},
		runs:       map[string]int{}, gates: map[string]chan struct{}{}, answers: map[string]keyedAnswer{}, firsts: map[string]int{},
	}
	config := file(t, `{"endpoints":[{"id":"`+tally+`","image":"`+demo.HelloImage+`","cpu":[{"id":"host","vcpuCount":2}],"workers":{"max":0}}]}`)
	c.args = []string{"-addr", suite.FreeAddress(t), "-data", t.TempDir(), "-config", config}
	c.in = start(t, c.args...)
	for n := range keyedRounds {
		if c.round(n); t.Failed() {
			return
		}
	}
	c.check()
	c.in.stop()
}

// round has callers submit jobs, and kills the server before a worker asks for them. When all run,
// it lets them end and kills the server again.
func (c *keyedCrash) round(n int) {
	keys := make([]string, keyedCallers)
	for i := range keys {
		keys[i] = fmt.Sprintf("key-%d-%d", n, i)
		c.addGate(keys[i])
		c.callers.Go(func() { c.repeatUntilDone(keys[i]) })
	}
	c.kill(time.Duration(c.rng.IntN(60)) * time.Millisecond)

	ctx, stop := context.WithCancel(c.t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- worker.Run(ctx, serverless.WorkerFunc(c.work), &worker.Options{
			URL: c.in.url + "/v2", Endpoint: tally, Key: c.in.key, ID: fmt.Sprint("outside-", n), Concurrency: keyedCallers,
		})
	}()
	eventually(c.t, "every job runs", func() bool { return c.running(keys) == len(keys) })
	get[job](c.in, "POST", "/v2/echo/run", `{"input":{}}`, http.StatusOK) // durable, and with it the claims
	for i, key := range keys {
		time.AfterFunc(time.Duration(i)*3*time.Millisecond, func() { close(c.gate(key)) })
	}
	c.kill(time.Duration(c.rng.IntN(30)) * time.Millisecond)
	c.callers.Wait()
	stop()
	if err := <-ended; err != nil {
		c.t.Error(err)
	}
}

// work runs a job: it counts the run and waits until it may end.
func (c *keyedCrash) work(ctx context.Context, t *serverless.Task) ([]byte, error) {
	var in struct{ Key string }
	if err := json.Unmarshal(t.Input, &in); err != nil {
		return nil, err
	}
	c.mu.Lock()
	c.runs[in.Key]++
	out := fmt.Appendf(nil, `{"run":%d}`, c.runs[in.Key])
	c.mu.Unlock()
	select {
	case <-c.gate(in.Key):
		return out, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

func (c *keyedCrash) addGate(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.gates[key] = make(chan struct{})
}

func (c *keyedCrash) gate(key string) chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.gates[key]
}

func (c *keyedCrash) running(keys []string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, key := range keys {
		n += min(c.runs[key], 1)
	}
	return n
}

// runsync makes the request of a key. An error means that there was no answer.
func (c *keyedCrash) runsync(key string) (status int, a keyedAnswer, err error) {
	c.queueCrash.mu.RLock()
	r := c.in.request(http.MethodPost, "/v2/"+tally+"/runsync?wait=1000", fmt.Sprintf(`{"input":{"key":%q}}`, key))
	c.queueCrash.mu.RUnlock()
	r.Header.Set("Idempotency-Key", key)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, a, err
	}
	defer resp.Body.Close()
	a.replayed = resp.Header.Get("Idempotent-Replayed") == "true"
	var b json.RawMessage
	if err := json.NewDecoder(resp.Body).Decode(&b); err != nil {
		return 0, a, err // it was cut
	}
	a.body = string(b)
	return resp.StatusCode, a, json.Unmarshal(b, &a)
}

// repeatUntilDone repeats the request of a key until it is answered with the end of the job.
func (c *keyedCrash) repeatUntilDone(key string) {
	for began := time.Now(); time.Since(began) < 4*patience; { // two servers start in it
		status, a, err := c.runsync(key)
		switch {
		case err != nil:
			c.countCut()
			continue
		case status == http.StatusConflict, status == http.StatusServiceUnavailable, status == http.StatusTooManyRequests:
			time.Sleep(10 * time.Millisecond)
			continue
		case status != http.StatusOK:
			c.t.Errorf("runsync with %s = %d %s", key, status, a.body)
			return
		}
		if c.note(key, a); a.Status == "COMPLETED" {
			return
		}
	}
	c.t.Errorf("runsync with %s is not answered", key)
}

// countCut counts a request without an answer, and waits before the next one.
func (c *keyedCrash) countCut() {
	c.mu.Lock()
	c.cut++
	c.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
}

func (c *keyedCrash) note(key string, a keyedAnswer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	before, ok := c.answers[key]
	if ok && before.ID != a.ID {
		c.t.Errorf("runsync with %s = %s, after an answer with %s", key, a.body, before.ID)
	}
	c.answers[key] = a
	if !a.replayed {
		c.firsts[key]++
	}
}

// check repeats every request once more, when no callers are left.
func (c *keyedCrash) check() {
	c.t.Logf("%d keys, %d requests without an answer", len(c.answers), c.cut)
	for key, last := range c.answers {
		status, again, err := c.runsync(key)
		if err != nil || status != http.StatusOK || again.body != last.body || !again.replayed {
			c.t.Errorf("runsync with %s later = %d %s (a repetition: %v) %v, want %s", key, status, again.body, again.replayed, err, last.body)
		}
		if c.runs[key] != 1 || c.firsts[key] > 1 {
			c.t.Errorf("the job of %s ran %d times, and %d answers were no repetitions; want one run and at most one", key, c.runs[key], c.firsts[key])
		}
	}
	all := get[struct{ Jobs []struct{ ID string } }](c.in, "GET", "/v2/serverless/"+tally+"/jobs?limit=1000", "", http.StatusOK)
	if want := keyedRounds * keyedCallers; len(all.Jobs) != want || len(c.answers) != want {
		c.t.Errorf("%d jobs and %d keys with an answer, want %d", len(all.Jobs), len(c.answers), want)
	}
}
