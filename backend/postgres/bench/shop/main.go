// Command shop is examples/shop of podyard with River in its place, as far as the second step: the same
// pages, sign-in and work. It is there to be counted and compared.
//
//	SHOP_SECRET=$(openssl rand -hex 16) go run ./shop -database postgres://postgres@127.0.0.1/shop
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/riverqueue/river/rivertype"

	"github.com/podyard/podyard/examples/shop/invoice"
	"github.com/podyard/podyard/examples/shop/signin"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8085", "listen `address`")
	database := flag.String("database", os.Getenv("SHOP_DATABASE"), "`URL` of the database of orders and jobs")
	flag.Parse()
	must(0, serve(ctx, must(new(net.ListenConfig).Listen(ctx, "tcp", *addr)), *database, os.Getenv("SHOP_SECRET")))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// atOnce is how many jobs a copy runs at once.
const atOnce = 8

type shop struct {
	*signin.SignIn

	db   *pgxpool.Pool
	jobs *river.Client[pgx.Tx]
}

// serve runs the shop until ctx ends. Then invoices in progress have 6.5 seconds, and the rest waits for
// the next start.
func serve(ctx context.Context, l net.Listener, database, secret string) error {
	settings := must(pgxpool.ParseConfig(database))
	settings.MaxConns = 3 * atOnce // each job keeps a connection for its lock, and needs others
	db := must(pgxpool.NewWithConfig(ctx, settings))
	defer db.Close()
	must(must(rivermigrate.New(riverpgxv5.New(db), nil)).Migrate(ctx, rivermigrate.DirectionUp, nil))
	must(db.Exec(ctx, tables))
	s := &shop{SignIn: must(signin.New(secret)), db: db}
	s.jobs = must(river.NewClient(riverpgxv5.New(db), s.config()))
	registry := prometheus.NewRegistry()
	measure(s.jobs, registry)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", s.Login)
	mux.HandleFunc("POST /orders", s.Only(s.order))
	mux.HandleFunc("GET /orders/{id}", s.Only(s.show))
	mux.HandleFunc("GET /orders/{id}/invoice", s.Only(s.download))
	mux.HandleFunc("DELETE /orders/{id}", s.Only(s.cancel))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	must(0, s.jobs.Start(ctx))
	srv := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(l) }()
	var err error
	select {
	case err = <-failed:
	case <-ctx.Done():
	}
	late, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	return errors.Join(err, s.jobs.Stop(late), srv.Shutdown(late))
}

// tables are those of the shop. The lock is for copies that start together.
const tables = `SELECT pg_advisory_xact_lock(85); CREATE TABLE IF NOT EXISTS orders (
	id bigint PRIMARY KEY, customer text NOT NULL, reference text, items text[] NOT NULL, UNIQUE (customer, reference))`

func (s *shop) config() *river.Config {
	workers := river.NewWorkers()
	river.AddWorker(workers, &invoices{db: s.db})
	river.AddWorker(workers, &reports{db: s.db})
	const month = 30 * 24 * time.Hour
	return &river.Config{
		Queues:  map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: atOnce}},
		Workers: workers, MaxAttempts: 5, JobTimeout: 10 * time.Minute, Logger: slog.Default(), SoftStopTimeout: 6500 * time.Millisecond,
		CompletedJobRetentionPeriod: month, CancelledJobRetentionPeriod: month, DiscardedJobRetentionPeriod: month,
		PeriodicJobs: []*river.PeriodicJob{river.NewPeriodicJob(nightly{must(time.LoadLocation("Europe/Berlin"))},
			func() (river.JobArgs, *river.InsertOpts) { return report{}, nil }, &river.PeriodicJobOpts{ID: "nightly"})},
	}
}

// nightly is 3 o'clock.
type nightly struct{ zone *time.Location }

func (n nightly) Next(now time.Time) time.Time {
	now = now.In(n.zone)
	next := time.Date(now.Year(), now.Month(), now.Day(), 3, 0, 0, 0, n.zone)
	if !next.After(now) {
		next = time.Date(now.Year(), now.Month(), now.Day()+1, 3, 0, 0, 0, n.zone)
	}
	return next
}

type order struct {
	invoice.Order

	Customer string
}

func (order) Kind() string { return "invoice" }

type invoices struct {
	river.WorkerDefaults[order]

	db *pgxpool.Pool
}

// Work makes an invoice if the customer has fewer than two in progress, and else tries again a second
// later. The locks of a copy that dies end with its connections.
func (w *invoices) Work(ctx context.Context, j *river.Job[order]) error {
	conn, err := w.db.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	slot := 0
	const lock = "SELECT CASE WHEN pg_try_advisory_lock(1, hashtext($1)) THEN 1 WHEN pg_try_advisory_lock(2, hashtext($1)) THEN 2 ELSE 0 END"
	if err := conn.QueryRow(ctx, lock, j.Args.Customer).Scan(&slot); err != nil {
		return err
	}
	if slot == 0 {
		return river.JobSnooze(time.Second)
	}
	defer func() {
		if _, err := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1, hashtext($2))", slot, j.Args.Customer); err != nil {
			_ = conn.Conn().Close(context.WithoutCancel(ctx)) // that unlocks it, too
		}
	}()
	made, err := invoice.Make(ctx, j.Args.Order, func(done, all int) error {
		_, err := river.ClientFromContext[pgx.Tx](ctx).JobUpdate(ctx, j.ID, &river.JobUpdateParams{Output: [2]int{done, all}})
		return err
	})
	if err != nil {
		return err
	}
	return river.RecordOutput(ctx, made)
}

type report struct{}

func (report) Kind() string { return "report" }

type reports struct {
	river.WorkerDefaults[report]

	db *pgxpool.Pool
}

func (w *reports) Work(ctx context.Context, _ *river.Job[report]) error {
	var completed, failed int64
	err := w.db.QueryRow(ctx, `SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state = 'discarded')
		FROM river_job WHERE kind = 'invoice'`).Scan(&completed, &failed)
	slog.InfoContext(ctx, "invoices so far", "completed", completed, "failed", failed)
	return err
}

// measure counts what this copy does.
func measure(jobs *river.Client[pgx.Tx], registry prometheus.Registerer) {
	ended := promauto.With(registry).NewCounterVec(prometheus.CounterOpts{Name: "shop_attempts_total"}, []string{"kind", "event"})
	ran := promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{Name: "shop_run_seconds"}, []string{"kind"})
	waited := promauto.With(registry).NewHistogramVec(prometheus.HistogramOpts{Name: "shop_wait_seconds"}, []string{"kind"})
	events, _ := jobs.Subscribe(river.EventKindJobCompleted, river.EventKindJobFailed, river.EventKindJobCancelled)
	go func() {
		for e := range events { // the end of jobs closes it
			ended.WithLabelValues(e.Job.Kind, string(e.Kind)).Inc()
			ran.WithLabelValues(e.Job.Kind).Observe(e.JobStats.RunDuration.Seconds())
			waited.WithLabelValues(e.Job.Kind).Observe(e.JobStats.QueueWaitDuration.Seconds())
		}
	}()
}

func (s *shop) order(w http.ResponseWriter, r *http.Request, customer string) {
	o := order{Customer: customer}
	if err := errors.Join(json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&o.Order), o.Check()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	var j *rivertype.JobRow
	err := pgx.BeginFunc(r.Context(), s.db, func(tx pgx.Tx) error {
		made, err := s.jobs.InsertTx(r.Context(), tx, o, nil)
		if err != nil {
			return err
		}
		j = made.Job
		tag, err := tx.Exec(r.Context(), "INSERT INTO orders VALUES ($1, $2, NULLIF($3, ''), $4) ON CONFLICT DO NOTHING", j.ID, customer, o.Reference, o.Items)
		if err == nil && tag.RowsAffected() == 0 {
			return errTwice // no order, no job
		}
		return err
	})
	answer(w, j, err)
}

var errTwice = errors.New("there is an order with this reference")

func (s *shop) show(w http.ResponseWriter, r *http.Request, customer string) {
	j, err := s.job(r, customer)
	answer(w, j, err)
}

func (s *shop) cancel(w http.ResponseWriter, r *http.Request, customer string) {
	j, err := s.job(r, customer)
	if err == nil {
		j, err = s.jobs.JobCancel(r.Context(), j.ID)
	}
	answer(w, j, err)
}

// job returns the job of an order, if it is one of the customer's.
func (s *shop) job(r *http.Request, customer string) (*rivertype.JobRow, error) {
	id, err := strconv.ParseInt(r.PathValue("id"), 10, 64)
	if err != nil {
		return nil, river.ErrNotFound
	}
	if err := s.db.QueryRow(r.Context(), "SELECT id FROM orders WHERE id = $1 AND customer = $2", id, customer).Scan(&id); err != nil {
		return nil, err
	}
	return s.jobs.JobGet(r.Context(), id)
}

// download waits until the invoice is made.
func (s *shop) download(w http.ResponseWriter, r *http.Request, customer string) {
	j, err := s.job(r, customer)
	for err == nil && j.FinalizedAt == nil {
		select {
		case <-r.Context().Done():
			return
		case <-time.After(100 * time.Millisecond):
			j, err = s.jobs.JobGet(r.Context(), j.ID)
		}
	}
	if err != nil {
		fail(w, err)
		return
	}
	out := invoice.Invoice{}
	if j.State != rivertype.JobStateCompleted || json.Unmarshal(j.Output(), &out) != nil {
		http.Error(w, "this order has no invoice", http.StatusConflict)
		return
	}
	w.Header().Set("Content-Type", "application/pdf")
	_, _ = w.Write(out.PDF) // the customer may be gone
}

// answer shows a job. Its output is how many pages are made, of how many; the invoice has a page of its own.
func answer(w http.ResponseWriter, j *rivertype.JobRow, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	view := map[string]any{"id": strconv.FormatInt(j.ID, 10), "status": j.State}
	if out := j.Output(); j.State == rivertype.JobStateRunning && out != nil {
		view["output"] = json.RawMessage(out)
	}
	if n := len(j.Errors); n > 0 {
		view["error"] = j.Errors[n-1].Error
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(view) // the customer may be gone
}

func fail(w http.ResponseWriter, err error) {
	switch {
	case errors.Is(err, river.ErrNotFound), errors.Is(err, pgx.ErrNoRows):
		http.Error(w, "there is no such order", http.StatusNotFound)
	case errors.Is(err, errTwice):
		http.Error(w, err.Error(), http.StatusConflict)
	default:
		slog.Error("a page", "err", err)
		http.Error(w, "", http.StatusInternalServerError)
	}
}
