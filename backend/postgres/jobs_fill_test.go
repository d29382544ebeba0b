package postgres_test

import (
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/serverless/queue"
)

func TestAClaimOfManyJobsLeavesTheirRowsOnTheirPages(t *testing.T) {
	const many = 600
	url := postgresql.Database(t)
	q := openURL(t, url).Jobs()
	jobs := make([]queue.Job, many)
	for i := range jobs {
		jobs[i] = newJob(fmt.Sprintf("a-job-with-a-name-%06d", i))
	}
	must(t, q.Enqueue(t.Context(), jobs))
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	pages := func() (list []int) {
		rows, err := conn.Query(t.Context(), "SELECT ((ctid::text)::point)[0]::int FROM podyard.jobs ORDER BY num")
		must(t, err)
		list, err = pgx.CollectRows(rows, pgx.RowTo[int])
		must(t, err)
		return list
	}
	before := pages()
	got, err := q.Claim(t.Context(), instant, []queue.Slot{{Endpoint: "e", Worker: "w", N: many, Until: instant + 30_000}}, nil)
	must(t, err)
	moved := 0
	for i, page := range pages() {
		if page != before[i] {
			moved++
		}
	}
	if len(got) < many/2 || moved > many/5 {
		t.Errorf("%d jobs are claimed, and %d rows moved to other pages, want at least half and at most a fifth", len(got), moved)
	}
}

// A larger row would be compressed, and perhaps be in another table.
func TestARowOfDueJobsHasFewOfThem(t *testing.T) {
	for _, many := range []int{500, 1200} {
		t.Run(fmt.Sprint(many), func(t *testing.T) { checkDueRows(t, many) })
	}
}

func checkDueRows(t *testing.T, many int) {
	t.Helper()
	url := postgresql.Database(t)
	jobs := make([]queue.Job, many)
	for i := range jobs {
		jobs[i] = newJob(fmt.Sprint(i))
	}
	must(t, openURL(t, url).Jobs().Enqueue(t.Context(), jobs))
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	var most, sum int
	must(t, conn.QueryRow(t.Context(), "SELECT max(cardinality(seqs)), sum(cardinality(seqs)) FROM podyard.job_due").Scan(&most, &sum))
	if most > 224 || sum != many {
		t.Errorf("a row has up to %d of %d jobs and all have %d, want at most 224 and all", most, many, sum)
	}
}
