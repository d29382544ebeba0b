package postgres_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

func TestAKeyIsHeldForAClaimThatWaitedForTheEndpoint(t *testing.T) {
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	rules := &queue.Rules{PerKey: 1}
	a, b := newJob("a"), newJob("b")
	a.Key, b.Key = "k", "k"
	submit(t, q, a, b)
	j := claim(t, q, instant, "w", 1, rules)[0]
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), `SELECT FROM podyard.job_endpoints FOR UPDATE`)
	must(t, err)
	claimed := make(chan []queue.Job)
	go func() { claimed <- claim(t, q, instant, "v", 1, rules) }()
	eventually(t, func() error {
		var waiting bool
		err := tx.QueryRow(t.Context(), `SELECT count(*) > 0 FROM pg_locks WHERE NOT granted`).Scan(&waiting)
		if err == nil && !waiting {
			err = errors.New("the claim does not wait yet")
		}
		return err
	})
	res := make([]queue.Result, 1)
	must(t, q.Apply(t.Context(), instant, []queue.Op{{Ref: j.Ref, Kind: queue.OpFinish, Status: queue.Completed, Worker: j.Worker, Token: j.Token, Payload: []byte("1"), Hold: time.Hour}}, res))
	must(t, res[0].Err)
	must(t, tx.Rollback(t.Context()))
	if list := <-claimed; len(list) != 0 {
		t.Errorf("the claim has started %s, whose key is held for an hour", list[0].ID)
	}
}
