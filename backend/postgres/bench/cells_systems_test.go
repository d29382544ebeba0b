package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/servers"
)

var cellSystems = []string{"ours", "River"}

const (
	cellSlots = 16 // jobs that a worker runs at once
	cellConns = 16 // connections of a process
	// cellLease is how long a job of a process that died is not given to another one.
	cellLease = 5 * time.Second
)

// Variables of a process that is a worker.
const (
	cellSystemVar = "PODYARD_CELL_SYSTEM"
	cellURLVar    = "PODYARD_CELL_URL"
	cellWorkVar   = "PODYARD_CELL_WORK"
)

// A cellWorker is a process that works. It prints a line for each job that it begins.
type cellWorker struct {
	cmd  *exec.Cmd
	done chan struct{}
}

func startCellWorker(t *testing.T, s *cellSide, url string, work time.Duration) *cellWorker {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &cellWorker{cmd: exec.Command(self), done: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), cellSystemVar+"="+s.name, cellURLVar+"="+url, cellWorkVar+"="+work.String())
	w.cmd.Stderr = os.Stderr
	out, err := w.cmd.StdoutPipe()
	if err = errors.Join(err, w.cmd.Start()); err != nil {
		t.Fatal(err)
	}
	works := make(chan struct{})
	go func() {
		defer close(w.done)
		in := bufio.NewScanner(out)
		for in.Scan() {
			if in.Text() == cellReady {
				close(works)
				continue
			}
			s.mu.Lock()
			s.runs[in.Text()]++
			s.mu.Unlock()
		}
		_ = w.cmd.Wait() // it was ended
	}()
	t.Cleanup(func() { w.end(syscall.SIGKILL, time.Minute) })
	select {
	case <-works:
	case <-w.done:
		t.Fatalf("the worker of %s ended", s.name)
	case <-time.After(time.Minute):
		t.Fatalf("the worker of %s does not begin", s.name)
	}
	return w
}

// end sends a signal and returns how long the end took; 0: it was killed after a limit.
func (w *cellWorker) end(how os.Signal, limit time.Duration) time.Duration {
	began := time.Now()
	_ = w.cmd.Process.Signal(how) // it may have ended
	select {
	case <-w.done:
		return max(time.Since(began), 1)
	case <-time.After(limit):
		_ = w.cmd.Process.Kill()
		<-w.done
		return 0
	}
}

// cellReady is the line of a worker that waits for jobs.
const cellReady = "ready"

var cellOut sync.Mutex

func sayCell(line string) {
	cellOut.Lock()
	defer cellOut.Unlock()
	fmt.Println(line)
}

// runCellWorker is the process of a worker, until SIGTERM.
func runCellWorker(system string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	work, err := time.ParseDuration(os.Getenv(cellWorkVar))
	if err != nil {
		return err
	}
	job := func(ctx context.Context, id string) error {
		sayCell(id)
		select {
		case <-time.After(work):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	for { // the database may not be there
		if system == cellSystems[0] {
			err = workOurs(ctx, os.Getenv(cellURLVar), job)
		} else {
			err = workTheirs(ctx, os.Getenv(cellURLVar), job)
		}
		if err == nil || ctx.Err() != nil {
			return nil
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// ourCell is a server without workers.
type ourCell struct {
	store *postgres.Store
	jobs  *serverless.Service
	end   func()
	conn  func(ctx context.Context) (*pgx.Conn, error)
}

const cellEndpoint = "cell"

func openOurCell(ctx context.Context, url string) (*ourCell, error) {
	store, err := postgres.Open(ctx, url, &postgres.Options{MaxConns: cellConns / 2})
	if err != nil {
		return nil, err
	}
	eps := memory.NewEndpoints()
	if err := eps.Create(ctx, &serverless.Endpoint{ID: cellEndpoint, Name: cellEndpoint}); err != nil {
		return nil, err
	}
	joined, err := servers.Join(ctx, store.Servers(), nil)
	if err != nil {
		return nil, err
	}
	jobs := serverless.New(store.Jobs(), eps, &serverless.Options{Lease: cellLease, Server: joined, Presence: store.Presence(), WorkerSecret: []byte("cells")})
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var running sync.WaitGroup
	running.Go(func() { _ = joined.Run(ctx) })
	running.Go(func() { _ = jobs.Run(ctx) })
	return &ourCell{
		store: store, jobs: jobs, end: func() { cancel(); running.Wait() },
		conn: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
	}, nil
}

func (q *ourCell) close() {
	q.end()
	q.store.Close()
}

func (q *ourCell) submit(ctx context.Context, id string) error {
	_, err := q.jobs.Submit(ctx, "u", cellEndpoint, serverless.Request{Input: []byte(`{"id":"` + id + `"}`)})
	return err
}

// completed also has the jobs that the queue has ended as FAILED, because each of the workers that got them
// was killed: their clients see that. What a worker has ended as FAILED has an error in job_outputs.
func (q *ourCell) completed(ctx context.Context) ([]string, error) {
	return readIDs(ctx, q.conn, `SELECT convert_from(o.output, 'UTF8')::json->>'id' FROM podyard.jobs j JOIN podyard.job_outputs o ON o.num = j.num WHERE j.status = $1
	UNION ALL SELECT convert_from(b.input, 'UTF8')::json->>'id' FROM podyard.jobs j JOIN podyard.job_bodies b ON b.num = j.num WHERE j.status = $2 AND NOT EXISTS (SELECT FROM podyard.job_outputs o WHERE o.num = j.num)`,
		int(serverless.Completed), int(serverless.Failed))
}

func readIDs(ctx context.Context, connect func(context.Context) (*pgx.Conn, error), sql string, args ...any) ([]string, error) {
	conn, err := connect(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(ctx) }()
	rows, err := conn.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

func workOurs(ctx context.Context, url string, job func(context.Context, string) error) error {
	q, err := openOurCell(ctx, url)
	if err != nil {
		return err
	}
	defer q.close()
	sayCell(cellReady)
	err = q.jobs.Serve(ctx, cellEndpoint, serverless.WorkerFunc(func(ctx context.Context, t *serverless.Task) ([]byte, error) {
		var in struct{ ID string }
		if err := json.Unmarshal(t.Input, &in); err != nil {
			return nil, err
		}
		return t.Input, job(ctx, in.ID)
	}), &serverless.ServeOptions{Concurrency: cellSlots, Drain: 5 * time.Second})
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// theirCell is a client that inserts only.
type theirCell struct {
	pool   *pgxpool.Pool
	client *river.Client[pgx.Tx]
	url    string
}

func theirPool(ctx context.Context, url string) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	cfg.MaxConns = cellConns
	return pgxpool.NewWithConfig(ctx, cfg)
}

func openTheirCell(ctx context.Context, url string) (*theirCell, error) {
	pool, err := theirPool(ctx, url)
	if err != nil {
		return nil, err
	}
	m, err := rivermigrate.New(riverpgxv5.New(pool), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err == nil {
		_, err = m.Migrate(ctx, rivermigrate.DirectionUp, nil)
	}
	if err != nil {
		return nil, err
	}
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{})
	return &theirCell{pool, c, url}, err
}

func (q *theirCell) close() { q.pool.Close() }

type cellArgs struct {
	ID string `json:"id"`
}

func (cellArgs) Kind() string { return "cell" }

func (q *theirCell) submit(ctx context.Context, id string) error {
	_, err := q.client.Insert(ctx, cellArgs{id}, nil)
	return err
}

func (q *theirCell) completed(ctx context.Context) ([]string, error) {
	return readIDs(ctx, func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, q.url) }, `SELECT args->>'id' FROM river_job WHERE state = 'completed'`)
}

type cellRiver struct {
	river.WorkerDefaults[cellArgs]
	job func(context.Context, string) error
}

func (w *cellRiver) Work(ctx context.Context, j *river.Job[cellArgs]) error {
	return w.job(ctx, j.Args.ID)
}

// workTheirs has a client whose stuck jobs are as soon another one's as ours, as far as it can be
// told to.
func workTheirs(ctx context.Context, url string, job func(context.Context, string) error) error {
	pool, err := theirPool(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	all := river.NewWorkers()
	river.AddWorker(all, &cellRiver{job: job})
	c, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cellSlots}}, Workers: all,
		FetchCooldown: time.Millisecond, FetchPollInterval: time.Second,
		JobTimeout: cellLease - time.Second, RescueStuckJobsAfter: cellLease, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	background := context.WithoutCancel(ctx)
	if err := c.Start(background); err != nil {
		return err
	}
	sayCell(cellReady)
	<-ctx.Done()
	limited, cancel := context.WithTimeout(background, 5*time.Second)
	defer cancel()
	if c.Stop(limited) != nil {
		hard, cancel := context.WithTimeout(background, 5*time.Second)
		defer cancel()
		return c.StopAndCancel(hard)
	}
	return nil
}
