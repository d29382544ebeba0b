package postgres_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

// PostgreSQL takes notifications of less than 8,000 bytes. What is told of longer names must arrive, and must
// not fail what is told with it, nor the transaction of a caller.
func TestEventsOfLongNamesArrive(t *testing.T) {
	both := newTwoServers(t)
	from, to := both.stores[0].Jobs(), both.stores[1].Jobs()
	conn, err := pgx.Connect(t.Context(), both.url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	heard := make(chan string, 1000)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	go func() {
		defer close(over)
		_ = to.Watch(ctx, func(evs []queue.Event) {
			for _, e := range evs {
				if e.Kind == queue.EventGap {
					heard <- "gap"
				} else {
					heard <- e.Endpoint
				}
			}
		})
	}()
	defer func() { cancel(); <-over }()
	want := func(names ...string) {
		t.Helper()
		for {
			select {
			case got := <-heard:
				if slices.Contains(names, got) {
					return
				}
			case <-t.Context().Done():
				t.Fatal("nothing was heard")
			}
		}
	}
	want("gap") // it listens
	for _, n := range []int{4_000, 5_300, 5_960, 5_990, 6_020, 6_080, 9_000} {
		j := newJob("long")
		j.Endpoint = strings.Repeat("e", n)
		submit(t, from, j)
		want("gap", j.Endpoint)
		j.ID = "in a transaction"
		tx, err := conn.Begin(t.Context())
		must(t, err)
		if err := from.EnqueueTx(t.Context(), tx, j); err != nil {
			t.Fatalf("EnqueueTx for an endpoint whose name has %d bytes: %v", n, err)
		}
		must(t, tx.Commit(t.Context()))
		want("gap", j.Endpoint)
	}
}
