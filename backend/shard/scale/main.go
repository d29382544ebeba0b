// Command scale prints the tables of docs/scale.md: what a number of jobs a second needs, by a model of
// servers and databases whose costs were measured, and what happens when one of them fails.
//
//	go run ./backend/shard/scale
package main

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"os"
	"slices"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/shard"
	"github.com/podyard/podyard/serverless/queue"
)

// Measured costs of a job, in microseconds of a core and in bytes: those of its own, and its part of
// three commits that it shares with others (add, claim, end).
const (
	databaseJob, databaseCommit = 80, 1520
	serverJob, serverCommit     = 75, 1090
	logJob, logCommit           = 3100, 1350
	requestCost                 = 47 // of HTTP
	requests                    = 4  // submit, take, report, and one status
)

// Assumptions.
const (
	commitTime     = 0.003  // seconds; jobs that come meanwhile share the next commit
	cores          = 16     // of a machine
	full           = 0.6    // of its cores are used when nothing fails
	logLimit       = 200e6  // bytes a second of a database's disk
	connLimit      = 400    // of a database
	connsPerServer = 19     // 16 in the pool of jobs, and listeners
	cellRate       = 25_000 // jobs a second of a cell
	endpoints      = 2000
	skew           = 0.6 // endpoint n has a part of n^-skew
	outage         = 60  // seconds until a standby has taken over
)

func main() {
	var out bytes.Buffer
	if err := tables(context.Background(), &out); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	_, _ = os.Stdout.Write(out.Bytes())
}

// A plan is what a rate needs.
type plan struct {
	rate               float64 // jobs a second
	servers, databases float64
	cells              float64
	batch              float64 // jobs in a commit
}

func (p *plan) databaseCost() float64 { return databaseJob + databaseCommit/p.batch }
func (p *plan) serverCost() float64 {
	return serverJob + serverCommit/p.batch + requests*requestCost
}
func (p *plan) logRate() float64 {
	return p.rate / p.databases * (logJob + logCommit/p.batch)
}

// connections are those of a database, which the servers of its cell use.
func (p *plan) connections() float64 { return p.servers / p.cells * connsPerServer }

// settle finds how many machines are needed. The more pairs of a server and a database there are, the
// fewer jobs share a commit, and the more a job costs.
func settle(rate, cells float64) plan {
	p := plan{rate: rate, cells: cells, servers: 2 * cells, databases: cells, batch: 1} // two, so that one may fail
	for range 100 {
		pairs := p.servers * p.databases / p.cells
		p.batch = max(1, rate/pairs*commitTime)
		perMachine := cores * full * 1e6
		p.servers = whole(p.servers, rate*p.serverCost()/perMachine, cells)
		p.databases = whole(p.databases, max(rate*p.databaseCost()/perMachine, p.logRate()*p.databases/logLimit), cells)
	}
	return p
}

// whole returns a number of machines that is the same in each cell. It never sinks, so that settle ends.
func whole(before, need, cells float64) float64 {
	return max(before, math.Ceil(need/cells)*cells)
}

// hottest returns the load of the fullest database, relative to the mean, with the real map of endpoints.
func hottest(ctx context.Context, databases int) (float64, error) {
	o := shard.Options{Control: memory.NewServers(), Server: "s"}
	for i := range databases {
		o.Shards = append(o.Shards, shard.Shard{Name: fmt.Sprint("db", i), Jobs: memory.NewJobs()})
	}
	q, err := shard.New(ctx, o)
	if err != nil {
		return 0, err
	}
	load, sum := map[string]float64{}, 0.0
	for n := range endpoints {
		endpoint := fmt.Sprint("endpoint", n)
		if _, err := q.Claim(ctx, 1, []queue.Slot{{Endpoint: endpoint, Worker: "w", N: 1, Until: 2}}, nil); err != nil {
			return 0, err
		}
		p, err := q.Placement(ctx, endpoint)
		if err != nil {
			return 0, err
		}
		load[p.Shard] += weight(n)
		sum += weight(n)
	}
	top := 0.0
	for _, l := range load {
		top = max(top, l)
	}
	return top / sum * float64(databases), nil
}

func weight(n int) float64 { return math.Pow(float64(n+1), -skew) }

// share returns the part of the busiest endpoint.
func share() float64 {
	sum := 0.0
	for n := range endpoints {
		sum += weight(n)
	}
	return weight(0) / sum
}

// breaks says what breaks first.
func (p *plan) breaks(hot float64) string {
	limits := []struct {
		use  float64
		what string
	}{
		{p.connections() / connLimit, "connections of a database"},
		{p.logRate() / logLimit, "log of a database"},
		{hot * p.rate / p.databases * p.databaseCost() / (cores * 1e6), "the fullest database"},
		{share() * p.rate * p.databaseCost() / (cores * 1e6), "the busiest endpoint"},
	}
	first := limits[0]
	for _, l := range limits {
		if l.use > first.use {
			first = l
		}
	}
	return fmt.Sprintf("%s, %.0f %% used", first.what, 100*first.use)
}

func tables(ctx context.Context, out *bytes.Buffer) error {
	fmt.Fprintln(out, "| Jobs a second | Cells | Servers | Databases | Jobs in a commit | Core time of a job, database and server | Connections of a database | Log of a database | Fullest database | Nearest to its limit | Core hours for a million jobs |")
	fmt.Fprintln(out, "|---|---|---|---|---|---|---|---|---|---|---|")
	for _, rate := range []float64{10_000, 100_000, 1_000_000} {
		for _, cells := range slices.Compact([]float64{1, math.Ceil(rate / cellRate)}) {
			p := settle(rate, cells)
			hot, err := hottest(ctx, int(p.databases))
			if err != nil {
				return err
			}
			fmt.Fprintf(out, "| %.0f | %.0f | %.0f | %.0f | %.1f | %.0f and %.0f µs | %.0f | %.0f MB/s | %.1f of the mean | %s | %.2f |\n",
				rate, cells, p.servers, p.databases, p.batch, p.databaseCost(), p.serverCost(), p.connections(), p.logRate()/1e6, hot,
				p.breaks(hot), (p.servers+p.databases)*cores/rate*1e6/3600)
		}
	}
	fmt.Fprintln(out)
	p := settle(1_000_000, math.Ceil(1_000_000/cellRate))
	fail(out, &p)
	return nil
}

// fail plays the failures, second by second.
func fail(out *bytes.Buffer, p *plan) {
	fmt.Fprintln(out, "| Failure, at a million jobs a second | Who notices | Jobs that wait at most | Until all is as before |")
	fmt.Fprintln(out, "|---|---|---|---|")
	perDatabase := p.rate / p.databases
	most, seconds := play(perDatabase, 0, cores*1e6/p.databaseCost(), outage)
	fmt.Fprintf(out, "| a database, for %d s | its endpoints: 1 of %.0f | %.0f | %d s |\n", outage, p.databases, most, seconds)
	inCell := p.servers / p.cells
	capacity := (inCell - 1) / inCell * p.servers / p.cells * cores * 1e6 / p.serverCost()
	most, seconds = play(p.rate/p.cells, min(p.rate/p.cells, capacity), inCell*cores*1e6/p.serverCost(), outage)
	fmt.Fprintf(out, "| a server, for %d s | its requests, which clients repeat; jobs of its own workers wait for their lease, 30 s | %.0f | %d s |\n", outage, most, seconds)
	fmt.Fprintf(out, "| a control store, for %d s | new jobs of its cell after 14 s: 1 of %.0f | %.0f at the clients | %d s |\n", outage, p.cells, p.rate/p.cells*(outage-14), outage)
}

// play returns the most jobs that wait, and when none does any more, if for some seconds only during jobs a
// second can be done, and then after.
func play(rate, during, after float64, length int) (most float64, seconds int) {
	waiting := 0.0
	for t := range 24 * 3600 {
		can := after
		if t < length {
			can = during
		}
		if waiting = max(0, waiting+rate-can); waiting == 0 && t >= length {
			return most, t + 1
		}
		most = max(most, waiting)
	}
	return most, 24 * 3600
}
