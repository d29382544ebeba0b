package postgres_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/backend/postgres"
	"github.com/podyard/podyard/internal/suite"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/podstest"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/servers/serverstest"
)

// pooled is the URL of a database through a pooler of transactions.
func pooled(t *testing.T, database string) string {
	t.Helper()
	return postgresql.Pooled(t, database) + "&pool_mode=transaction"
}

func TestJobsThroughAPooler(t *testing.T) {
	suite.SkipUnlessLong(t)
	runJobCases(t, longest(), func(t *testing.T) queue.JobQueue { return openURL(t, pooled(t, postgresql.Database(t))).Jobs() })
}

func TestServersThroughAPoolerAnswerAsTheModelDoes(t *testing.T) {
	suite.SkipUnlessLong(t)
	steps := 100
	if longest() {
		steps = 1000
	}
	for seed := range uint64(2) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			url := postgresql.Database(t)
			through := pooled(t, url)
			both := &twoServers{url: url, stores: [2]*postgres.Store{openURL(t, through), openURL(t, through)}}
			w := serverlesstest.Walk{Queue: both, Steps: steps, Draw: rand.New(rand.NewPCG(seed, 1)).IntN}
			must(t, w.Run(t.Context()))
		})
	}
}

func TestRecordsThroughAPooler(t *testing.T) {
	suite.SkipUnlessLong(t)
	url := postgresql.Database(t)
	through := pooled(t, url)
	a, b := openURL(t, through), openURL(t, through)
	t.Run("Pods", func(t *testing.T) {
		podstest.TestStore(t, func(t *testing.T) pods.PodStore {
			empty(t, url)
			return a.Pods()
		})
	})
	t.Run("Servers", func(t *testing.T) {
		serverstest.TestStore(t, func(t *testing.T) [2]servers.Store {
			empty(t, url)
			return [2]servers.Store{a.Servers(), b.Servers()}
		})
	})
	t.Run("PodsOfSeveralServers", func(t *testing.T) {
		empty(t, url)
		podstest.TestServers(t, podstest.Servers{
			Stores: [2]pods.PodStore{a.Pods(), b.Pods()}, Leases: a.Servers(), Runtimes: [2]pods.Runtime{quickRuntime(), quickRuntime()},
		})
	})
}

// Two servers whose notifications do not arrive find each other's jobs, because they look.
func TestServersThroughAPoolerFindJobsBecauseTheyLook(t *testing.T) {
	suite.SkipUnlessLong(t)
	url, eps := pooled(t, postgresql.Database(t)), memory.NewEndpoints()
	must(t, eps.Create(t.Context(), &serverless.Endpoint{ID: "e", Name: "e"}))
	here, there := service(t, openURL(t, url).Jobs(), eps), service(t, openURL(t, url).Jobs(), eps)
	const jobs = 20
	ctx, cancel := context.WithTimeout(t.Context(), suite.Within(20*time.Second))
	defer cancel()
	var workers sync.WaitGroup
	for w := range 4 {
		workers.Go(func() {
			err := there.Serve(ctx, "e", serverless.WorkerFunc(func(_ context.Context, task *serverless.Task) ([]byte, error) {
				return task.Input, nil
			}), &serverless.ServeOptions{ID: serverless.WorkerID(fmt.Sprint(serverless.LocalWorkerPrefix, w))})
			if err != nil && !errors.Is(err, ctx.Err()) {
				t.Error(err)
			}
		})
	}
	var clients sync.WaitGroup
	for n := range jobs {
		clients.Go(func() {
			input := fmt.Sprintf(`{"n":%d}`, n)
			j, err := here.SubmitAndWait(ctx, "alice", "e", serverless.Request{Input: []byte(input), Wait: suite.Within(15 * time.Second)})
			if err != nil || j.Status != serverless.Completed || string(j.Output) != input {
				t.Errorf("job %d: %v %q, %v", n, j.Status, j.Output, err)
			}
		})
	}
	clients.Wait()
	cancel()
	workers.Wait()
}

func TestOpenRefusesAPoolModeThatItDoesNotKnow(t *testing.T) {
	_, err := postgres.Open(t.Context(), "postgres://u@127.0.0.1:1/d?pool_mode=statement", nil)
	if !errors.Is(err, postgres.ErrURL) {
		t.Errorf("Open = %v, want ErrURL", err)
	}
}
