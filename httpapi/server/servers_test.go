package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/ratelimit"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/serverlesstest"
	"github.com/podyard/podyard/serverless/servers"
	"github.com/podyard/podyard/serverless/workers"
)

// Two servers over the same stores: the second has no worker.
func TestServersOverTheSameStoresWorkAsOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stores := memoryStores(t)
		stores.Servers, stores.Presence, stores.Pods = memory.NewServers(), memory.NewPresence(), nil
		stores.Jobs = serverlesstest.Lossy(stores.Jobs, 0)
		var handlers [2]http.Handler
		var services [2]httpapi.Services
		for i := range handlers {
			o := &server.Options{Stores: stores, Name: fmt.Sprint("server-", i), Keys: []httpapi.Key{{Secret: testKey, User: "ann", Scopes: []string{"*"}}}}
			o.API.Quotas = ratelimit.NewWindows(ratelimit.Quotas{Minute: 40})
			if i == 0 {
				o.Workers = shouter
			}
			s, err := server.New(t.Context(), o)
			if err != nil {
				t.Fatal(err)
			}
			ctx, end := context.WithCancel(t.Context())
			ended := later(func() error { return s.Run(ctx) })
			t.Cleanup(func() {
				end()
				if err := <-ended; err != nil {
					t.Errorf("Run = %v, want nil", err)
				}
			})
			handlers[i], services[i] = s.Handler(), s.Services()
		}
		if w := ask(t, handlers[1], "POST", "/v2/shout/runsync", `{"input":{"a":"b"}}`); !strings.Contains(w.Body.String(), `{"A":"B"}`) {
			t.Errorf("runsync at the server without a worker = %d %s", w.Code, w.Body)
		}
		if _, _, ok := services[1].Jobs.CheckWorkerKey(services[0].Jobs.WorkerKey("shout", "w")); !ok {
			t.Error("a worker key of one server is not valid at the other")
		}
		passed := 0
		for n := range 60 {
			if w := ask(t, handlers[n%2], "GET", "/v2/serverless", ""); w.Code == http.StatusOK {
				passed++
			}
		}
		if passed != 40 {
			t.Errorf("%d requests passed, of a quota of 40 that the servers share", passed)
		}
		left, err := stores.Servers.Leases(t.Context(), time.Now(), "server/")
		if err != nil || len(left) != 2 || string(left[0].Data) == string(left[1].Data) {
			t.Errorf("servers = %v, %v, want two with their names", left, err)
		}
	})
}

// A sharedQueue is one that other servers may use.
type sharedQueue struct{ serverless.JobQueue }

func (sharedQueue) Shared() bool { return true }

// A knownQueue also knows the stores of these servers.
type knownQueue struct {
	sharedQueue

	servers  servers.Store
	presence workers.Presence
}

func (q knownQueue) Servers() servers.Store     { return q.servers }
func (q knownQueue) Presence() workers.Presence { return q.presence }

func TestServersOverOneDatabaseJoinByThemselvesOrAreNotMade(t *testing.T) {
	stores := memoryStores(t)
	stores.Pods = nil
	jobs := stores.Jobs
	stores.Jobs = sharedQueue{jobs}
	if _, err := server.New(t.Context(), &server.Options{Stores: stores}); err == nil || !strings.Contains(err.Error(), "Stores.Servers") {
		t.Errorf("New = %v, want what is missing", err)
	}
	known := knownQueue{sharedQueue{jobs}, memory.NewServers(), memory.NewPresence()}
	stores.Jobs = known
	for i := range 2 {
		s, err := server.New(t.Context(), &server.Options{Stores: stores, Name: fmt.Sprint("server-", i)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	}
	if there, err := known.servers.Leases(t.Context(), time.Now(), "server/"); err != nil || len(there) != 2 {
		t.Errorf("servers = %v, %v, want two", there, err)
	}
}
