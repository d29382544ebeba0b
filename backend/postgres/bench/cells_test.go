package main

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
)

// A cell is something that happens to the database or to a worker while jobs are submitted and
// worked. The cells are those of github.com/hardbyte/postgresql-job-queue-benchmarking, five of
// chaos and four of pressure.
type cell struct {
	name      string
	work      time.Duration // of a job
	producers int
	pause     time.Duration // of a producer between two jobs
	disturb   func(c *cellRun)
	inTurn    bool // one system after the other; otherwise both at the same time
}

// A cellRun is a cell with systems at work, each with a database of its own on one server, so that
// the same happens to both at the same time. Where nothing happens but load, there is one at a time:
// two that want more than the machine has get shares of it by how many processes and connections they have,
// and what each does with its share could not be compared.
type cellRun struct {
	t          *testing.T
	cell       *cell
	postgresql postgrestest.Server
	admin      *pgx.Conn // opened before anything happens
	last       time.Duration
	sides      []*cellSide
	urls       []string
}

// A cellSide is one of the systems.
type cellSide struct {
	name   string
	queue  cellQueue
	worker *cellWorker
	start  func() *cellWorker

	mu      sync.Mutex
	acked   map[string]bool
	runs    map[string]int
	refused atomic.Int64

	atEnd   int           // jobs that were completed when it was over
	drained time.Duration // from then until all were; 0: not in time
	lost    int
	ended   time.Duration // from SIGTERM to the end of the worker; 0: not in time
}

// A cellQueue submits jobs.
type cellQueue interface {
	submit(ctx context.Context, id string) error
	completed(ctx context.Context) (ids []string, err error)
	close()
}

func cells() []cell {
	const inFlight = 50 * time.Millisecond
	return []cell{
		{"postgres_restart", time.Millisecond, 4, 2 * time.Millisecond, (*cellRun).restartPostgres, false},
		{"pg_backend_kill", time.Millisecond, 4, 2 * time.Millisecond, (*cellRun).killBackends, false},
		{"pool_exhaustion", time.Millisecond, 4, 2 * time.Millisecond, (*cellRun).takeAllConnections, false},
		{"crash_recovery", inFlight, 4, 5 * time.Millisecond, (*cellRun).killWorkersOnce, false},
		{"repeated_kills", inFlight, 4, 5 * time.Millisecond, (*cellRun).killWorkersAgain, false},
		{"idle_in_tx", time.Millisecond, 4, 0, (*cellRun).idleInTransaction, false},
		{"sustained_high_load", time.Millisecond, 16, 0, (*cellRun).wait, true},
		{"active_readers", time.Millisecond, 4, 0, (*cellRun).readAllTheTime, false},
		{"event_burst", time.Millisecond, 64, 0, (*cellRun).wait, true},
	}
}

// TestCells runs each cell for a second, or for PODYARD_LONG seconds. Ours must lose nothing, work
// everything off, and end when it is told to. What the other one does is printed.
func TestCells(t *testing.T) {
	suite.SkipUnlessLong(t)
	last := time.Second
	if n, err := strconv.Atoi(os.Getenv("PODYARD_LONG")); err == nil {
		last = time.Duration(n) * time.Second
	}
	var out tableBuffer
	w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(w, "cell\tsystem\tsubmitted\trefused\tcompleted/s\tdrained after\tlost\trun again\tended after")
	for _, c := range cells() {
		t.Run(c.name, func(t *testing.T) {
			turns := [][]string{cellSystems}
			if c.inTurn {
				turns = [][]string{cellSystems[:1], cellSystems[1:]}
			}
			for _, systems := range turns {
				t.Run(strings.Join(systems, " and "), func(t *testing.T) {
					r := newCellRun(t, &c, last, systems)
					r.run()
					for _, s := range r.sides {
						s.print(w, c.name, last)
						s.check(t)
					}
				})
			}
		})
	}
	_ = w.Flush()
	t.Logf("each cell lasts %v\n%s", last, out.String())
}

// check has the test fail if ours does not do what it must.
func (s *cellSide) check(t *testing.T) {
	t.Helper()
	if s.name == cellSystems[0] && (s.lost > 0 || s.drained == 0 || s.ended == 0 || len(s.acked) == 0) {
		t.Errorf("ours: %d of %d jobs are lost, drained after %v, the worker ended after %v (0: not in time)", s.lost, len(s.acked), s.drained, s.ended)
	}
}

func newCellRun(t *testing.T, c *cell, last time.Duration, systems []string) *cellRun {
	t.Helper()
	r := &cellRun{t: t, cell: c, last: last}
	t.Cleanup(r.postgresql.Stop)
	for _, name := range systems {
		url := r.postgresql.Empty(t) + "&synchronous_commit=on"
		q, err := openCell(t.Context(), name, url)
		if err != nil {
			t.Fatal(err)
		}
		s := &cellSide{name: name, queue: q, acked: map[string]bool{}, runs: map[string]int{}}
		t.Cleanup(q.close)
		s.start = func() *cellWorker { return startCellWorker(t, s, url, c.work) }
		s.worker = s.start()
		r.sides, r.urls = append(r.sides, s), append(r.urls, url)
	}
	r.admin = r.connect()
	return r
}

func openCell(ctx context.Context, system, url string) (cellQueue, error) {
	if system == cellSystems[0] {
		return openOurCell(ctx, url)
	}
	return openTheirCell(ctx, url)
}

func (r *cellRun) connect() *pgx.Conn {
	r.t.Helper()
	conn, err := pgx.Connect(r.t.Context(), r.postgresql.URL("postgres", "", "postgres"))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(r.t.Context())) })
	return conn
}

// run has producers submit while it happens, and waits until everything is worked off.
func (r *cellRun) run() {
	ctx, cancel := context.WithCancel(r.t.Context())
	var producers sync.WaitGroup
	for _, s := range r.sides {
		for n := range r.cell.producers {
			producers.Go(func() { s.produce(ctx, n, r.cell.pause) })
		}
	}
	r.cell.disturb(r)
	cancel()
	producers.Wait()
	var sides sync.WaitGroup
	over := make(chan struct{})
	for i, s := range r.sides {
		sides.Go(func() {
			s.drain(r.t.Context(), 3*time.Minute+15*r.last, over)
			if i == 0 {
				time.AfterFunc(r.last, func() { close(over) }) // the other one has so much longer
			}
		})
	}
	sides.Wait()
	for _, s := range r.sides {
		s.ended = s.worker.end(syscall.SIGTERM, suite.Within(20*time.Second))
	}
}

func (s *cellSide) produce(ctx context.Context, n int, pause time.Duration) {
	for k := 0; ctx.Err() == nil; k++ {
		id := fmt.Sprintf("job-%d-%d", n, k)
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		err := s.queue.submit(limited, id)
		cancel()
		if err != nil {
			s.refused.Add(1)
			time.Sleep(20 * time.Millisecond)
			continue
		}
		s.mu.Lock()
		s.acked[id] = true
		s.mu.Unlock()
		time.Sleep(pause)
	}
}

// drain waits until each job that was acknowledged has completed, or until over, or until a limit: who
// submits faster than a worker works leaves more than a worker can do in the time of the cell.
func (s *cellSide) drain(ctx context.Context, limit time.Duration, over <-chan struct{}) {
	began := time.Now()
	for first := true; time.Since(began) < limit; first = false {
		look := time.Now()
		ids, err := s.queue.completed(ctx)
		if err == nil && first {
			s.atEnd = len(ids)
		}
		if err == nil {
			left := maps.Clone(s.acked)
			for _, id := range ids {
				delete(left, id)
			}
			if s.lost = len(left); s.lost == 0 {
				s.drained = max(time.Since(began), time.Millisecond)
				return
			}
		}
		select {
		case <-over:
			return
		case <-time.After(max(100*time.Millisecond, time.Since(look))):
		}
	}
}

func (s *cellSide) print(w *tabwriter.Writer, cell string, last time.Duration) {
	again := 0
	for _, n := range s.runs {
		again += n - 1
	}
	or := func(d time.Duration) string {
		if d == 0 {
			return "not in time"
		}
		return d.Round(time.Millisecond).String()
	}
	_, _ = fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%.0f\t%s\t%d\t%d\t%s\n", cell, s.name, len(s.acked), s.refused.Load(), float64(s.atEnd)/last.Seconds(), or(s.drained), s.lost, again, or(s.ended))
}

func (r *cellRun) wait() { time.Sleep(r.last) }

// each calls f again and again until the time is over.
func (r *cellRun) each(every time.Duration, f func(n int)) {
	began := time.Now()
	for n := 0; time.Since(began) < r.last; n++ {
		time.Sleep(every)
		f(n)
	}
}

// restartPostgres restarts the database every two seconds, in turn as after a crash and in order.
func (r *cellRun) restartPostgres() {
	r.each(min(time.Second, r.last/2), func(n int) {
		r.postgresql.Restart(r.t, n%2 == 0, nil)
		time.Sleep(min(time.Second, r.last/2))
	})
}

// terminate ends a part of the connections of both systems.
func (r *cellRun) terminate(part float64) {
	_, err := r.admin.Exec(r.t.Context(), `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname LIKE 'test%' AND random() < $1`, part)
	if err != nil {
		r.t.Error(err)
	}
}

func (r *cellRun) killBackends() { r.each(100*time.Millisecond, func(int) { r.terminate(0.3) }) }

// takeAllConnections leaves no connection for anybody, and ends half of those that are there.
func (r *cellRun) takeAllConnections() {
	time.Sleep(r.last / 4)
	var taken []*pgx.Conn
	take := func() {
		for {
			conn, err := pgx.Connect(r.t.Context(), r.postgresql.URL("postgres", "", "postgres"))
			if err != nil {
				return
			}
			taken = append(taken, conn)
		}
	}
	take()
	r.terminate(0.5)
	take()
	time.Sleep(r.last / 2)
	for _, conn := range taken {
		_ = conn.Close(r.t.Context())
	}
	time.Sleep(r.last / 4)
	if len(taken) < 50 {
		r.t.Errorf("%d connections were left to take: this shows too little", len(taken))
	}
}

func (r *cellRun) killWorkers() {
	for _, s := range r.sides {
		s.worker.end(syscall.SIGKILL, time.Minute)
	}
}

func (r *cellRun) startWorkers() {
	for _, s := range r.sides {
		s.worker = s.start()
	}
}

func (r *cellRun) killWorkersOnce() {
	time.Sleep(r.last / 2)
	r.killWorkers()
	time.Sleep(r.last / 4)
	r.startWorkers()
	time.Sleep(r.last / 4)
}

func (r *cellRun) killWorkersAgain() {
	r.each(300*time.Millisecond, func(int) {
		time.Sleep(time.Duration(rand.IntN(400)) * time.Millisecond)
		r.killWorkers()
		r.startWorkers()
	})
}

// idleInTransaction keeps the database from removing dead rows of both.
func (r *cellRun) idleInTransaction() {
	for _, url := range r.urls {
		conn, err := pgx.Connect(r.t.Context(), url)
		if err != nil {
			r.t.Fatal(err)
		}
		defer func() { _ = conn.Close(r.t.Context()) }()
		if _, err := conn.Exec(r.t.Context(), "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
			r.t.Fatal(err)
		}
	}
	r.wait()
}

// readAllTheTime reads all jobs of both in transactions that overlap.
func (r *cellRun) readAllTheTime() {
	ctx, cancel := context.WithTimeout(r.t.Context(), r.last)
	defer cancel()
	var readers sync.WaitGroup
	for i, url := range r.urls {
		sql := []string{`SELECT count(*) FROM podyard.jobs`, `SELECT count(*) FROM river_job`}[i]
		for n := range 4 {
			readers.Go(func() {
				conn, err := pgx.Connect(r.t.Context(), url)
				if err != nil {
					r.t.Error(err)
					return
				}
				defer func() { _ = conn.Close(r.t.Context()) }()
				time.Sleep(time.Duration(n) * 100 * time.Millisecond)
				for ctx.Err() == nil {
					_, _ = conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; "+sql+"; SELECT pg_sleep(0.4); "+sql+"; COMMIT") // it ends with ctx
				}
			})
		}
	}
	readers.Wait()
}

// A tableBuffer has what was printed.
type tableBuffer struct{ b []byte }

func (b *tableBuffer) Write(p []byte) (int, error) { b.b = append(b.b, p...); return len(p), nil }
func (b *tableBuffer) String() string              { return string(slices.Clone(b.b)) }
