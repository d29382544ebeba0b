package httpapi_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"

	"github.com/podyard/podyard/backend/fault"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/postgrestest"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// serverRounds runs TestLinearizable's clients on two servers over one database. Each request goes
// to the other server than the one before. wrong makes the queue of a server wrong.
type serverRounds struct {
	postgresql *postgrestest.Server
	wrong      func(serverless.JobQueue) serverless.JobQueue
}

func (r *serverRounds) run(t *testing.T, seed uint64) []*jobHistory {
	t.Helper()
	url := r.postgresql.Database(t)
	a, eps := &clientRun{t: t}, memory.NewEndpoints()
	for n := range 2 {
		store, err := postgres.Open(t.Context(), url, &postgres.Options{MaxConns: 8})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		joined, err := servers.Join(t.Context(), store.Servers(), nil)
		if err != nil {
			t.Fatal(err)
		}
		run(t, func(ctx context.Context) error { return ignoreEnd(ctx, joined.Run(ctx)) })
		q := serverless.JobQueue(toTheEnd{store.Jobs()})
		if r.wrong != nil {
			q = r.wrong(q)
		}
		jobs := serverless.New(fault.Jobs(q, queueFaults(seed+uint64(n)<<32)), eps, &serverless.Options{
			Rand: rand.NewChaCha8([32]byte{byte(seed), byte(n)}), Server: joined, Presence: store.Presence(), WorkerSecret: []byte("secret of both servers"),
		})
		run(t, jobs.Run)
		a.handlers = append(a.handlers, linearHandler(t, jobs))
	}
	return runTeams(t, seed, a, eps)
}

// toTheEnd makes claims whose callers give up. Otherwise such a claim is made and undone, without an
// answer: which a client may see, and the model does not have.
type toTheEnd struct{ *postgres.Jobs }

func (q toTheEnd) Claim(ctx context.Context, now serverless.Instant, slots []queue.Slot, out []serverless.Job) ([]serverless.Job, error) {
	return q.Jobs.Claim(context.WithoutCancel(ctx), now, slots, out)
}

func ignoreEnd(ctx context.Context, err error) error {
	if errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}

// TestLinearizableServers is TestLinearizable for two servers over one database.
func TestLinearizableServers(t *testing.T) {
	suite.SkipUnlessLong(t)
	seed, err := strconv.ParseUint(os.Getenv("PODYARD_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	h := histories{seed: seed, want: 3_000}
	if long() {
		h.want = 100_000
	}
	r := &serverRounds{postgresql: &postgrestest.Server{}}
	t.Cleanup(r.postgresql.Stop)
	h.check(t, outside, r.run)
}

// The check must find what goes wrong only between servers.
func TestTheLinearCheckFindsMistakesBetweenServers(t *testing.T) {
	suite.SkipUnlessLong(t)
	for name, wrong := range map[string]func(serverless.JobQueue) serverless.JobQueue{
		"a server reads what it has read before": func(q serverless.JobQueue) serverless.JobQueue {
			return &stale{JobQueue: q, old: map[serverless.Ref]serverless.Job{}}
		},
		"a server acknowledges before the commit":        func(q serverless.JobQueue) serverless.JobQueue { return early{q} },
		"a server accepts reports for jobs of the other": func(q serverless.JobQueue) serverless.JobQueue { return unfenced{q} },
	} {
		t.Run(name, func(t *testing.T) {
			r := &serverRounds{postgresql: &postgrestest.Server{}, wrong: wrong}
			t.Cleanup(r.postgresql.Stop)
			found := false
			for seed := uint64(0); seed < 20 && !found; seed++ {
				outside(t, func(t *testing.T) {
					for _, c := range r.run(t, seed) {
						found = found || !c.check(t)
					}
				})
			}
			if !found {
				t.Error("20 rounds have not found it")
			}
		})
	}
}
