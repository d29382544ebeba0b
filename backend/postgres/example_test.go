package postgres_test

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/serverless/queue"
)

// A store over the database that DATABASE_URL would name. Several programs may open it.
func Example() {
	ctx := context.Background()
	store, err := postgres.Open(ctx, "postgres://podyard@db.example.com/podyard?sslmode=verify-full", nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
}

// The order and its job are there together, or neither of them. The commit wakes workers.
func ExampleJobs_EnqueueTx() {
	ctx := context.Background()
	const url = "postgres://podyard@db.example.com/podyard?sslmode=verify-full"
	store, err := postgres.Open(ctx, url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	db, err := pgx.Connect(ctx, url) // the program's own connection to the same database
	if err != nil {
		fmt.Println(err)
		return
	}
	job := invoice("order-1")
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (1)`); err != nil {
			return err
		}
		return store.Jobs().EnqueueTx(ctx, tx, job)
	})
	fmt.Println(err)
}

// The same with package database/sql. Here the driver is that of pgx: import
// github.com/jackc/pgx/v5/stdlib.
func ExampleJobs_EnqueueSQL() {
	ctx := context.Background()
	const url = "postgres://podyard@db.example.com/podyard?sslmode=verify-full"
	store, err := postgres.Open(ctx, url, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer store.Close()
	db, err := sql.Open("pgx", url)
	if err != nil {
		fmt.Println(err)
		return
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer tx.Rollback() // after a commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id) VALUES (1), (2)`); err != nil {
		fmt.Println(err)
		return
	}
	if err := store.Jobs().EnqueueSQL(ctx, tx, invoice("order-1"), invoice("order-2")); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(tx.Commit())
}

func invoice(order queue.JobID) queue.Job {
	now := queue.At(time.Now())
	return queue.Job{
		Ref: queue.Ref{Endpoint: "invoices", ID: order}, Owner: "shop", Input: []byte(`{"order":"` + order + `"}`),
		State: queue.State{
			Submitted: now, Queued: now, Expires: now.Add(queue.DefaultTTL), Priority: queue.DefaultPriority,
			Terms: queue.Terms{ExecTimeout: queue.DefaultExecTimeout, Retain: queue.RunRetention},
		},
	}
}
