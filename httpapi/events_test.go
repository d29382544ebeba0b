package httpapi_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/fleet"
)

// follow reads the events of an endpoint for a time, while f runs.
func (w *testAPI) follow(d time.Duration, target string, headers []string, f func()) answer {
	w.t.Helper()
	got := make(chan answer, 1)
	go func() { got <- w.listen(d, target, headers...) }()
	synctest.Wait()
	f()
	return <-got
}

// kinds returns the job, type and status of events.
func kinds(a answer, names map[string]string) (list []string) {
	for _, e := range events(a) {
		_, data, _ := strings.Cut(e, "\ndata: ")
		_, rest, _ := strings.Cut(data, `"type":"`)
		kind, rest, _ := strings.Cut(rest, `"`)
		_, rest, _ = strings.Cut(rest, `"job":`)
		job, status, _ := strings.Cut(strings.TrimSuffix(rest, "}"), `,"status":`)
		if n := names[strings.Trim(job, `"`)]; n != "" {
			job = n
		}
		list = append(list, job+" "+kind+" "+strings.Trim(status, `"`))
	}
	return list
}

func TestEventsOfTheCallersJobs(t *testing.T) {
	bubble(t, func(w *testAPI) {
		names := map[string]string{}
		submit := func(name, path, key string) string {
			id := w.want(200, "POST", path, `{"input":{"secret":"payload"}}`, as(key)).field("id")
			names[id] = name
			return id
		}
		var first string
		all := w.follow(time.Second, "/v2/idle/events", []string{as(aliceFree)}, func() {
			first = submit("a", "/v2/idle/run", aliceFree)
			submit("b", "/v2/idle/run", aliceFree)
			submit("bobs", "/v2/idle/run", bobFree)
			w.want(200, "POST", "/v2/idle/cancel/"+first, "", as(aliceFree))
		})
		if got, want := strings.Join(kinds(all, names), ", "), "a queued IN_QUEUE, b queued IN_QUEUE, a cancelled CANCELLED"; got != want {
			t.Errorf("events are %s, want %s", got, want)
		}
		if strings.Contains(all.body, "payload") || all.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("the stream of type %s is\n%s", all.header.Get("Content-Type"), all.body)
		}
		list := events(all)
		last := []string{as(aliceFree), "Last-Event-ID: " + idOf(list[0])}
		for target, want := range map[string]string{
			"":                                "b queued IN_QUEUE, a cancelled CANCELLED",
			"?types=cancelled,failed":         "a cancelled CANCELLED",
			"?types=queued":                   "b queued IN_QUEUE",
			"?job=" + first:                   "a cancelled CANCELLED",
			"?job=" + first + "&types=queued": "",
			"?job=nothere":                    "",
		} {
			if got := strings.Join(kinds(w.listen(time.Second, "/v2/idle/events"+target, last...), names), ", "); got != want {
				t.Errorf("after the first event %s has %s, want %s", target, got, want)
			}
		}
		foreign := w.listen(time.Second, "/v2/idle/events", as(aliceFree), "Last-Event-ID: 7-7")
		if got, want := strings.Join(kinds(foreign, names), ", "), "null gap null, a queued IN_QUEUE, b queued IN_QUEUE, a cancelled CANCELLED"; got != want {
			t.Errorf("after an id of another server there are %s, want %s", got, want)
		}
	})
}

func TestEventsOfJobsThatRun(t *testing.T) {
	bubble(t, func(w *testAPI) {
		a := w.follow(time.Minute, "/v2/echo/events", []string{as(aliceFree)}, func() {
			w.want(200, "POST", "/v2/echo/runsync", `{"input":{}}`, as(aliceFree))
			failed := w.want(200, "POST", "/v2/echo/runsync", `{"input":{"do":"fail"}}`, as(aliceFree)).field("id")
			synctest.Wait()
			w.want(200, "POST", "/v2/echo/retry/"+failed, "", as(aliceFree))
		})
		var got []string
		for _, k := range kinds(a, nil) {
			// The end of a job that ends at once may be seen first. Then there is no event before it.
			if _, k, _ = strings.Cut(k, " "); k != "queued IN_QUEUE" {
				got = append(got, k)
			}
		}
		want := "completed COMPLETED, failed FAILED, failed FAILED"
		if got := strings.Join(got, ", "); got != want {
			t.Errorf("events are %s, want %s", got, want)
		}
	})
}

func TestQuietEventsSayThatTheyLiveAndEndWithTheirEndpoint(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		made := owned(w)
		id := made["endpoint"][strings.LastIndexByte(made["endpoint"], '/')+1:]
		began := time.Now()
		a := w.follow(time.Hour, "/v2/"+id+"/events", []string{as(alicesAll)}, func() {
			time.Sleep(40 * time.Second)
			w.want(204, "DELETE", made["endpoint"], "", as(alicesAll))
		})
		if n := strings.Count(a.body, ": still here\n\n"); n != 2 || time.Since(began) != 45*time.Second || !strings.Contains(a.body, `"type":"cancelled"`) {
			t.Errorf("after %v the stream is %q, want two comments, the end of the job, and the end after 45 s", time.Since(began), a.body)
		}
	})
}

func TestHeadOfEventsIsAnsweredAtOnce(t *testing.T) {
	bubble(t, func(w *testAPI) {
		a := w.want(200, "HEAD", "/v2/idle/events", "")
		if a.body != "" || a.header.Get("Content-Type") != "text/event-stream" {
			t.Errorf("HEAD of events = %q of type %q", a.body, a.header.Get("Content-Type"))
		}
	})
}

func TestWireOfEventsOfWorkers(t *testing.T) {
	var got strings.Builder
	withEndpoints(t, func(o *serverless.Options, _ *httpapi.Options) {
		o.Fleet = &idleFleet{takes: time.Millisecond, workers: map[serverless.WorkerID]fleet.Instance{}}
		o.WorkerURL = func() string { return "http://podyard.test/v2" }
	}, func(w *testAPI) {
		soon := strings.Replace(gpuEndpoint, `"env":{"M":"sdxl"}`, `"env":{"RUNPOD_INIT_TIMEOUT":"20"}`, 1)
		id := w.want(201, "POST", "/v2/serverless", strings.Replace(soon, `"min":1`, `"min":0`, 1), as(alicesAll)).field("id")
		w.transcript = &got
		at, alice := "/v2/"+id+"/events", []string{as(alicesAll)}
		w.follow(35*time.Second, at, alice, func() {
			ctx, cancel := context.WithCancel(w.t.Context())
			cancel() // it asks for a job, and does not wait
			if _, err := w.jobs.Take(ctx, id, "elsewhere", 1); err != nil {
				t.Error(err)
			}
			w.want(200, "PATCH", "/v2/serverless/"+id, `{"workers":{"min":1}}`, alice...)
		})
		again := append(alice, "Last-Event-ID: 1-1")
		w.listen(time.Second, at+"?types=worker_joined", again...)
		w.listen(time.Second, at+"?job=none", again...)
	})
	compareGolden(t, "events_workers", got.String())
}

func TestEventsOfWorkersAreForTheOwnerOfTheEndpoint(t *testing.T) {
	withEndpoints(t, nil, func(w *testAPI) {
		private := strings.Replace(owned(w)["endpoint"], "/serverless", "", 1)
		join := func(endpoint, key string) string {
			return w.follow(time.Minute, endpoint+"/events?types=worker_joined,worker_left", []string{as(key)}, func() {
				ctx, cancel := context.WithTimeout(w.t.Context(), time.Second)
				defer cancel()
				if _, err := w.jobs.Take(ctx, strings.TrimPrefix(endpoint, "/v2/"), "w", 1); err != nil {
					t.Error(err)
				}
			}).body
		}
		if got := join("/v2/echo", aliceFree); strings.Contains(got, "worker") {
			t.Errorf("a user of a shared endpoint gets %s", got)
		}
		for _, key := range []string{alicesAll, operatorFree} {
			if got := join(private, key); !strings.Contains(got, `"type":"worker_joined"`) || !strings.Contains(got, `"type":"worker_left"`) {
				t.Errorf("%s gets %s", key, got)
			}
		}
	})
}
