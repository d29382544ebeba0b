package httpapi_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

// An endsWorld is one job with a worker, by a clock that the test moves.
type endsWorld struct {
	t      *testing.T
	clock  *clock.Manual
	queue  serverless.JobQueue
	jobs   *serverless.Service
	api    http.Handler
	ref    serverless.Ref
	remote bool
	worker string // the one that has the job
	n      int    // of workers so far
	tasks  chan *endsTask
	task   *endsTask
	stop   func() // ends the worker in this process
}

// An endsTask is a job that a worker in this process has. The test says how it ends.
type endsTask struct {
	task *serverless.Task
	end  chan func() ([]byte, error)
}

// ask makes a request as an operator and returns the answer.
func (x *endsWorld) ask(method, path, body string) answer {
	x.t.Helper()
	r, err := http.NewRequestWithContext(x.t.Context(), method, "http://podyard.test/v2/e/"+path, strings.NewReader(body))
	if err != nil {
		x.t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+operatorFree)
	res, err := handlerTransport{x.api}.RoundTrip(r)
	if err != nil {
		x.t.Fatal(err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		x.t.Fatal(err)
	}
	return answer{res.StatusCode, res.Header, string(b)}
}

// submit submits the job, with members beside its input.
func (x *endsWorld) submit(more string) {
	x.t.Helper()
	x.ref = serverless.Ref{Endpoint: "e", ID: serverless.JobID(x.ask("POST", "run", `{"input":{}`+more+`}`).field("id"))}
}

// take gives the job to another worker than before.
func (x *endsWorld) take() {
	x.t.Helper()
	x.n++
	x.takeAs(fmt.Sprint("w", x.n))
}

func (x *endsWorld) takeAs(worker string) {
	x.t.Helper()
	x.worker = worker
	if x.remote {
		if a := x.ask("GET", "job-take/"+worker, ""); a.field("id") != string(x.ref.ID) {
			x.t.Fatalf("%s gets %d %s, want the job", worker, a.status, a.body)
		}
		return
	}
	ctx, cancel := context.WithCancel(x.t.Context())
	done := make(chan error, 1)
	go func() {
		done <- x.jobs.Serve(ctx, "e", serverless.WorkerFunc(func(ctx context.Context, k *serverless.Task) ([]byte, error) {
			one := &endsTask{k, make(chan func() ([]byte, error), 1)}
			x.tasks <- one
			select {
			case end := <-one.end:
				return end()
			case <-ctx.Done():
				return nil, ctx.Err()
			}
		}), &serverless.ServeOptions{ID: serverless.WorkerID("local-" + worker), Drain: time.Nanosecond})
	}()
	x.stop = func() {
		cancel()
		for range 10_000 {
			select {
			case err := <-done:
				if err != nil {
					x.t.Error(err)
				}
				x.stop = nil
				return
			case <-time.After(time.Millisecond):
				x.advance(time.Millisecond) // past its drain
			}
		}
		x.t.Error("the worker does not end")
	}
	x.task = <-x.tasks
}

// result is the end of the work with an output, as the worker has it.
func (x *endsWorld) result(out string) {
	x.t.Helper()
	if x.remote {
		x.ask("POST", "job-done/"+x.worker+"/"+string(x.ref.ID), `{"output":`+out+`}`)
		return
	}
	x.task.end <- func() ([]byte, error) { return []byte(out), nil }
}

func (x *endsWorld) fails(why string) {
	x.t.Helper()
	if x.remote {
		x.ask("POST", "job-done/"+x.worker+"/"+string(x.ref.ID), fmt.Sprintf(`{"error":%q}`, why))
		return
	}
	x.task.end <- func() ([]byte, error) { return nil, errors.New(why) }
}

func (x *endsWorld) chunk(out string) {
	x.t.Helper()
	if x.remote {
		x.ask("POST", "job-stream/"+x.worker+"/"+string(x.ref.ID), `{"output":`+out+`}`)
		return
	}
	_ = x.task.task.Emit(x.t.Context(), []byte(out)) // the worker does not look at errors
}

// settle waits until the worker in this process has reported the end of the job.
func (x *endsWorld) settle() {
	x.t.Helper()
	for begin := time.Now(); time.Since(begin) < time.Minute; time.Sleep(time.Millisecond) {
		if j, err := x.queue.Get(x.t.Context(), queue.At(x.clock.Now()), x.ref); err != nil || j.Status.Terminal() {
			return
		}
	}
	x.t.Error("the worker has reported no end")
}

func (x *endsWorld) advance(d time.Duration) {
	x.t.Helper()
	if err := x.clock.Advance(context.WithoutCancel(x.t.Context()), d, x.jobs); err != nil {
		x.t.Fatal(err)
	}
}

// An endRow is a row of docs/ends.md.
type endRow struct {
	name    string
	more    string // members of the job beside its input
	remote  bool   // only behind the protocol
	local   bool   // only in this process
	do      func(x *endsWorld)
	status  string // what a client sees; empty: 404
	err     string // its error begins or ends so
	leases  string // how those ended after which the job was queued again
	charged int    // deliveries
	retried int64
}

func thrice(f func(x *endsWorld)) func(x *endsWorld) {
	return func(x *endsWorld) {
		for range queue.MaxDeliveries {
			f(x)
		}
	}
}

const thriceLost = "worker lost: the job was given to workers 3 times and none of them reported a result"

// endRows are the ways in which leases, attempts and jobs end. Each counts somewhere.
func endRows() []endRow {
	lost := strings.Repeat("lost ", queue.MaxDeliveries-1)
	return []endRow{
		{name: "result", do: func(x *endsWorld) { x.take(); x.result(`1`) }, status: "COMPLETED", charged: 1},
		{name: "failure", do: func(x *endsWorld) { x.take(); x.fails("no luck") }, status: "FAILED", err: "no luck", charged: 1},
		{name: "failure, another attempt", more: `,"queue":{"retry":{"attempts":2,"delay":0}}`, status: "COMPLETED", leases: "failed ", charged: 1, retried: 1,
			do: func(x *endsWorld) { x.take(); x.fails("no luck"); x.again(); x.result(`1`) }},
		{name: "result is not JSON", do: func(x *endsWorld) { x.take(); x.result(`NaN`) }, status: "FAILED", err: "the worker's result is not JSON: invalid character 'N'", charged: 1},
		{name: "result is too large", do: func(x *endsWorld) { x.take(); x.result(`"` + strings.Repeat("x", 20<<20) + `"`) }, status: "FAILED", err: "the result is larger than 20971520 bytes (20 MB)", charged: 1},
		{name: "chunk is not JSON", do: func(x *endsWorld) { x.take(); x.chunk(`NaN`) }, status: "FAILED", err: "a chunk of the worker's result is not JSON: invalid character 'N'", charged: 1},
		{name: "chunk is too large", remote: true, do: func(x *endsWorld) { x.take(); x.chunk(`"` + strings.Repeat("x", 20<<20) + `"`) }, status: "FAILED", err: "a chunk of the worker's result is larger than 20971520 bytes (20 MB)", charged: 1},
		{name: "stream is full", status: "FAILED", err: "a chunk was not taken: the stream is full: too many of its bytes were not read; the limit is 67108864 bytes (64 MB)", charged: 1,
			do: func(x *endsWorld) {
				x.take()
				chunk := `"` + strings.Repeat("x", serverless.MaxChunk-100) + `"` // one that is not split
				for range 65 {
					x.chunk(chunk)
				}
			}},
		{name: "no result", remote: true, status: "FAILED", err: thriceLost + "; the last one: it asked for another job and had reported no result", leases: lost, charged: 3, retried: 2,
			do: thrice(func(x *endsWorld) {
				x.take()
				x.advance(time.Second)
				if err := x.jobs.ReportIdle(x.t.Context(), "e", serverless.WorkerID(x.worker)); err != nil {
					x.t.Error(err)
				}
			})},
		{name: "not listed", remote: true, status: "FAILED", err: thriceLost + "; the last one: it reported no result, and its pings do not list the job", leases: lost, charged: 3, retried: 2,
			do: func(x *endsWorld) {
				job := x.ref
				x.submit("")
				other := x.ref
				x.ref = job
				x.takeAs("w")
				x.ask("GET", "ping/w?job_id="+string(job.ID), "") // it lists its jobs
				x.result(`1`)
				x.ref = other
				thrice(func(x *endsWorld) {
					x.takeAs("w")
					x.advance(11 * time.Second)
					x.ask("GET", "ping/w", "")
				})(x)
			}},
		{name: "silence", remote: true, status: "FAILED", err: thriceLost, leases: lost, charged: 3, retried: 2,
			do: thrice(func(x *endsWorld) { x.take(); x.advance(31 * time.Second) })},
		{name: "worker ended", remote: true, status: "FAILED", err: thriceLost + "; the last one: it is not healthy: gpu: burns", leases: lost, charged: 3, retried: 2,
			do: thrice(func(x *endsWorld) {
				x.take()
				x.ask("GET", "ping/"+x.worker+"?status=unhealthy&check=gpu&reason=burns", "")
			})},
		{name: "goroutine ended", local: true, status: "FAILED", err: "the worker's goroutine ended without a result", charged: 1,
			do: func(x *endsWorld) {
				x.take()
				x.task.end <- func() ([]byte, error) { runtime.Goexit(); return nil, nil }
			}},
		{name: "panic", local: true, status: "FAILED", err: "the worker panicked: no luck", charged: 1,
			do: func(x *endsWorld) { x.take(); x.task.end <- func() ([]byte, error) { panic("no luck") } }},
		{name: "server ends", local: true, status: "COMPLETED", leases: strings.Repeat("released ", queue.MaxReleases), charged: 1,
			do: func(x *endsWorld) {
				long := x.ref
				x.submit("")
				next := x.ref
				x.ref = long
				for range queue.MaxReleases {
					x.take()
					x.stop()
				}
				x.ref = next // it is in front of the long one now
				x.take()
				x.result(`1`)
				x.ref = long
				x.again()
				x.result(`1`)
			}},
		{name: "server crashed", status: "FAILED", err: "harmful: the job was running at 10 restarts of the service and is not run again", leases: strings.Repeat("restarted ", queue.MaxRestarts-1), charged: 1,
			do: func(x *endsWorld) {
				for range queue.MaxRestarts {
					x.take()
					res := []queue.Result{{}}
					if err := x.queue.Apply(x.t.Context(), queue.At(x.clock.Now()), []queue.Op{{Ref: x.ref, Kind: queue.OpRecover}}, res); err != nil || res[0].Err != nil {
						x.t.Error(err, res[0].Err)
					}
					if !x.remote {
						x.stop()
					}
				}
			}},
		{name: "late result", remote: true, status: "COMPLETED", leases: "lost ", charged: 1, retried: 1,
			do: func(x *endsWorld) { x.take(); x.advance(31 * time.Second); x.result(`1`) }},
		{name: "execution timeout", more: `,"policy":{"executionTimeout":5000}`, status: "TIMED_OUT", err: "execution timeout: the job ran longer than 5000 ms", charged: 1,
			do: func(x *endsWorld) { x.take(); x.advance(5 * time.Second) }},
		{name: "ttl", more: `,"policy":{"ttl":10000}`, do: func(x *endsWorld) { x.take(); x.advance(10 * time.Second) }},
		{name: "cancel", status: "CANCELLED", charged: 1, do: func(x *endsWorld) { x.take(); x.ask("POST", "cancel/"+string(x.ref.ID), "") }},
	}
}

// again takes the job that was queued again, with the same worker if that is in this process.
func (x *endsWorld) again() {
	x.t.Helper()
	if x.remote {
		x.take()
		return
	}
	x.task = <-x.tasks
}

// TestEveryLeaseEndsInAWayThatCounts walks docs/ends.md over each store, with a worker in this process
// and with one behind the protocol.
func TestEveryLeaseEndsInAWayThatCounts(t *testing.T) {
	postgresql := &postgrestest.Server{Prepare: migrate}
	t.Cleanup(postgresql.Stop)
	for store, open := range map[string]func(*testing.T) serverless.JobQueue{
		"memory": func(*testing.T) serverless.JobQueue { return memory.NewJobs() },
		"disk":   openJobs,
		"postgres": func(t *testing.T) serverless.JobQueue {
			s, err := postgres.Open(t.Context(), postgresql.Database(t), &postgres.Options{MaxConns: 8})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = s.Close() })
			return s.Jobs()
		},
	} {
		t.Run(store, func(t *testing.T) {
			for _, row := range endRows() {
				for kind, remote := range map[string]bool{"protocol": true, "process": false} {
					if row.remote && !remote || row.local && remote {
						continue
					}
					t.Run(row.name+", "+kind, func(t *testing.T) {
						x := newEndsWorld(t, open(t), remote)
						x.submit(row.more)
						row.do(x)
						x.check(&row)
					})
				}
			}
		})
	}
}

// migrate makes the tables of a database once, for all that are copies of it.
func migrate(ctx context.Context, url string) error {
	s, err := postgres.Open(ctx, url, nil)
	if err != nil {
		return err
	}
	return s.Close()
}

func newEndsWorld(t *testing.T, q serverless.JobQueue, remote bool) *endsWorld {
	t.Helper()
	eps := memory.NewEndpoints()
	if err := eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}); err != nil {
		t.Fatal(err)
	}
	x := &endsWorld{t: t, queue: q, remote: remote, clock: clock.NewManual(time.Now()), tasks: make(chan *endsTask)}
	x.jobs = serverless.New(q, eps, &serverless.Options{Clock: x.clock, Deterministic: true, Rand: rand.NewChaCha8([32]byte{1})})
	x.api = linearHandler(t, x.jobs)
	run(t, func(ctx context.Context) error { return x.jobs.Listen(ctx) })
	t.Cleanup(func() {
		if x.stop != nil {
			x.t = t
			x.stop()
		}
	})
	return x
}

// check compares the job with a row.
func (x *endsWorld) check(row *endRow) {
	x.t.Helper()
	x.settle()
	a := x.ask("GET", "status/"+string(x.ref.ID), "")
	if row.status == "" {
		if a.status != http.StatusNotFound {
			x.t.Errorf("the job is %d %s, want 404", a.status, a.body)
		}
		return
	}
	var leases struct{ Leases []struct{ End string } }
	if err := json.Unmarshal([]byte(x.ask("GET", "attempts/"+string(x.ref.ID), "").body), &leases); err != nil {
		x.t.Fatal(err)
	}
	ends := ""
	for _, l := range leases.Leases {
		ends += l.End + " "
	}
	j, err := x.queue.Get(x.t.Context(), queue.At(x.clock.Now()), x.ref)
	h, err2 := x.jobs.Health(x.t.Context(), "e")
	if err := errors.Join(err, err2); err != nil {
		x.t.Fatal(err)
	}
	type seen struct {
		Status, Leases string
		Charged        int
		Retried        int64
	}
	if diff := cmp.Diff(seen{row.status, row.leases, row.charged, row.retried}, seen{a.field("status"), ends, int(j.Deliveries), h.Jobs.Retried}); diff != "" {
		x.t.Errorf("the job (-want +got):\n%s", diff)
	}
	if got := j.ErrorText(); !strings.HasPrefix(got, row.err) || row.err == "" && got != "" {
		x.t.Errorf("its error is %q, want %q", got, row.err)
	}
}

// The page names the rows of the test above, and tests that exist.
func TestThePageOfEndsIsWalked(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "docs", "ends.md"))
	if err != nil {
		t.Fatal(err)
	}
	var walked, want []string
	for _, m := range regexp.MustCompile("`TestEveryLeaseEndsInAWayThatCounts/([^`]*)`").FindAllStringSubmatch(string(page), -1) {
		walked = append(walked, m[1])
	}
	for _, row := range endRows() {
		want = append(want, row.name)
	}
	slices.Sort(walked)
	slices.Sort(want)
	if diff := cmp.Diff(want, walked); diff != "" {
		t.Errorf("rows of the page (-of the test +of the page):\n%s", diff)
	}
	tests := map[string]bool{}
	for _, m := range regexp.MustCompile("`(Test[A-Za-z0-9]*)`").FindAllStringSubmatch(string(page), -1) {
		tests[m[1]] = true
	}
	err = filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && strings.HasPrefix(d.Name(), ".") && d.Name() != ".." {
			return fs.SkipDir
		}
		if !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for name := range tests {
			if strings.Contains(string(text), "func "+name+"(") {
				delete(tests, name)
			}
		}
		return err
	})
	if err != nil || len(tests) > 0 {
		t.Errorf("the page names tests that do not exist: %v, %v", tests, err)
	}
}
