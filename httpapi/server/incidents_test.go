package server_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi/incidents"
	"github.com/podyard/podyard/httpapi/server"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/endpoints"
	"github.com/podyard/podyard/serverless/queue"
	"github.com/podyard/podyard/serverless/servers"
)

// scripts are images of workers that fail in their ways.
var scripts = []memory.Script{
	{Image: "crash", Stages: []memory.Stage{
		{Phase: pods.PhaseHealthy, Lines: []string{"ModuleNotFoundError: torch"}}, {After: 100 * time.Millisecond, Phase: pods.PhaseExited, ExitCode: 1},
	}},
	{Image: "none", Stages: []memory.Stage{{Phase: pods.PhaseFailed, Reason: "no such image"}}},
}

// A trouble is a server in which something goes wrong.
type trouble struct {
	*testing.T
	o      server.Options
	s      *server.Server
	offset atomic.Int64 // of the clock
	log    record
}

// shifted is a clock that somebody sets.
type shifted struct {
	clock.System
	by *atomic.Int64
}

func (c shifted) Now() time.Time { return time.Now().Add(time.Duration(c.by.Load())) }

// AfterFunc counts by a clock that nobody sets.
func (c shifted) AfterFunc(t time.Time, f func()) func() bool {
	return time.AfterFunc(t.Sub(c.Now()), f).Stop
}

// begin runs the server, which ends with the test.
func (x *trouble) begin() {
	x.Helper()
	s, err := server.New(x.Context(), &x.o)
	if err != nil {
		x.Fatal(err)
	}
	ctx, end := context.WithCancel(x.Context())
	ended := later(func() error { return s.Run(ctx) })
	x.Cleanup(func() {
		end()
		if err := <-ended; err != nil {
			x.Errorf("Run = %v, want nil", err)
		}
	})
	x.s = s
	synctest.Wait()
}

// add makes an endpoint of a user whose workers have an image.
func (x *trouble) add(id, owner, image string) {
	x.Helper()
	e := &endpoints.Endpoint{
		ID: id, Owner: owner, Name: "name of " + id, Created: time.Now(), Version: 1, Container: endpoints.Container{Image: image, Disk: 1},
		CPU: []endpoints.CPU{{ID: catalog.HostFlavor, VCPU: 2}}, Workers: endpoints.WorkerLimits{Min: 1, Max: 1, Idle: time.Minute},
		Scaling: endpoints.Scaling{Type: endpoints.QueueDelay, Delay: time.Second},
	}
	if image == "" {
		e.Workers = endpoints.WorkerLimits{}
	}
	if err := x.o.Stores.Endpoints.Create(x.Context(), e); err != nil {
		x.Fatal(err)
	}
	x.s.Services().Jobs.Resync()
}

// hang is a receiver that never answers.
type hang struct{}

func (hang) Send(ctx context.Context, _ *serverless.Delivery) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (x *trouble) submit(owner, endpoint string, n int, webhook string) {
	x.Helper()
	for range n {
		if _, err := x.s.Services().Jobs.Submit(x.Context(), owner, endpoint, serverless.Request{Input: []byte("{}"), Webhook: webhook}); err != nil {
			x.Fatal(err)
		}
	}
}

// neverWork does not come to an end with its job.
func neverWork(ctx context.Context, _ *serverless.Task) ([]byte, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func quickWork(context.Context, *serverless.Task) ([]byte, error) { return []byte("{}"), nil }

func TestEachPlantedCauseIsTheFirstIncidentWithinTenSeconds(t *testing.T) {
	for name, c := range map[string]struct {
		before, plant func(*trouble)
		want          incidents.Incident // its Detail is a part
	}{
		"the host is full": {
			plant: func(x *trouble) { x.add("a", "alice", "img"); time.Sleep(time.Second); x.add("b", "bob", "img") },
			want:  incidents.Incident{Cause: incidents.HostFull, Severity: incidents.Warning, Kind: "host", ID: "local", Who: []string{"bob"}, Detail: "1 workers of name of a"},
		},
		"a worker crashes again and again": {
			plant: func(x *trouble) { x.add("a", "alice", "crash") },
			want:  incidents.Incident{Cause: incidents.CrashLoop, Severity: incidents.Warning, Kind: "endpoint", ID: "a", Who: []string{"alice"}, Detail: "ModuleNotFoundError: torch"},
		},
		"an image does not exist": {
			plant: func(x *trouble) { x.add("a", "alice", "none") },
			want:  incidents.Incident{Cause: incidents.Image, Severity: incidents.Warning, Kind: "endpoint", ID: "a", Who: []string{"alice"}, Detail: "no such image"},
		},
		"the disk is nearly full": {
			before: func(x *trouble) { x.o.Stores.Warning = func() string { return "the disk of the store is nearly full" } },
			want:   incidents.Incident{Cause: incidents.Disk, Severity: incidents.Warning, Detail: "nearly full"},
		},
		"the database is gone": {
			before: func(x *trouble) {
				x.o.Stores.Servers, x.o.Stores.Presence = memory.NewServers(), memory.NewPresence()
				x.o.Stores.Ready = func() error { return problem.New(problem.Unavailable, "the database does not answer") }
			},
			want: incidents.Incident{Cause: incidents.Database, Severity: incidents.Critical, Detail: "the database does not answer"},
		},
		"a receiver hangs": {
			before: func(x *trouble) {
				x.o.Jobs.Sender = hang{}
				x.o.Workers = []server.Worker{{Endpoint: "shout", Worker: serverless.WorkerFunc(quickWork)}}
			},
			plant: func(x *trouble) { x.submit("alice", "shout", 1, "https://hooks.test/a") },
			want:  incidents.Incident{Cause: incidents.Receiver, Severity: incidents.Warning, Kind: "receiver", ID: "hooks.test", Who: []string{"alice"}, Detail: "does not answer"},
		},
		"the clock jumps": {
			plant: func(x *trouble) { x.offset.Store(int64(2 * time.Hour)) },
			want:  incidents.Incident{Cause: incidents.Clock, Severity: incidents.Warning, Detail: "forward by 2h0m0s"},
		},
		"the certificate ends in five days": {
			before: func(x *trouble) {
				end := time.Now().Add(5 * 24 * time.Hour)
				x.o.CertificateEnds = func() time.Time { return end }
			},
			want: incidents.Incident{Cause: incidents.Certificate, Severity: incidents.Warning, Detail: "ends 2000-01-06"},
		},
		"one server of two is killed": {
			before: func(x *trouble) {
				x.o.Stores.Servers, x.o.Stores.Presence = memory.NewServers(), memory.NewPresence()
				if _, err := servers.Join(x.Context(), x.o.Stores.Servers, &servers.Options{Data: []byte("two")}); err != nil {
					x.Fatal(err)
				}
			},
			want: incidents.Incident{Cause: incidents.ServerLost, Severity: incidents.Critical, Kind: "server", ID: "two", Detail: "not been heard of"},
		},
		"a user has 100,000 jobs": {
			before: func(x *trouble) {
				x.o.Workers = []server.Worker{{Endpoint: "shout", Worker: serverless.WorkerFunc(neverWork)}}
			},
			plant: func(x *trouble) { x.submit("bob", "shout", 1, ""); x.submit("alice", "shout", 100_000, "") },
			want:  incidents.Incident{Cause: incidents.SlowQueue, Severity: incidents.Warning, Kind: "endpoint", ID: "shout", Who: []string{"alice"}, Detail: "Most are of alice"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				x := newTrouble(t)
				if c.before != nil {
					c.before(x)
				}
				x.begin()
				if c.plant != nil {
					c.plant(x)
				}
				x.wantFirst(&c.want, 10*time.Second)
			})
		})
	}
}

// A job that only a rate keeps waits for nobody. When the rate lets it go, it has waited for a worker since then.
func TestAJobThatARateKeptHasNotWaitedForAWorkerMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrouble(t)
		x.begin()
		e := &endpoints.Endpoint{
			ID: "slow", Owner: "alice", Created: time.Now(), Version: 1,
			Queue: &endpoints.QueueSettings{Rate: queue.Rate{Limit: 1, Per: time.Hour}},
		}
		if err := x.o.Stores.Endpoints.Create(t.Context(), e); err != nil {
			t.Fatal(err)
		}
		x.submit("alice", "slow", 2, "")
		list, err := x.s.Services().Jobs.Take(t.Context(), "slow", "w", 1)
		if err != nil || len(list) != 1 {
			t.Fatal(list, err)
		}
		if _, err := x.s.Services().Jobs.Cancel(t.Context(), "alice", list[0].Ref); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		for time.Since(began) < time.Hour+20*time.Second {
			if time.Sleep(time.Second); len(x.s.Incidents()) > 0 {
				t.Fatalf("after %v something is wrong: %+v", time.Since(began), x.s.Incidents())
			}
		}
		time.Sleep(30 * time.Second)
		if got := x.s.Incidents(); len(got) != 1 || got[0].Cause != incidents.NoWorker || got[0].Since.Before(began.Add(time.Hour-5*time.Second)) {
			t.Errorf("an hour and 50 s after the last start the incidents are %+v, want the lack of a worker since the hour", got)
		}
	})
}

// newTrouble has a host with room for one worker.
func newTrouble(t *testing.T) *trouble {
	x := &trouble{T: t}
	rt := memory.NewRuntime(&memory.RuntimeOptions{Scripts: scripts})
	cat := catalog.Local(2, 4)
	x.o = server.Options{
		Stores: memoryStores(t), Catalog: cat, Clock: shifted{by: &x.offset}, Logger: x.log.logger(),
		Hosts: []pods.Host{{ID: "local", DataCenter: cat.DataCenters[0].ID, Runtime: rt, VCPU: map[string]int{catalog.HostFlavor: 2}, Memory: 400}},
	}
	x.o.Pods.Overcommit = 1
	x.o.API.Auth = keys(t)
	x.o.Jobs.WorkerURL = func() string { return "http://podyard.test/v2" }
	x.o.Jobs.WorkerSecret = []byte("secret")
	return x
}

// wantFirst waits for the first incident.
func (x *trouble) wantFirst(want *incidents.Incident, limit time.Duration) {
	x.Helper()
	began := time.Now()
	for len(x.s.Incidents()) == 0 && time.Since(began) < limit {
		time.Sleep(100 * time.Millisecond)
	}
	list := x.s.Incidents()
	if len(list) == 0 {
		x.Fatalf("nothing is wrong after %v, want %s", limit, want.Cause)
	}
	got := list[0]
	if got.Cause != want.Cause || got.Severity != want.Severity || got.Kind != want.Kind || got.ID != want.ID || fmt.Sprint(got.Who) != fmt.Sprint(want.Who) || !strings.Contains(got.Detail, want.Detail) || got.Act == "" || got.Since.IsZero() {
		x.Errorf("the first incident is %+v,\nwant %+v", got, *want)
	}
	if len(list) > 1 {
		x.Errorf("one cause makes %d incidents: %+v", len(list), list)
	}
	if n := strings.Count(x.log.text(), "msg=incident "); n != 1 {
		x.Errorf("the log has %d lines of an incident, want one:\n%s", n, x.log.text())
	}
	w := ask(x.T, x.s.Handler(), "GET", "/v2/admin/state", "")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), `"incidents":[{"cause":"`+string(want.Cause)+`"`) {
		x.Errorf("GET /v2/admin/state = %d %s, want the incident", w.Code, w.Body)
	}
}

// Each of several servers lists all with their versions and states: a rolling upgrade can be watched from any.
func TestEachServerListsTheOthersWithVersionAndState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		x := newTrouble(t)
		x.o.Stores.Servers, x.o.Stores.Presence = memory.NewServers(), memory.NewPresence()
		x.o.Name, x.o.Version = "one", "2.0"
		x.begin()
		two := x.o
		two.Name, two.Version, two.Hosts = "two", "1.9", nil
		s, err := server.New(t.Context(), &two)
		if err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		ended := later(func() error { return s.Run(ctx) })
		if _, err := servers.Join(t.Context(), x.o.Stores.Servers, &servers.Options{Data: []byte("three")}); err != nil {
			t.Fatal(err) // of an earlier version, and it dies at once
		}
		wants := func(when string, of *server.Server, list string) {
			t.Helper()
			time.Sleep(10 * time.Second)
			if a := ask(t, of.Handler(), "GET", "/v2/admin/state", ""); !strings.Contains(a.Body.String(), `"servers":[`+list+`]`) {
				t.Errorf("%s the state is %s, want the servers %s", when, a.Body, list)
			}
		}
		three := `{"name":"three","version":"","state":"lost"}`
		wants("at first", x.s, `{"name":"one","version":"2.0","state":"active"},`+three+`,{"name":"two","version":"1.9","state":"active"}`)
		if a := ask(t, s.Handler(), "POST", "/v2/admin/drain", `{"server":"two"}`); a.Code != http.StatusOK {
			t.Fatalf("drain = %d %s", a.Code, a.Body)
		}
		wants("while two drains", x.s, `{"name":"one","version":"2.0","state":"active"},`+three+`,{"name":"two","version":"1.9","state":"drained"}`)
		wants("while two drains", s, `{"name":"two","version":"1.9","state":"drained"},{"name":"one","version":"2.0","state":"active"},`+three)
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		wants("without two", x.s, `{"name":"one","version":"2.0","state":"active"},`+three)
	})
}
