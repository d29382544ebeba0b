package httpapi_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/anishathalye/porcupine"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// Numbers of these tests: jobs in parallel, clients per job, and operations per client.
const (
	teams          = 4
	clientsPerTeam = 4
	opsPerClient   = 8
	perTeam        = 8 // jobs of one team in one world, one after the other
)

// long reports whether the long version of the tests should run.
func long() bool { return os.Getenv("PODYARD_LONG") != "" }

// TestLinearizable lets clients do random operations on jobs over HTTP. Meanwhile calls of
// the queue are late, and fail before or after they take effect. For each job, the answers
// must be linearizable. PODYARD_SEED chooses the operations; their interleaving depends on
// the scheduler.
func TestLinearizable(t *testing.T) {
	seed, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	for _, row := range []struct {
		name        string
		short, long int // operations
		patient     bool
		in          func(*testing.T, func(*testing.T))
		queue       func(*testing.T) serverless.JobQueue
	}{
		{"Memory", 4_000, 200_000, true, synctest.Test, func(*testing.T) serverless.JobQueue { return memory.NewJobs() }},
		// The disk store is not in a bubble: it waits for real input and output.
		{"Disk", 1_000, 40_000, false, outside, openJobs},
	} {
		t.Run(row.name, func(t *testing.T) {
			h := histories{seed: seed, want: row.short}
			if long() {
				h.want = row.long
			}
			h.check(t, row.in, func(t *testing.T, seed uint64) []*jobHistory {
				return runClients(t, seed, row.patient, row.queue(t))
			})
		})
	}
}

// outside runs a test that waits for what is not in a bubble.
func outside(t *testing.T, f func(*testing.T)) { t.Run("", f) }

// Histories are rounds of operations, until there are as many as are wanted.
type histories struct {
	seed uint64
	want int
}

func (h *histories) check(t *testing.T, in func(*testing.T, func(*testing.T)), round func(t *testing.T, seed uint64) []*jobHistory) {
	t.Helper()
	deeds, unknown := 0, 0
	for seed := h.seed; deeds < h.want && !t.Failed(); seed++ {
		in(t, func(t *testing.T) {
			for _, c := range round(t, seed) {
				if !c.check(t) {
					t.Errorf("PODYARD_SEED=%d: no order of deeds explains the answers of %s", seed, c)
				}
				n, u := c.count()
				deeds += n
				unknown += u
			}
		})
	}
	if unknown == 0 {
		t.Error("no call failed: this shows too little")
	}
	t.Logf("%d deeds, %d of them without an answer; PODYARD_SEED=%d", deeds, unknown, h.seed)
}

func openJobs(t *testing.T) serverless.JobQueue {
	s, err := disk.Open(t.Context(), t.TempDir(), &disk.Options{Ballast: -1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.Jobs()
}

func (c *jobHistory) count() (all, unknown int) {
	for _, op := range c.ops {
		if op.Return == neverReturned {
			unknown++
		}
	}
	return len(c.ops), unknown
}

// queueFaults returns the faults of calls of the queue.
func queueFaults(seed uint64) *fault.Plan {
	p := fault.NewPlan(seed)
	for _, call := range []string{"jobs.Enqueue", "jobs.Claim", "jobs.Apply", "jobs.Get", "jobs.Purge"} {
		p.Add(fault.Rule{Call: call, Kind: fault.Before, Probability: 0.02})
		p.Add(fault.Rule{Call: call, Kind: fault.After, Probability: 0.02})
		for _, d := range []time.Duration{time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond} {
			p.Add(fault.Rule{Call: call, Kind: fault.Delay, Delay: d, Probability: 0.15})
		}
	}
	return p
}

// runClients lets all clients work on jobs of q, and returns the histories.
func runClients(t *testing.T, seed uint64, patient bool, q serverless.JobQueue) []*jobHistory {
	t.Helper()
	eps := memory.NewEndpoints()
	jobs := serverless.New(fault.Jobs(q, queueFaults(seed)), eps, &serverless.Options{Rand: rand.NewChaCha8([32]byte{byte(seed)})})
	run(t, jobs.Run)
	return runTeams(t, seed, &clientRun{t: t, patient: patient, handlers: []http.Handler{linearHandler(t, jobs)}}, eps)
}

// linearHandler is a server that clients may ask as often as they want.
func linearHandler(t *testing.T, jobs *serverless.Service) http.Handler {
	t.Helper()
	known, err := httpapi.NewKeys(keys(time.Now), time.Now)
	if err != nil {
		t.Fatal(err)
	}
	return httpapi.New(httpapi.Services{Jobs: jobs}, &httpapi.Options{Auth: known})
}

// runTeams lets all teams work, and returns the histories.
func runTeams(t *testing.T, seed uint64, a *clientRun, eps serverless.EndpointStore) (all []*jobHistory) {
	t.Helper()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for team := range teams {
		wg.Go(func() {
			for n := range perTeam {
				c := &jobHistory{endpoint: fmt.Sprintf("endpoint-%d-%d", team, n)}
				if err := eps.Create(t.Context(), &serverless.Endpoint{ID: c.endpoint, Name: c.endpoint}); err != nil {
					t.Error(err)
				}
				a.runTeam(c, rand.New(rand.NewPCG(seed, uint64(team*perTeam+n))))
				mu.Lock()
				all = append(all, c)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return all
}

// A clientRun is the shared state of all clients.
type clientRun struct {
	t        *testing.T
	handlers []http.Handler // of servers, which are asked in turn
	calls    atomic.Int64
	now      atomic.Int64 // numbers calls and returns
	patient  bool         // clients may wait for the end of a job: in a bubble, a second costs nothing
}

// runTeam lets the clients of a team work on one job.
func (a *clientRun) runTeam(c *jobHistory, rng *rand.Rand) {
	begin := a.now.Add(1)
	id := a.submit(c.endpoint)
	if id == "" {
		return // submit failed: there is no job
	}
	c.ops = append(c.ops, porcupine.Operation{ClientId: clientsPerTeam, Input: clientOp{verb: submits}, Call: begin, Output: opResult{done: true}, Return: a.now.Add(1)})
	var mu sync.Mutex
	var wg sync.WaitGroup
	for mate := range clientsPerTeam {
		own := rand.New(rand.NewPCG(rng.Uint64(), 0))
		wg.Go(func() {
			for n := range opsPerClient {
				d := choose(own, fmt.Sprintf("%d-%d", mate, n))
				op := porcupine.Operation{ClientId: mate, Input: d, Call: a.now.Add(1)}
				r, shows := a.do(c.endpoint, id, d)
				op.Output, op.Return = r, a.now.Add(1)
				if r.unknown {
					op.Return = neverReturned
				}
				mu.Lock()
				if shows {
					c.ops = append(c.ops, op)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

// choose picks operations that keep a job alive more often than operations that end it.
func choose(rng *rand.Rand, name string) clientOp {
	d := clientOp{worker: fmt.Sprintf("worker-%d", rng.IntN(2)), value: name}
	switch n := rng.IntN(100); {
	case n < 22:
		d.verb, d.value = takes, ""
	case n < 42:
		d.verb = fails
	case n < 48:
		d.verb = completes
	case n < 58:
		d.verb = proceeds
	case n < 75:
		d = clientOp{verb: looks}
	case n < 77:
		d = clientOp{verb: looks, value: "when it has ended"}
	case n < 92:
		d = clientOp{verb: retries}
	case n < 97:
		d = clientOp{verb: cancels}
	default:
		d = clientOp{verb: purges}
	}
	return d
}

// submit returns the id of a new job, or "" if it failed.
func (a *clientRun) submit(endpoint string) string {
	var j struct{ ID string }
	if a.call("POST", "/v2/"+endpoint+"/run", `{"input":{}}`, &j) == http.StatusOK {
		return j.ID
	}
	var list struct{ Requests []struct{ ID string } }
	for a.call("GET", "/v2/"+endpoint+"/requests", "", &list) != http.StatusOK {
	}
	if len(list.Requests) == 0 {
		return ""
	}
	return list.Requests[0].ID
}

// do makes a call. shows is false if the answer proves nothing: a worker that got no job
// may not have reached the service.
func (a *clientRun) do(endpoint, id string, d clientOp) (r opResult, shows bool) {
	var body struct {
		ID, Status, WorkerID, Error string
		Output                      json.RawMessage
		Accepted                    bool
		Removed                     int
	}
	report := func(text string) int {
		return a.call("POST", "/v2/"+endpoint+"/job-done/"+d.worker+"/"+id, text, &body)
	}
	var code int
	switch d.verb {
	case looks:
		target := "/v2/" + endpoint + "/status/" + id
		if d.value != "" && a.patient {
			target = "/v2/" + endpoint + "/status-sync/" + id + "?wait=1000"
		}
		code = a.call("GET", target, "", &body)
	case cancels, retries:
		code = a.call("POST", "/v2/"+endpoint+"/"+string(d.verb)+"/"+id, "", &body)
	case purges:
		code = a.call("POST", "/v2/"+endpoint+"/purge-queue", "", &body)
	case takes:
		code = a.call("GET", "/v2/"+endpoint+"/job-take/"+d.worker, "", &body)
	case completes:
		code = report(fmt.Sprintf(`{"output":%q}`, d.value))
	case fails:
		code = report(fmt.Sprintf(`{"error":%q}`, d.value))
	case proceeds:
		code = report(fmt.Sprintf(`{"status":"IN_PROGRESS","output":%q}`, d.value))
	}
	switch {
	case code >= 500:
		return opResult{unknown: true}, d.verb != looks
	case code == http.StatusNoContent:
		return opResult{}, false
	case code == http.StatusConflict && d.verb == retries, code == http.StatusNotFound && d.verb == looks:
		return opResult{}, true
	case code != http.StatusOK:
		a.t.Errorf("%v of %s is answered with %d", d, endpoint, code)
		return opResult{}, false
	}
	switch d.verb {
	case looks:
		r.job = jobView{body.Status, body.WorkerID, strings.Trim(string(body.Output), `"`), body.Error}
	case cancels:
		r.status = body.Status
	case purges:
		r.removed = body.Removed
	case retries:
		r.done = body.Status == inQueue
	case takes:
		r.done = body.ID == id
	default:
		r.done = body.Accepted
	}
	return r, true
}

// callTimeout is how long a worker waits for a job.
const callTimeout = 3 * time.Millisecond

// call makes a request, decodes the answer's body into v and returns its status.
func (a *clientRun) call(method, target, body string, v any) int {
	ctx, cancel := context.WithCancel(a.t.Context())
	if strings.Contains(target, "/job-take/") {
		ctx, cancel = context.WithTimeout(a.t.Context(), callTimeout)
	}
	defer cancel()
	w := &testAPI{t: a.t}
	res, err := handlerTransport{a.handlers[int(a.calls.Add(1))%len(a.handlers)]}.RoundTrip(w.request(ctx, method, target, body, "Authorization: Bearer "+operatorFree))
	if err != nil {
		a.t.Error(err)
		return 0
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err == nil && len(b) > 0 && res.StatusCode == http.StatusOK {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		a.t.Errorf("%s %s: %v: %s", method, target, err, b)
	}
	return res.StatusCode
}
