package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

const (
	crashClients = 16
	crashKey     = "key-of-the-crash-test" // has no rates and no quotas
	// crashLoad is the longest that a server lives under load.
	crashLoad = time.Second
	// crashLease is longer than a worker has a job of which it never heard, and than a server that was
	// killed has a webhook: 30 and 40 s.
	crashLease = 75 * time.Second
)

// TestCrashesLoseNothingThatWasAcknowledged kills the server again and again while clients
// work on jobs and pods, and starts it on the same data and address. Each time what the
// clients were answered is held against what is there:
//
//   - a submitted job is there until its ttl or retention ends, and then never again
//   - how a job ended is never lost or changed, and it ended once
//   - a cancelled job stays cancelled
//   - every webhook of a job that ended is delivered
//   - every pod is as its user left it, with its process or without
//
// There are three rounds, or 200 with PODYARD_LONG. PODYARD_SEED picks what clients do and
// after how much of it the server is killed; the rest is up to the machine.
func TestCrashesLoseNothingThatWasAcknowledged(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	rounds := 3
	if os.Getenv("PODYARD_LONG") != "" {
		rounds = 200
	}
	c := newCrashTest(t)
	for range rounds {
		c.load()
		if c.restart(); t.Failed() {
			return
		}
		c.audit(20)
	}
	c.rest(rounds > 3)
	c.audit(1 << 30)
	c.in.stop()
	eventually(t, "no process is left", func() bool { return len(processesIn(t, c.data)) == 0 })
	c.summary()
}

// Crashes are servers on one directory, and what their clients remember.
type crashTest struct {
	t     *testing.T
	seed  uint64
	rng   *rand.Rand
	data  string
	args  []string
	in    *instance
	http  *http.Client
	round int

	mail    *webhookReceiver
	clients []*crashClient
	tenant  *podClient
	left    atomic.Int64 // deeds until the next crash
	slowest time.Duration
	kept    bool // a violation was reported: the rest may follow from it
	several bool // there are several servers: one may not answer, and answer late
	python  bool // there is an endpoint of pyEndpoint
	mu      sync.Mutex
}

// crashSeed returns PODYARD_SEED, or a seed that it makes up, and logs it.
func crashSeed(t *testing.T) uint64 {
	t.Helper()
	seed, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	t.Logf("PODYARD_SEED=%d", seed)
	return seed
}

func newCrashTest(t *testing.T) *crashTest {
	t.Helper()
	seed := crashSeed(t)
	c := &crashTest{
		t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), data: t.TempDir(), mail: newMailbox(t),
		http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * crashClients}, Timeout: patience},
	}
	c.args = []string{
		"-addr", suite.FreeAddress(t), "-data", c.data,
		"-config", file(t, `{"keys":[{"key":"`+crashKey+`","user":"crash","scopes":["*"],"exempt":true}]}`),
	}
	c.tenant = &podClient{crashTest: c, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range crashClients {
		c.clients = append(c.clients, &crashClient{crashTest: c, name: fmt.Sprint("c", i), rng: rand.New(rand.NewPCG(seed, uint64(2+i)))})
	}
	c.in = start(t, c.args...)
	// Pods outlive a server that is killed, and the test must not leave any.
	t.Cleanup(func() {
		c.http.CloseIdleConnections()
		for _, pid := range processesIn(t, c.data) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	})
	return c
}

// load has everybody work, and kills the server in the middle of it.
func (c *crashTest) load() {
	c.round++
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	c.left.Store(int64(40 + c.rng.IntN(500)))
	cut := make(chan struct{})
	work := func(step func(context.Context) bool) {
		for ctx.Err() == nil && step(ctx) {
			if c.left.Add(-1) == 0 {
				close(cut)
			}
		}
	}
	var wg sync.WaitGroup
	for _, k := range c.clients {
		wg.Go(func() { work(k.step) })
	}
	wg.Go(func() { work(c.tenant.step) })
	select {
	case <-cut:
	case <-time.After(crashLoad):
	}
	c.in.end(syscall.SIGKILL)
	cancel()
	wg.Wait()
	c.http.CloseIdleConnections()
}

// restart starts a server again. A program that the killed one had just forked holds its port
// until that program runs.
func (c *crashTest) restart() {
	eventually(c.t, "the port is free", func() bool { return suite.IsFree(c.t.Context(), c.args[1]) })
	began := time.Now()
	c.in = start(c.t, c.args...)
	c.slowest = max(c.slowest, time.Since(began))
}

// audit holds the server to what was answered: of each client the jobs of the last two
// rounds and some of the others, and all pods.
func (c *crashTest) audit(some int) {
	var wg sync.WaitGroup
	for _, k := range c.clients {
		wg.Go(func() { k.audit(some) })
	}
	wg.Wait()
	c.mail.check(c)
	c.tenant.audit()
}

// rest waits until every job has ended and every webhook has come.
func (c *crashTest) rest(all bool) {
	c.t.Helper()
	deadline := time.After(crashLease)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for {
		var open *trackedJob
		for _, k := range c.clients {
			if o := k.open(all); o != nil {
				open = o
			}
		}
		if open == nil || c.t.Failed() {
			return
		}
		select {
		case <-look.C:
		case <-deadline:
			c.t.Errorf("after %v a job has not ended, or its webhook has not come: %s\n%s", crashLease, open, c.says(open))
			return
		}
	}
}

// says is what the server says of a job: its state, its attempts, its workers, why it waits, and its webhooks.
func (c *crashTest) says(o *trackedJob) string {
	var list []string
	of := "/v2/" + o.endpoint
	admin := "/v2/serverless/" + o.endpoint
	for _, path := range []string{
		of + "/status/" + o.id, of + "/attempts/" + o.id, of + "/health",
		admin + "/workers", admin + "/decisions?jobId=" + o.id, admin + "/decisions", admin + "/deliveries/" + o.id,
	} {
		code, b, err := c.do(c.t.Context(), "GET", path, "")
		list = append(list, fmt.Sprintf("%s: %d %s %v", path, code, b, err))
	}
	return strings.Join(list, "\n")
}

func (c *crashTest) summary() {
	jobs, posts := 0, 0
	counts := map[string]int{}
	for _, k := range c.clients {
		jobs += len(k.jobs)
		for _, o := range k.jobs {
			counts[o.last()]++
		}
	}
	c.mail.mu.Lock()
	defer c.mail.mu.Unlock()
	for _, l := range c.mail.records {
		posts += l.count
	}
	c.t.Logf("%d crashes, %d jobs %v, %d webhooks, %d pods; the slowest start took %v", c.round, jobs, counts, posts, len(c.tenant.pods), c.slowest)
}

// violation reports a violation.
func (c *crashTest) violation(of fmt.Stringer, format string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.kept {
		return
	}
	c.kept = true
	c.t.Errorf("PODYARD_SEED=%d, round %d: %s\n%s", c.seed, c.round, fmt.Sprintf(format, args...), of)
}

// do makes a request. An error means that there was no answer.
func (c *crashTest) do(ctx context.Context, method, path, body string) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.in.url+path, strings.NewReader(body))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+crashKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if c.several && (resp.StatusCode == http.StatusBadGateway || resp.StatusCode == http.StatusServiceUnavailable) {
		return 0, nil, fmt.Errorf("status %d: %s", resp.StatusCode, b)
	}
	if err == nil && resp.StatusCode >= 500 {
		c.t.Errorf("%s %s: status %d: %s", method, path, resp.StatusCode, b)
	}
	return resp.StatusCode, b, err
}

// answered calls f, which reports whether there was an answer, until there is one if another
// server may give it.
func (c *crashTest) answered(f func() bool) bool {
	for began := time.Now(); c.several && time.Since(began) < patience; time.Sleep(20 * time.Millisecond) {
		if f() {
			return true
		}
	}
	return f()
}

// processesIn are the processes that live in a directory.
func processesIn(t *testing.T, dir string) (pids []int) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/cwd")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range all {
		if cwd, err := os.Readlink(path); err == nil && strings.HasPrefix(cwd, dir+"/") {
			if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil {
				pids = append(pids, pid)
			}
		}
	}
	return pids
}

// A history is what was done with a job or a pod, for the message of a failure.
type history []string

func (h *history) note(round int, format string, args ...any) {
	*h = append(*h, time.Now().Format("15:04:05.000")+fmt.Sprintf(" round %d: ", round)+fmt.Sprintf(format, args...))
}

func (h history) String() string { return strings.Join(h, "\n") }
