// Command bench measures the queue of backend/postgres beside River in one database, in turn, and
// prints the ratios.
//
//	go run . -database 'postgres://postgres@127.0.0.1/bench' -time 3s -rounds 5
//
// A cycle is to submit a job, to claim one and to end it, with 512 bytes of input and of output, each
// awaited. River's callers wait for the insert only, and River stores no output. The CPU ratio is that of
// the processor time of one, of the database and this program together, so the database must be on this
// machine. On a busy machine it says more than the ratio: a system shares its processors among
// processes, and the one of the two with more connections then gets more of them. Both leave their tables in
// the database. The figures of two runs compare only as ratios.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/podyard/podyard/ratelimit/budget"
)

// Settings of a run.
type settings struct {
	database string
	time     time.Duration // of each measurement
	rounds   int
	backlog  int
	only     string        // a part of the names of figures
	oldFor   time.Duration // how long an old transaction is open; 0: figures are measured
	control  bool          // there is none, and all else is the same
	deepBy   int           // how many jobs are queued; 0: figures are measured
}

func main() {
	var s settings
	flag.StringVar(&s.database, "database", os.Getenv("PODYARD_POSTGRES_URL"), "URL of an empty database")
	flag.DurationVar(&s.time, "time", 3*time.Second, "of each measurement")
	flag.IntVar(&s.rounds, "rounds", 3, "measurements of each figure")
	flag.IntVar(&s.backlog, "backlog", 100_000, "jobs of the backlog")
	flag.StringVar(&s.only, "only", "", "figures whose names contain this")
	flag.DurationVar(&s.oldFor, "old", 0, "measure cycles of ours for this long beside an old transaction, and nothing else")
	flag.BoolVar(&s.control, "control", false, "with -old: measure the same without the transaction")
	flag.IntVar(&s.deepBy, "deep", 0, "measure claims of ours with this many jobs queued, and nothing else")
	flag.Parse()
	if err := run(context.Background(), os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

const perSecond = "1/s"

// A figure is measured for both in turn.
type figure struct {
	name, unit   string
	floor        string // of the ratio
	ours, theirs func(ctx context.Context) (float64, error)
}

// limits are the budgets of a server. A long measurement has one user with more jobs than they allow.
func (s *settings) limits() budget.Limits {
	l := budget.Default()
	if s.oldFor > 0 || s.deepBy > 0 {
		l.Jobs, l.QueuedJobs, l.JobBytes = 100*l.Jobs, 100*l.QueuedJobs, 100*l.JobBytes
	}
	return l
}

func run(ctx context.Context, out io.Writer, s settings) error {
	o, err := openOurs(ctx, s.database, s.limits())
	if err != nil {
		return err
	}
	defer o.close()
	switch {
	case s.oldFor > 0:
		return s.old(ctx, out, o)
	case s.deepBy > 0:
		return s.deep(ctx, out, o)
	}
	t, err := openTheirs(ctx, s.database)
	if err != nil {
		return err
	}
	defer t.close()
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "figure\tunit\tours\tthe other\tratio\tlowest and highest\tfloor\tCPU ratio")
	for _, f := range figures(&s, o, t) {
		if !strings.Contains(f.name, s.only) {
			continue
		}
		if err := f.print(ctx, w, &s); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
		_ = w.Flush()
	}
	return s.parts(ctx, out, o)
}

// parts prints what a cycle of ours costs, for plans.
func (s *settings) parts(ctx context.Context, out io.Writer, o *ours) error {
	conn, err := pgx.Connect(ctx, s.database)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	read := func() (self, all time.Duration, wal int64, err error) {
		if self, err = ownCPU(); err != nil {
			return
		}
		if all, err = cpu(ctx, s.database); err != nil {
			return
		}
		err = conn.QueryRow(ctx, "SELECT pg_current_wal_lsn() - '0/0'::pg_lsn").Scan(&wal)
		return
	}
	for _, callers := range []int{256, 32, 1} {
		self, all, wal, err := read()
		if err != nil {
			return err
		}
		began := time.Now()
		rate, err := o.cycles(ctx, callers, s.time)
		if err != nil {
			return err
		}
		n := rate * time.Since(began).Seconds()
		self2, all2, wal2, err := read()
		if err != nil {
			return err
		}
		program, both := float64((self2-self).Microseconds())/n, float64((all2-all).Microseconds())/n
		_, _ = fmt.Fprintf(out, "a cycle of ours, callers: %d: %.0f a second, %.0f us in this program, %.0f us in the database, %.0f bytes of its log\n", callers, rate, program, both-program, float64(wal2-wal)/n)
	}
	return nil
}

func (f *figure) print(ctx context.Context, w io.Writer, s *settings) error {
	var ours, theirs, ratios, costs []float64
	for range s.rounds {
		a, costA, err := s.costly(ctx, f.ours)
		if err != nil {
			return err
		}
		b, costB, err := s.costly(ctx, f.theirs)
		if err != nil {
			return err
		}
		ours, theirs, ratios, costs = append(ours, a), append(theirs, b), append(ratios, a/b), append(costs, costA/costB)
	}
	cost := "-"
	if f.unit == perSecond {
		cost = fmt.Sprintf("%.2f", median(costs))
	}
	_, err := fmt.Fprintf(w, "%s\t%s\t%.4g\t%.4g\t%.2f\t%.2f to %.2f\t%s\t%s\n", f.name, f.unit, median(ours), median(theirs), median(ratios), slices.Min(ratios), slices.Max(ratios), f.floor, cost)
	return err
}

func median(list []float64) float64 {
	list = slices.Sorted(slices.Values(list))
	return list[len(list)/2]
}

// A measure returns how many of something are made in a second.
type measure func(ctx context.Context, callers int, d time.Duration) (float64, error)

func figures(s *settings, o *ours, t *theirs) (list []figure) {
	with := func(m measure, callers int) func(ctx context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) { return m(ctx, callers, s.time) }
	}
	for callers, floor := range map[int]string{256: "3.9", 32: "2.0", 1: "0.6"} {
		list = append(list, figure{fmt.Sprintf("cycle, callers: %d", callers), perSecond, floor, with(o.cycles, callers), with(t.cycles, callers)})
	}
	for callers, floor := range map[int]string{256: "9", 32: "4.7", 4: "", 1: "1.5"} {
		list = append(list, figure{fmt.Sprintf("insert, callers: %d", callers), perSecond, floor, with(o.inserts, callers), with(t.inserts, callers)})
	}
	slices.SortFunc(list, func(a, b figure) int { return strings.Compare(a.name, b.name) })
	return append(
		list,
		figure{
			"bulk of 1,000", perSecond, "1.1",
			func(ctx context.Context) (float64, error) { return o.bulks(ctx, s.time) },
			func(ctx context.Context) (float64, error) { return t.bulks(ctx, s.time) },
		},
		figure{
			"backlog", "jobs/s", "1.5",
			func(ctx context.Context) (float64, error) { return o.backlog(ctx, s.backlog) },
			func(ctx context.Context) (float64, error) { return t.backlog(ctx, s.backlog) },
		},
		starts("submit to start on the other server", 1, true, 20, o, t),
		starts("16 start on the other server", 16, true, 5, o, t),
		starts("16 start on the other server, no NOTIFY", 16, false, 3, o, t),
		figure{"two servers beside one of ours, callers: 256", perSecond, "", with(o.twoServers, 256), with(o.cycles, 256)},
		figure{"old transaction, first part, callers: 64", perSecond, "", s.pinned(with(o.cyclesOf(o.fresh()), 64), 0), s.pinned(with(t.cycles, 64), 0)},
		figure{"old transaction, after 5 parts, callers: 64", perSecond, "", s.pinned(with(o.cyclesOf(o.fresh()), 64), 5), s.pinned(with(t.cycles, 64), 5)},
	)
}

type startsOf func(ctx context.Context, n, rounds int, notify bool) ([]time.Duration, error)

func starts(name string, n int, notify bool, rounds int, o *ours, t *theirs) figure {
	half := func(f startsOf) func(ctx context.Context) (float64, error) {
		return func(ctx context.Context) (float64, error) {
			list, err := f(ctx, n, rounds, notify)
			if err != nil {
				return 0, err
			}
			return float64(quantile(list, 0.5).Microseconds()) / 1000, nil
		}
	}
	return figure{name, "ms, p50", "", half(o.starts), half(t.starts)}
}

// costly returns how many of something f made in a second, and the processor time of one.
func (s *settings) costly(ctx context.Context, f func(ctx context.Context) (float64, error)) (n, cost float64, err error) {
	before, err := cpu(ctx, s.database)
	if err != nil {
		return 0, 0, err
	}
	began := time.Now()
	n, err = f(ctx)
	took := time.Since(began)
	if err != nil {
		return 0, 0, err
	}
	after, err := cpu(ctx, s.database)
	return n, float64(after-before) / (n * took.Seconds()), err
}

// pinned measures f after some parts of the same, while an idle transaction keeps dead rows.
func (s *settings) pinned(f func(ctx context.Context) (float64, error), parts int) func(ctx context.Context) (float64, error) {
	return func(ctx context.Context) (float64, error) {
		conn, err := pgx.Connect(ctx, s.database)
		if err != nil {
			return 0, err
		}
		defer func() { _ = conn.Close(ctx) }()
		if _, err := conn.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"); err != nil {
			return 0, err
		}
		for range parts {
			if _, err := f(ctx); err != nil {
				return 0, err
			}
		}
		return f(ctx)
	}
}
