package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/cluster/balancer"
	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
)

// A cluster is two servers over one database, and a balancer that sends each request to the other
// one of them in turn.
type cluster struct {
	t       *testing.T
	args    []string  // of both servers
	dirs    [2]string // of what is a server's own
	servers [2]*instance
	proxy   *balancer.Balancer
	front   *instance // the balancer, as clients see it
	work    string    // an endpoint whose workers are those of startWorker
}

const clusterKey = "key-of-a-cluster" // has no rates and no quotas

func newCluster(t *testing.T) *cluster {
	t.Helper()
	var postgresql postgrestest.Server
	t.Cleanup(postgresql.Stop)
	c := &cluster{t: t, proxy: balancer.New(&balancer.Options{Every: 50 * time.Millisecond})}
	srv := httptest.NewServer(c.proxy)
	t.Cleanup(srv.Close)
	c.front = &instance{t: t, url: srv.URL, key: clusterKey}
	config := strings.TrimSuffix(string(readFile(t, secretConfig(t))), "}") +
		`,"catalog":"sample","webhook":{"allowPrivate":true},"keys":[{"key":"` + clusterKey + `","user":"crowd","scopes":["*","operator"],"exempt":true}]}`
	c.args = []string{
		"-addr", "127.0.0.1:0", "-data", postgresql.Empty(t), "-runtime", "sim", "-drain-wait", "3s",
		"-public-url", srv.URL, "-config", file(t, config),
	}
	for i := range c.servers {
		c.begin(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.proxy.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	c.work = get[struct{ ID string }](c.front, "POST", "/v2/serverless", `{"name":"work","type":"QUEUE","image":"example/work",`+
		`"cpu":[{"id":"cpu3c","vcpuCount":2}],"workers":{"min":0,"max":1},"scaling":{"type":"REQUEST_COUNT","requestCount":100}}`, http.StatusCreated).ID
	return c
}

// in is the cluster for a subtest.
func (c *cluster) in(t *testing.T) *cluster {
	sub := &cluster{t: t, work: c.work, front: &instance{t: t, url: c.front.url, key: c.front.key}}
	for i, in := range c.servers {
		sub.servers[i] = &instance{t: t, url: in.url, key: in.key}
	}
	return sub
}

func readFile(t *testing.T, path string) []byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// begin starts a server, and has the balancer use it.
func (c *cluster) begin(i int) {
	c.t.Helper()
	if c.dirs[i] == "" {
		c.dirs[i] = c.t.TempDir()
	}
	args := append(slices.Clone(c.args), "-local", c.dirs[i], "-name", fmt.Sprint("server-", i))
	c.servers[i] = startCommand(c.t, command(c.t, []string{"PODYARD_API_KEY=" + testKey}, args...))
	c.servers[i].key = clusterKey
	c.proxy.Set(c.t.Context(), urlsOf(c.t, c.servers[:])...)
}

// urlsOf returns the URLs of the servers that run.
func urlsOf(t *testing.T, servers []*instance) (urls []*url.URL) {
	t.Helper()
	for _, in := range servers {
		if in == nil {
			continue
		}
		u, err := url.Parse(in.url)
		if err != nil {
			t.Fatal(err)
		}
		urls = append(urls, u)
	}
	return urls
}

// A clusterWorker is a worker outside of the servers. It echoes its input.
type clusterWorker struct {
	mu      sync.Mutex
	runs    map[serverless.JobID]int
	stopped map[serverless.JobID]bool // their contexts ended before they did
}

// startWorker runs a worker that asks the server at an URL.
func (c *cluster) startWorker(at, id string, slots int) *clusterWorker {
	w := &clusterWorker{runs: map[serverless.JobID]int{}, stopped: map[serverless.JobID]bool{}}
	ctx, cancel := context.WithCancel(c.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		o := &worker.Options{URL: at + "/v2", Endpoint: c.work, Key: clusterKey, ID: id, Concurrency: slots, Ping: 300 * time.Millisecond, Drain: time.Millisecond}
		if err := worker.Run(ctx, serverless.WorkerFunc(w.work), o); err != nil && ctx.Err() == nil {
			c.t.Errorf("worker %s: %v", id, err)
		}
	})
	c.t.Cleanup(func() { cancel(); running.Wait() })
	return w
}

func (w *clusterWorker) work(ctx context.Context, task *serverless.Task) ([]byte, error) {
	w.mu.Lock()
	w.runs[task.ID]++
	w.mu.Unlock()
	out, err := demo.Echo(ctx, task)
	if ctx.Err() != nil {
		w.mu.Lock()
		w.stopped[task.ID] = true
		w.mu.Unlock()
	}
	return out, err
}

func (w *clusterWorker) sees(f func(*clusterWorker) bool) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return f(w)
}

// completes waits until a job has completed.
func (in *instance) completes(endpoint, id string) job {
	in.t.Helper()
	var j job
	eventually(in.t, "job "+id+" completes", func() bool {
		j = get[job](in, "GET", "/v2/"+endpoint+"/status/"+id, "", http.StatusOK)
		return j.Status == "COMPLETED"
	})
	return j
}

func TestServersOverOneDatabaseAnswerAsOne(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	c := newCluster(t)
	w := c.startWorker(c.servers[1].url, "w", 8)
	for name, rule := range map[string]func(*testing.T, *cluster, *clusterWorker){
		"a job that one takes is run at the other": func(t *testing.T, c *cluster, _ *clusterWorker) {
			began := time.Now()
			j := get[job](c.servers[0], "POST", "/v2/"+c.work+"/runsync", `{"input":{"a":1}}`, http.StatusOK)
			if j.Status != "COMPLETED" || string(j.Output) != `{"a":1}` || time.Since(began) > suite.Within(5*time.Second) {
				t.Errorf("runsync = %+v after %v", j, time.Since(began))
			}
			for _, in := range c.servers {
				if got := get[job](in, "GET", "/v2/"+c.work+"/status/"+j.ID, "", http.StatusOK); got.Status != "COMPLETED" {
					t.Errorf("status = %+v, want COMPLETED", got)
				}
			}
		},
		"chunks are read where the client asks": func(t *testing.T, c *cluster, _ *clusterWorker) {
			id := get[job](c.front, "POST", "/v2/"+c.work+"/run", `{"input":{"chunks":50}}`, http.StatusOK).ID
			var got []string
			for {
				part := get[struct {
					Status string
					Stream []struct{ Output json.RawMessage }
				}](c.front, "GET", "/v2/"+c.work+"/stream/"+id+"?format=envelope", "", http.StatusOK)
				for _, s := range part.Stream {
					got = append(got, string(s.Output))
				}
				if part.Status == "COMPLETED" && len(part.Stream) == 0 {
					break
				}
			}
			if want := `{"chunk":49}`; len(got) != 50 || got[49] != want {
				t.Errorf("%d chunks, the last one of %q, want 50 with %s at the end", len(got), got, want)
			}
		},
		"a cancel reaches the worker": func(t *testing.T, c *cluster, w *clusterWorker) {
			id := get[job](c.front, "POST", "/v2/"+c.work+"/run", `{"input":{"sleep_ms":60000}}`, http.StatusOK).ID
			eventually(t, "the job runs", func() bool {
				return w.sees(func(w *clusterWorker) bool { return w.runs[serverless.JobID(id)] == 1 })
			})
			if j := get[job](c.servers[0], "POST", "/v2/"+c.work+"/cancel/"+id, "", http.StatusOK); j.Status != "CANCELLED" {
				t.Errorf("cancel = %+v", j)
			}
			began := time.Now()
			eventually(t, "the worker stops", func() bool {
				return w.sees(func(w *clusterWorker) bool { return w.stopped[serverless.JobID(id)] })
			})
			if took := time.Since(began); took > suite.Within(3*time.Second) {
				t.Errorf("the worker heard of it after %v", took)
			}
		},
		"a webhook comes":               webhookComes,
		"a batch is counted":            batchIsCounted,
		"limits are those of both":      limitsAreShared,
		"keys are those of both":        keysAreShared,
		"an idempotency key is of both": idempotencyIsShared,
	} {
		t.Run(name, func(t *testing.T) { rule(t, c.in(t), w) })
	}
}

func webhookComes(t *testing.T, c *cluster, _ *clusterWorker) {
	hook, posts := receiver(t)
	id := get[job](c.servers[0], "POST", "/v2/"+c.work+"/run", `{"input":{},"webhook":"`+hook+`"}`, http.StatusOK).ID
	select {
	case p := <-posts:
		if !strings.Contains(string(p.body), id) {
			t.Errorf("the webhook brings %s, want %s", p.body, id)
		}
	case <-time.After(patience):
		t.Error("no webhook came")
	}
}

func batchIsCounted(t *testing.T, c *cluster, _ *clusterWorker) {
	requests := strings.TrimSuffix(strings.Repeat(`{"input":{"n":1}},`, 20), ",")
	id := get[job](c.front, "POST", "/v2/"+c.work+"/batch", `{"finalize":true,"requests":[`+requests+`]}`, http.StatusOK).ID
	for _, in := range c.servers {
		eventually(t, "the batch ends", func() bool {
			return get[struct{ RequestCompleted int }](in, "GET", "/v2/"+c.work+"/batch/"+id, "", http.StatusOK).RequestCompleted == 20
		})
	}
}

func limitsAreShared(t *testing.T, c *cluster, _ *clusterWorker) {
	path := "/v2/serverless/" + c.work + "/queue"
	get[any](c.servers[0], "PATCH", path, `{"total":2}`, http.StatusOK)
	time.Sleep(time.Second)
	var ids []string
	for range 6 {
		ids = append(ids, get[job](c.front, "POST", "/v2/"+c.work+"/run", `{"input":{"sleep_ms":300}}`, http.StatusOK).ID)
	}
	most := 0
	eventually(t, "all jobs end", func() bool {
		h := get[struct {
			Jobs struct{ InProgress, InQueue int }
		}](c.front, "GET", "/v2/"+c.work+"/health", "", http.StatusOK)
		most = max(most, h.Jobs.InProgress)
		return h.Jobs.InProgress+h.Jobs.InQueue == 0
	})
	if most != 2 {
		t.Errorf("%d jobs ran at once, want 2", most)
	}
	get[any](c.servers[1], "PATCH", path, `{"total":null}`, http.StatusOK)
	for _, id := range ids {
		c.front.completes(c.work, id)
	}
}

func keysAreShared(t *testing.T, c *cluster, _ *clusterWorker) {
	made := get[struct{ ID, Key string }](c.servers[0], "POST", "/v2/account/keys", `{"user":"ann","scopes":["*"]}`, http.StatusCreated)
	other := &instance{t: t, url: c.servers[1].url, key: made.Key}
	get[any](other, "GET", "/v2/pods", "", http.StatusOK)
	get[any](c.servers[0], "DELETE", "/v2/account/keys/"+made.ID, "", http.StatusNoContent)
	began := time.Now()
	eventually(t, "the key is refused", func() bool {
		status, _ := other.do("GET", "/v2/pods", "")
		return status == http.StatusUnauthorized
	})
	if took := time.Since(began); took > suite.Within(1100*time.Millisecond) {
		t.Errorf("a key was revoked %v ago and accepted by the other server", took)
	}
}

func idempotencyIsShared(t *testing.T, c *cluster, _ *clusterWorker) {
	var ids [2]string
	for i, in := range c.servers {
		req := in.request("POST", "/v2/"+c.work+"/run", `{"input":{"once":true}}`)
		req.Header.Set("Idempotency-Key", "once")
		status, b, err := send(req)
		var j job
		if err != nil || status != http.StatusOK || json.Unmarshal(b, &j) != nil {
			t.Fatalf("run = %d %s, %v", status, b, err)
		}
		ids[i] = j.ID
	}
	if ids[0] != ids[1] {
		t.Errorf("jobs %q, want one", ids)
	}
}

// What clients of a cluster have been answered.
type clusterLoad struct {
	*cluster
	mu      sync.Mutex
	ids     []string // of jobs that were acknowledged
	refused []string
	hooks   map[string]int
}

// load has clients submit jobs through the balancer until the end of a phase.
func (c *cluster) load(phase func()) *clusterLoad {
	c.t.Helper()
	l := &clusterLoad{cluster: c, hooks: map[string]int{}}
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		var j job
		if err := json.NewDecoder(r.Body).Decode(&j); err != nil {
			c.t.Error(err)
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.hooks[j.ID]++
	}))
	c.t.Cleanup(hook.Close)
	ctx, stop := context.WithCancel(c.t.Context())
	var clients sync.WaitGroup
	for n := range 6 {
		clients.Go(func() { l.client(ctx, n, hook.URL) })
	}
	phase()
	stop()
	clients.Wait()
	return l
}

func (l *clusterLoad) client(ctx context.Context, n int, hook string) {
	for k := 0; ctx.Err() == nil; k++ {
		body := fmt.Sprintf(`{"input":{"client":%d,"n":%d,"sleep_ms":%d},"webhook":%q}`, n, k, k%3*20, hook)
		path := "/v2/" + l.work + "/run"
		switch k % 4 {
		case 2:
			path = "/v2/" + l.work + "/runsync"
		case 3:
			path = "/v2/echo/runsync"
		}
		j, ok := l.call("POST", path, body)
		if ok && n%2 == 0 {
			l.call("GET", strings.Replace(path[:strings.LastIndex(path, "/")], "/run", "", 1)+"/status/"+j.ID, "")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// call makes a request. A job that it submits is noted when it is acknowledged.
func (l *clusterLoad) call(method, path, body string) (j job, ok bool) {
	req := l.front.request(method, path, body)
	status, b, err := send(req)
	ok = err == nil && status == http.StatusOK && json.Unmarshal(b, &j) == nil
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case ok && method == "POST":
		l.ids = append(l.ids, strings.Split(path, "/")[2]+" "+j.ID)
	case !ok:
		l.refused = append(l.refused, fmt.Sprintf("%s %s: %d %.200s %v", method, path, status, b, err))
	}
	return j, ok
}

// settled waits until each job that was acknowledged has completed and its webhook has come.
func (l *clusterLoad) settled() {
	l.t.Helper()
	for _, text := range l.ids {
		endpoint, id, _ := strings.Cut(text, " ")
		l.front.completes(endpoint, id)
	}
	eventually(l.t, "all webhooks come", func() bool {
		l.mu.Lock()
		defer l.mu.Unlock()
		return !slices.ContainsFunc(l.ids, func(text string) bool {
			_, id, _ := strings.Cut(text, " ")
			return l.hooks[id] == 0
		})
	})
	if len(l.ids) < 20 {
		l.t.Errorf("only %d jobs were acknowledged", len(l.ids))
	}
}

// lease is how long a worker in the process of a server that died has its jobs.
const lease = 30 * time.Second

func TestAServerOfSeveralMayDieAndBeReplaced(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	c := newCluster(t)
	for i := range 4 {
		c.startWorker(c.front.url, fmt.Sprint("w", i), 4)
	}
	schedule := get[struct{ ID string }](c.front, "POST", "/v2/"+c.work+"/schedules", `{"cron":"* * * * *","overlap":"allow","run":{"input":{"tick":true}}}`, http.StatusCreated).ID
	made := time.Now()

	var ids []string
	killing := c.load(func() {
		time.Sleep(time.Second)
		var before map[string]string
		eventually(t, "each server has some of the jobs", func() bool { // a server may get all of those that wait
			for range 12 {
				ids = append(ids, get[job](c.front, "POST", "/v2/echo/run", `{"input":{"sleep_ms":15000}}`, http.StatusOK).ID)
			}
			before = c.workersOf(ids)
			return len(slices.Compact(slices.Sorted(maps.Values(before)))) == len(c.servers)
		})
		c.servers[0].end(syscall.SIGKILL)
		killed := time.Now()
		time.Sleep(3 * time.Second)
		c.begin(0)
		time.Sleep(time.Until(killed.Add(lease)))
		for ; ; time.Sleep(20 * time.Millisecond) {
			left, moved := 0, 0
			for id, w := range c.workersOf(ids) {
				if w == before[id] {
					left++
				} else {
					moved++
				}
			}
			took := time.Since(killed)
			if (left > 0 || moved == 0) && took < lease+suite.Within(time.Second) {
				continue
			}
			if left > 0 || moved == 0 {
				t.Errorf("%v after a server died its worker has %d of its jobs, others have %d", took, left, moved)
			}
			return
		}
	})
	for _, id := range ids {
		c.front.completes("echo", id)
	}
	killing.settled()
	t.Logf("%d jobs were acknowledged while a server was killed, %d requests had no answer", len(killing.ids), len(killing.refused))
	for _, text := range killing.refused {
		if !strings.Contains(text, ": 502 ") && !strings.Contains(text, ": 503 ") {
			t.Errorf("refused: %s", text)
		}
	}

	rolling := c.load(func() {
		for i := range c.servers {
			time.Sleep(time.Second)
			if code, took := c.servers[i].end(syscall.SIGTERM); code != 0 || took > 25*time.Second {
				t.Errorf("server %d ends with %d after %v", i, code, took)
			}
			c.begin(i)
		}
		time.Sleep(time.Second)
	})
	if len(rolling.refused) > 0 {
		t.Errorf("%d requests were refused during a rolling restart, the first one: %s", len(rolling.refused), rolling.refused[0])
	}
	rolling.settled()
	t.Logf("%d jobs were acknowledged during a rolling restart", len(rolling.ids))
	c.firedOnce(schedule, made)
}

// workersOf are the workers of those jobs that run.
func (c *cluster) workersOf(ids []string) map[string]string {
	at := map[string]string{}
	for _, id := range ids {
		j := get[struct{ Status, WorkerID string }](c.front, "GET", "/v2/echo/status/"+id, "", http.StatusOK)
		if j.Status == "IN_PROGRESS" {
			at[id] = j.WorkerID
		}
	}
	return at
}

// firedOnce looks at what a schedule of each minute has submitted.
func (c *cluster) firedOnce(schedule string, made time.Time) {
	c.t.Helper()
	time.Sleep(time.Until(made.Add(62 * time.Second)))
	type outcome struct {
		At           time.Time
		Outcome, Job string
	}
	var outcomes []outcome
	last := time.Now().Truncate(time.Minute).UTC()
	eventually(c.t, "the schedule fires in the last minute", func() bool {
		outcomes = get[struct{ Outcomes []outcome }](c.front, "GET", "/v2/"+c.work+"/schedules/"+schedule, "", http.StatusOK).Outcomes
		return slices.ContainsFunc(outcomes, func(o outcome) bool { return o.At.Equal(last) })
	})
	seen := map[time.Time]string{}
	for _, o := range outcomes {
		if seen[o.At] != "" || o.Outcome != "submitted" {
			c.t.Errorf("outcomes of %v: %s %s, and %s", o.At, o.Outcome, o.Job, seen[o.At])
		}
		seen[o.At] = o.Job
		c.front.completes(c.work, o.Job)
	}
	for at := made.Truncate(time.Minute).Add(time.Minute); !at.After(last); at = at.Add(time.Minute) {
		if seen[at.UTC()] == "" {
			c.t.Errorf("nothing was submitted for %v: %+v", at, outcomes)
		}
	}
}
