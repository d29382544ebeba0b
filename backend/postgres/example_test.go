package postgres_test

import (
	"context"
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

// The order and its job are there together, or neither of them. Workers get the job within about
// a second of the commit.
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
	now := queue.At(time.Now())
	job := queue.Job{
		Ref: queue.Ref{Endpoint: "invoices", ID: "order-1"}, Owner: "shop", Input: []byte(`{"order":1}`),
		State: queue.State{
			Submitted: now, Queued: now, Expires: now.Add(queue.DefaultTTL), ExecTimeout: queue.DefaultExecTimeout,
			Retain: queue.RunRetention, Priority: queue.DefaultPriority,
		},
	}
	err = pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id) VALUES (1)`); err != nil {
			return err
		}
		return store.Jobs().EnqueueTx(ctx, tx, job)
	})
	fmt.Println(err)
}
