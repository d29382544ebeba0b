package postgres_test

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
)

// scanned are plans that read a whole table of jobs or of what was used.
var (
	indexScan = regexp.MustCompile(`Index (Only )?Scan (Backward )?using \S+ on (jobs|job_\w+|uses)`)
	jobsScan  = regexp.MustCompile(`using (jobs_pkey|jobs_seq) on jobs`)
	scanned   = regexp.MustCompile(`(Seq Scan|Bitmap Heap Scan) on (jobs|job_\w+|uses)`)
)

// whole returns the line of a plan that reads an index of jobs without a condition.
func whole(plan string) string {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		if indexScan.MatchString(line) && (i+1 == len(lines) || !strings.Contains(lines[i+1], "Index Cond")) {
			return line
		}
	}
	return ""
}

// loose returns the line of a plan that reads jobs with a condition for one of the two columns of an
// index. To join so is cheap where an endpoint has few jobs, and the plan stays when it has many.
func loose(plan string) string {
	lines := strings.Split(plan, "\n")
	for i, line := range lines {
		if jobsScan.MatchString(line) && (i+1 == len(lines) || !strings.Contains(lines[i+1], " AND ")) {
			return line
		}
	}
	return ""
}

// A plan is made once for a connection, so it must be good for tables of any size, whatever the
// database knows of them.
func TestEachStatementHasItsIndexForTablesOfAnySize(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	sizes := []int{0, 1, 30, 2_000}
	if suite.Long() {
		sizes = []int{0, 1, 30, 100_000}
	}
	if longest() {
		sizes = append(sizes, 1_000_000)
	}
	have := 0
	defer func() { // few rows are left, and the dead ones stay
		keepDead(t, url)
		for _, table := range []string{"job_ready", "job_running", "job_lines", "job_owners", "job_news", "job_due", "jobs", "job_bodies", "job_outputs", "uses"} {
			execute(t, url, `DELETE FROM podyard.`+table+` WHERE ctid > '(0,2)'`)
		}
		execute(t, url, `VACUUM ANALYZE`)
		checkPlans(t, url, "2 rows and many dead ones")
	}()
	for _, size := range sizes {
		fillJobs(t, url, have, size)
		have = size
		checkPlans(t, url, fmt.Sprint(size, " rows before ANALYZE"))
		execute(t, url, `ANALYZE`)
		checkPlans(t, url, fmt.Sprint(size, " rows after ANALYZE"))
	}
}

// keepDead opens a transaction for the time of the test, so that the database keeps dead rows.
func keepDead(t *testing.T, url string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close(context.WithoutCancel(t.Context())) })
	_, err = conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1`)
	must(t, err)
}

func fillJobs(t *testing.T, url string, from, to int) {
	t.Helper()
	for _, sql := range []string{
		`INSERT INTO podyard.jobs (num, seq, armed, gone, status, ep, id, owner, key, state)
		SELECT n, n, n, n, n % 3, 'e', n::text::bytea, 'o', '', '' FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_ready (ep, owner, prio, key, seq, queued, expires, low, lost)
		SELECT 'e', 'o', 5, '', n, n, n, false, '' FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_lines (ep, owner, key, prio, v, head, served, waiting)
		SELECT 'e', ('o' || n % 10)::bytea, n::text::bytea, n % 11 - 1, n, n % 3, n, n % 3 > 0 FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_owners (ep, owner, v, served, turn, waiting, heads, turns)
		SELECT 'e', n::text::bytea, n, n, n, n % 3 > 0, array_fill(n, ARRAY[10]), array_fill(n, ARRAY[10]) FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_bodies (num, input) SELECT n, 'x' FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_outputs (num, output) SELECT n, 'x' FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_running (ep, owner, key, num, seq, id, node) SELECT 'e', 'o', '', n, n, '', 1 FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_due (at, ep, seqs) SELECT n, 'e', ARRAY[n] FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_holdings (owner, slot, jobs, queued, bytes, deliveries, dead)
		SELECT ('o' || n / 100)::bytea, 97 - n % 100, 1, 1, 1, 0, 0 FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.uses (kind, id, part, from_time, to_time, owner, is_open, data)
		SELECT 'pod', n::text::bytea, '', n, n + 1, 'o', n % 10 = 0, 'x' FROM generate_series($1::int8 + 1, $2) n`,
		`INSERT INTO podyard.job_endpoints (ep, owner, prio, key) SELECT ('e' || n)::bytea, 'o', 5, '' FROM generate_series($1::int8 + 1, $2) n WHERE n < 1000`,
	} {
		execute(t, url, sql, from, to)
	}
}

func checkPlans(t *testing.T, url, when string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(t.Context())) }()
	if _, err := conn.Exec(t.Context(), postgres.PlanSettings); err != nil {
		t.Fatal(err)
	}
	n := 0
	for name, p := range postgres.Plans() {
		n++
		plan := explain(t, conn, fmt.Sprint("p", n), &p)
		for _, index := range p.Indexes {
			if !strings.Contains(plan, "using "+index+" ") {
				t.Errorf("%s, %s: the plan does not use %s:\n%s", name, when, index, plan)
			}
		}
		if all := whole(plan); all != "" {
			t.Errorf("%s, %s: the plan reads all of an index: %s\n%s", name, when, all, plan)
		}
		if some := loose(plan); some != "" {
			t.Errorf("%s, %s: the plan reads all jobs of an endpoint, or more: %s\n%s", name, when, some, plan)
		}
		if scanned.MatchString(plan) || !p.Sorts && strings.Contains(plan, "Sort Key") {
			t.Errorf("%s, %s: the plan reads a whole table, or sorts:\n%s", name, when, plan)
		}
	}
}

// explain returns the plan that does not depend on the arguments.
func explain(t *testing.T, conn *pgx.Conn, name string, p *postgres.Plan) string {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "PREPARE "+name+" AS "+p.SQL, pgx.QueryExecModeSimpleProtocol); err != nil {
		t.Fatalf("%v of %s", err, p.SQL)
	}
	call := name
	if p.Args > 0 {
		call += "(" + strings.TrimSuffix(strings.Repeat("NULL, ", p.Args), ", ") + ")"
	}
	rows, err := conn.Query(t.Context(), "EXPLAIN EXECUTE "+call, pgx.QueryExecModeSimpleProtocol)
	if err != nil {
		t.Fatal(err)
	}
	lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatalf("%v of %s", err, p.SQL)
	}
	return strings.Join(lines, "\n")
}
