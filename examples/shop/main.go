// Command shop takes orders, whose invoices a queue makes. It is the program of the directory disk, the
// first step, after three more: orders and jobs are in one PostgreSQL database, any number of copies run
// over it, and customers see their jobs in the console. Lines that end in "step 5" are for workers in other
// processes (directory worker).
//
//	export SHOP_SECRET=$(openssl rand -hex 16) SHOP_WORKER_KEY=$(openssl rand -hex 16)
//	go run ./examples/shop -database postgres://postgres@127.0.0.1/shop
package main

import (
	"context"
	"crypto/hkdf"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/podyard/podyard/backend/postgres"
	metrics "github.com/podyard/podyard/backend/prometheus"
	"github.com/podyard/podyard/examples/shop/invoice"
	"github.com/podyard/podyard/examples/shop/signin"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/schedules"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	addr := flag.String("addr", "127.0.0.1:8085", "listen `address`")
	database := flag.String("database", os.Getenv("SHOP_DATABASE"), "`URL` of the database of orders and jobs")
	flag.Parse()
	must(0, serve(ctx, must(new(net.ListenConfig).Listen(ctx, "tcp", *addr)), *database, os.Getenv("SHOP_SECRET"), os.Getenv("SHOP_WORKER_KEY")))
}

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

type shop struct {
	*signin.SignIn

	db       *pgxpool.Pool
	jobs     *serverless.Service
	invoices *serverless.Handler[invoice.Order, invoice.Invoice]
}

// serve runs the shop until ctx ends. Then invoices in progress have 6.5 seconds, and the rest waits for
// the next start.
func serve(ctx context.Context, l net.Listener, database, secret, workerKey string) error {
	db := must(pgxpool.New(ctx, database))
	defer db.Close()
	must(db.Exec(ctx, tables))
	key := must(hkdf.Key(sha256.New, []byte(secret), nil, "what copies share", postgres.KeySize))
	users := users{must(signin.New(secret))}                                                                                               // step 4
	keys := must(httpapi.NewKeys([]httpapi.Key{{Secret: workerKey, User: "worker", Scopes: []string{"endpoint:invoice:work"}}}, time.Now)) // step 5
	registry := prometheus.NewRegistry()
	jobs := metrics.New(&metrics.Options{Registerer: registry})
	srv := must(server.New(ctx, &server.Options{
		Store:  must(postgres.Open(ctx, "", &postgres.Options{Pool: db, Key: key, Logger: slog.Default()})),
		API:    httpapi.Options{Auth: httpapi.AnyOf(users, keys)}, // step 4
		Jobs:   serverless.Options{Observer: jobs.Jobs()},
		Logger: slog.Default(),
	}))
	s := &shop{SignIn: users.SignIn, db: db, jobs: srv.Services().Jobs}
	jobs.SetSources(metrics.Sources{Jobs: s.jobs})
	s.declare(ctx)
	mux := http.NewServeMux()
	mux.HandleFunc("POST /login", s.Login)
	mux.HandleFunc("POST /orders", s.Only(s.order))
	mux.HandleFunc("GET /orders/{id}", s.Only(s.show))
	mux.HandleFunc("GET /orders/{id}/invoice", s.Only(s.download))
	mux.HandleFunc("DELETE /orders/{id}", s.Only(s.cancel))
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	mux.Handle("/console/", users.console(srv)) // step 4
	mux.Handle("/v2/", srv.Jobs())              // step 5
	return srv.Run(ctx, server.On(l, mux))
}

// tables are those of the shop. The lock is for copies that start together.
const tables = `SELECT pg_advisory_xact_lock(85); CREATE TABLE IF NOT EXISTS orders (
	id text PRIMARY KEY, customer text NOT NULL, reference text, items text[] NOT NULL, UNIQUE (customer, reference))`

// declare says which jobs there are. It may run at every start, and at several servers at once.
func (s *shop) declare(ctx context.Context) {
	s.invoices = must(serverless.HandleTask(ctx, s.jobs, "invoice", makeInvoice, &serverless.ServeOptions{Concurrency: 8}))
	must(s.jobs.UpdateQueue(ctx, "invoice", endpoints.QueueUpdate{
		PerUser: new(2), Retain: new(30 * 24 * time.Hour),
		Retry: &serverless.RetryPolicy{Attempts: 5, Delay: time.Second, Factor: 3, MaxDelay: time.Minute, Jitter: 0.5},
	}))
	must(serverless.Handle(ctx, s.jobs, "report", s.report, nil))
	must(s.jobs.Schedules().Declare(ctx, "shop", "report", "nightly", schedules.Settings{
		Cron: new("0 3 * * *"), TimeZone: new("Europe/Berlin"), Run: []byte(`{"input":{}}`),
	}))
}

func makeInvoice(ctx context.Context, t *serverless.JSONTask[invoice.Order]) (invoice.Invoice, error) {
	return invoice.Make(ctx, t.Input, func(done, all int) error { return t.Progress(ctx, [2]int{done, all}) })
}

func (s *shop) report(ctx context.Context, _ struct{}) (int64, error) {
	h, err := s.jobs.Health(ctx, "invoice")
	slog.InfoContext(ctx, "invoices so far", "completed", h.Jobs.Completed, "failed", h.Jobs.Failed)
	return h.Jobs.Completed, err
}

func (s *shop) order(w http.ResponseWriter, r *http.Request, customer string) {
	o := invoice.Order{}
	if err := errors.Join(json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&o), o.Check()); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	j := serverless.Job{}
	err := pgx.BeginFunc(r.Context(), s.db, func(tx pgx.Tx) (err error) {
		if j, err = s.invoices.As(customer).SubmitTx(r.Context(), tx, o); err != nil {
			return err
		}
		tag, err := tx.Exec(r.Context(), "INSERT INTO orders VALUES ($1, $2, NULLIF($3, ''), $4) ON CONFLICT DO NOTHING", j.ID, customer, o.Reference, o.Items)
		if err == nil && tag.RowsAffected() == 0 {
			return problem.New(problem.Conflict, "there is an order with this reference") // no order, no job
		}
		return err
	})
	answer(w, j, err)
}

func (s *shop) show(w http.ResponseWriter, r *http.Request, customer string) {
	j, err := s.jobs.Get(r.Context(), customer, s.job(r))
	answer(w, j, err)
}

func (s *shop) cancel(w http.ResponseWriter, r *http.Request, customer string) {
	j, err := s.jobs.Cancel(r.Context(), customer, s.job(r))
	answer(w, j, err)
}

func (s *shop) job(r *http.Request) serverless.Ref {
	return serverless.Ref{Endpoint: s.invoices.Endpoint(), ID: serverless.JobID(r.PathValue("id"))}
}

// download waits until the invoice is made.
func (s *shop) download(w http.ResponseWriter, r *http.Request, customer string) {
	out, err := s.invoices.As(customer).Result(r.Context(), s.job(r).ID)
	if _, ended := errors.AsType[*serverless.JobError](err); ended {
		http.Error(w, "this order has no invoice", http.StatusConflict)
		return
	} else if err != nil {
		httpapi.WriteProblem(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/pdf")
	_, _ = w.Write(out.PDF) // the customer may be gone
}

// answer shows a job. Its output is how many pages are made, of how many; the invoice has a page of its own.
func answer(w http.ResponseWriter, j serverless.Job, err error) {
	if err != nil {
		httpapi.WriteProblem(w, err)
		return
	}
	if j.Status == serverless.Completed {
		j.Output = nil
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(j.AppendJSON(nil, false)) //nolint:gosec // it is no HTML; the customer may be gone
}
