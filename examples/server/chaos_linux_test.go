package main

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/examples/cluster/balancer"
	"github.com/podyard/podyard/examples/server/demo"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

const (
	chaosServers = 3
	chaosClients = 32
	pyEndpoint   = "py" // its workers are stock Python workers, processes of the servers
	// unheardFor is after how long a client gives an answer up.
	unheardFor = 5 * time.Second
	// doubtFor is after how long a call that had no answer is not made any more: a server may stand
	// still for 31 s with it, or wait for the database.
	doubtFor = 45 * time.Second
)

// TestServersOfOneDatabaseLoseNothing is TestCrashesLoseNothingThatWasAcknowledged for three
// servers over one database, behind a balancer. While 32 clients work, a server is killed, or the
// database is stopped as by a crash, or a server stands still for a while. After each round what
// clients were answered is held against what is there. Besides:
//
//   - an instant of a schedule makes one job
//   - a job of a worker in a server that was killed is another worker's after its lease and a second,
//     or two seconds after the database is back
//   - each pod that runs, and each worker, has one process, and nothing else has any
//
// PODYARD_LONG is the number of kills; a fourth as often the database is stopped, and a tenth as
// often a server stands still for 31 s. Without it there are 3 kills, 2 stops and a pause of 17 s,
// which is longer than the lease of a server. PODYARD_SEED picks what happens.
func TestServersOfOneDatabaseLoseNothing(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	c := newChaosTest(t)
	kills, crashes, pauses, pause := 3, 2, 1, 17*time.Second
	if n, err := strconv.Atoi(os.Getenv("PODYARD_LONG")); err == nil {
		kills, crashes, pauses, pause = n, (n+3)/4, (n+9)/10, 31*time.Second
	}
	deeds := slices.Concat(
		slices.Repeat([]func(){c.killOne}, kills),
		slices.Repeat([]func(){c.crashDatabase}, crashes),
		slices.Repeat([]func(){func() { c.pauseOne(pause) }}, pauses),
	)
	c.rng.Shuffle(len(deeds), func(i, j int) { deeds[i], deeds[j] = deeds[j], deeds[i] })
	defer c.leases.Wait() // before the servers end
	queued := &queueCrash{t: t, in: c.in}
	var schedules []*firedSchedule
	for i := range 5 {
		schedules = append(schedules, queued.fire(i))
	}
	for _, deed := range deeds {
		if c.during(deed); t.Failed() {
			return
		}
		c.audit(8)
		for _, s := range schedules {
			queued.look(s)
		}
	}
	c.rest(true)
	c.leases.Wait()
	c.audit(1 << 30)
	for _, s := range schedules {
		queued.checkSchedule(s)
	}
	c.eachHasOneProcess()
	c.endAll()
	c.summary()
	t.Logf("%d kills, %d crashes of the database, %d pauses of %v; %d jobs were at servers that were killed", kills, crashes, pauses, pause, c.orphaned)
}

// A chaosTest is a crashTest with several servers. Its server is the balancer.
type chaosTest struct {
	*crashTest
	postgresql postgrestest.Server
	database   string
	proxy      *balancer.Balancer
	addrs      [chaosServers]string
	dirs       [chaosServers]string
	servers    [chaosServers]*instance
	epochs     [chaosServers]uint64 // which end the ids of their workers of echo
	common     []string             // arguments of all servers
	leases     sync.WaitGroup
	orphaned   int // jobs of servers that were killed

	crashing sync.Mutex // held while the database is stopped
	back     time.Time  // when it was there again
}

func newChaosTest(t *testing.T) *chaosTest {
	t.Helper()
	seed := crashSeed(t)
	c := &chaosTest{
		crashTest: &crashTest{
			t: t, seed: seed, rng: rand.New(rand.NewPCG(seed, 0)), mail: newMailbox(t), several: true, python: true,
			http: &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 2 * chaosClients}, Timeout: unheardFor},
		},
		proxy: balancer.New(&balancer.Options{Every: 50 * time.Millisecond}),
	}
	t.Cleanup(c.postgresql.Stop)
	front := httptest.NewServer(c.proxy)
	t.Cleanup(front.Close)
	c.in = &instance{t: t, url: front.URL, key: crashKey}
	c.database = c.postgresql.Empty(t)
	c.common = []string{"-data", c.database + "&synchronous_commit=on", "-public-url", front.URL, "-config", c.config()}
	c.tenant = &podClient{crashTest: c.crashTest, rng: rand.New(rand.NewPCG(seed, 1))}
	for i := range chaosClients {
		c.clients = append(c.clients, &crashClient{crashTest: c.crashTest, name: fmt.Sprint("c", i), rng: rand.New(rand.NewPCG(seed, uint64(2+i)))})
	}
	t.Cleanup(c.clean)
	for i := range c.servers {
		c.addrs[i], c.dirs[i] = suite.FreeAddress(t), t.TempDir()
		c.begin(i)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { c.proxy.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return c
}

// config is the configuration of all servers.
func (c *chaosTest) config() string {
	script, err := filepath.Abs("testdata/worker.py")
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := json.Marshal(map[string]any{
		"secretKey": base64.StdEncoding.EncodeToString([]byte(strings.Repeat("k", 32))),
		"webhook":   map[string]any{"allowPrivate": true},
		"processes": map[string]any{"user": ownUser()},
		"keys":      []any{map[string]any{"key": crashKey, "user": "crash", "scopes": []string{"*", "operator"}, "exempt": true}},
		"images":    map[string]any{"py/echo": map[string]any{"command": []string{python(c.t), script}, "env": map[string]string{"MODE": "echo"}}},
		"endpoints": []any{map[string]any{
			"id": pyEndpoint, "image": "py/echo", "cpu": []any{map[string]any{"id": "host", "vcpuCount": 2}},
			"workers": map[string]any{"min": 1, "max": 2, "idleTimeout": 600}, "scaling": map[string]any{"type": "QUEUE_DELAY", "queueDelay": 2},
		}},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	return file(c.t, string(b))
}

// begin starts a server, and has the balancer use it.
func (c *chaosTest) begin(i int) {
	c.t.Helper()
	eventually(c.t, "the port is free", func() bool { return suite.IsFree(c.t.Context(), c.addrs[i]) })
	args := append(slices.Clone(c.common), "-addr", c.addrs[i], "-local", c.dirs[i], "-name", fmt.Sprint("server-", i))
	began := time.Now()
	c.servers[i] = startCommand(c.t, command(c.t, []string{"PODYARD_API_KEY=" + testKey}, args...))
	c.slowest = max(c.slowest, time.Since(began))
	c.epochs[i] = c.lastEpoch()
	c.proxy.Set(c.t.Context(), urlsOf(c.t, c.servers[:])...)
}

// lastEpoch is the epoch of the server that has joined last.
func (c *chaosTest) lastEpoch() (epoch uint64) {
	c.t.Helper()
	conn, err := pgx.Connect(c.t.Context(), c.database)
	if err != nil {
		c.t.Fatal(err)
	}
	err = conn.QueryRow(c.t.Context(), `SELECT max(epoch) FROM podyard.server_leases WHERE convert_from(name, 'UTF8') LIKE 'server/%'`).Scan(&epoch)
	if err = errors.Join(err, conn.Close(c.t.Context())); err != nil {
		c.t.Fatal(err)
	}
	return epoch
}

// clean ends what servers that were killed have left.
func (c *chaosTest) clean() {
	c.http.CloseIdleConnections()
	for _, dir := range c.dirs {
		for _, pid := range processesIn(c.t, dir) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// during has everybody work while something happens.
func (c *chaosTest) during(deed func()) {
	c.round++
	ctx, cancel := context.WithCancel(c.t.Context())
	work := func(step func(context.Context) bool) {
		for ctx.Err() == nil {
			if !step(ctx) {
				time.Sleep(20 * time.Millisecond)
			}
		}
	}
	var wg sync.WaitGroup
	for _, k := range c.clients {
		wg.Go(func() { work(k.step) })
	}
	wg.Go(func() { work(c.tenant.step) })
	time.Sleep(time.Duration(100+c.rng.IntN(500)) * time.Millisecond)
	deed()
	time.Sleep(200 * time.Millisecond)
	cancel()
	wg.Wait()
}

// killOne kills a server, and starts it again after a while.
func (c *chaosTest) killOne() {
	i := c.rng.IntN(chaosServers)
	var ids []string
	for range 2 * chaosServers {
		if code, b, err := c.do(c.t.Context(), "POST", "/v2/echo/run", `{"input":{"sleep_ms":2000}}`); err == nil && code == http.StatusOK {
			var j job
			if err := json.Unmarshal(b, &j); err != nil {
				c.t.Error(err)
			}
			ids = append(ids, j.ID)
		}
	}
	c.servers[i].end(syscall.SIGKILL)
	killed := time.Now()
	dead := fmt.Sprint(demo.EchoWorker, "-", c.epochs[i])
	var orphans []string
	for id, worker := range c.workersOf(ids) {
		if worker == dead {
			orphans = append(orphans, id)
		}
	}
	c.orphaned += len(orphans)
	time.Sleep(time.Duration(c.rng.IntN(600)) * time.Millisecond)
	c.begin(i)
	c.leases.Go(func() {
		c.pass(killed.Add(lease + suite.Within(time.Second)))
		for id, worker := range c.workersOf(orphans) {
			if worker == dead {
				c.t.Errorf("PODYARD_SEED=%d: job %s is at a worker of a server that was killed %v ago", c.seed, id, time.Since(killed))
			}
		}
	})
}

// pass waits until due, or longer if the database was away before that: servers that it refused ask
// again a second later.
func (c *chaosTest) pass(due time.Time) {
	for {
		time.Sleep(time.Until(due))
		c.crashing.Lock()
		later := c.back.Add(2 * time.Second)
		c.crashing.Unlock()
		if !later.After(due) {
			return
		}
		due = later
	}
}

// workersOf are the workers that have jobs of echo.
func (c *chaosTest) workersOf(ids []string) map[string]string {
	at := map[string]string{}
	for _, id := range ids {
		var j struct{ Status, WorkerID string }
		ok := c.answered(func() bool {
			code, b, err := c.do(c.t.Context(), "GET", "/v2/echo/status/"+id, "")
			return err == nil && code == http.StatusOK && json.Unmarshal(b, &j) == nil
		})
		if !ok {
			c.t.Errorf("job %s, which was acknowledged, has no status", id)
		}
		if j.Status == "IN_PROGRESS" {
			at[id] = j.WorkerID
		}
	}
	return at
}

func (c *chaosTest) crashDatabase() {
	c.crashing.Lock()
	defer c.crashing.Unlock()
	c.postgresql.Restart(c.t, true, func() { time.Sleep(time.Duration(c.rng.IntN(300)) * time.Millisecond) })
	c.back = time.Now()
}

// pauseOne stops a server for a while. What it was asked before that, it may do after.
func (c *chaosTest) pauseOne(d time.Duration) {
	p := c.servers[c.rng.IntN(chaosServers)].cmd.Process
	signal := func(s syscall.Signal) {
		if err := p.Signal(s); err != nil {
			c.t.Error(err)
		}
	}
	signal(syscall.SIGSTOP)
	time.Sleep(d)
	signal(syscall.SIGCONT)
	time.Sleep(2 * time.Second)
}

// eachHasOneProcess waits until there is a process for each worker and each pod that runs, and no
// other one.
func (c *chaosTest) eachHasOneProcess() {
	c.t.Helper()
	var wrong string
	defer func() {
		if c.t.Failed() {
			c.t.Log(wrong)
		}
	}()
	eventually(c.t, "each worker and pod has one process", func() bool {
		want := map[string]int{}
		for _, endpoint := range []string{"hello", pyEndpoint} {
			for _, w := range get[listing](c.in, "GET", "/v2/serverless/"+endpoint+"/workers", "", http.StatusOK).Workers {
				want[w.ID]++
			}
		}
		for id, p := range c.tenant.list() {
			if p.Status == "RUNNING" {
				want[id]++
			}
		}
		got := map[string]int{}
		for _, dir := range c.dirs {
			for _, pid := range processesIn(c.t, dir) {
				if id := containerOf(pid); id != containerOf(parentOf(pid)) { // the SDK of Python starts others
					got[id]++
				}
			}
		}
		wrong = fmt.Sprintf("processes %v, want %v", got, want)
		return fmt.Sprint(got) == fmt.Sprint(want)
	})
}

// containerOf is the id of the worker or the pod that a process is.
func containerOf(pid int) string {
	env, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	if err != nil {
		return ""
	}
	of := map[string]string{}
	for v := range strings.SplitSeq(string(env), "\x00") {
		name, value, _ := strings.Cut(v, "=")
		of[name] = value
	}
	if id := of["RUNPOD_POD_ID"]; id != "" {
		return id
	}
	return of["PODYARD_POD_ID"]
}

func parentOf(pid int) (parent int) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, ok := strings.Cut(string(b), ") ")
	if _, e := fmt.Sscanf(rest, "%1s %d", new(string), &parent); err != nil || !ok || e != nil {
		return 0
	}
	return parent
}

// endAll ends the servers in order. Nothing may be left of them.
func (c *chaosTest) endAll() {
	for _, in := range c.servers {
		in.stop()
	}
	eventually(c.t, "no process is left", func() bool {
		return !slices.ContainsFunc(c.dirs[:], func(dir string) bool { return len(processesIn(c.t, dir)) > 0 })
	})
}
