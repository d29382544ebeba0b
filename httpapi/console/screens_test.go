package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/httpapi/audit"
	"github.com/podyard/podyard/httpapi/console"
	"github.com/podyard/podyard/pods"
	"github.com/podyard/podyard/pods/accounts"
	"github.com/podyard/podyard/pods/billing"
	"github.com/podyard/podyard/pods/catalog"
	"github.com/podyard/podyard/pods/secrets"
	"github.com/podyard/podyard/pods/templates"
	"github.com/podyard/podyard/pods/volumes"
	"github.com/podyard/podyard/ratelimit/budget"
	"github.com/podyard/podyard/registries"
	"github.com/podyard/podyard/serverless"
)

var update = flag.Bool("update", false, "write the golden files anew")

// A screen is a page and what it reads.
type screen struct {
	name, page string
	reads      []string
}

// screens are all pages with what their modules read. {job}, {failed}, {stream}, {waits}, {dead},
// {batch}, {schedule}, {pod} and {cluster} are ids.
var screens = []screen{
	{"overview", "", []string{"session", "data/overview"}},
	{"endpoint", "e/echo", []string{"api/v2/serverless/echo", "data/endpoint/echo", "data/history/echo", "data/waiting/echo", "api/v2/echo/requests?status=COMPLETED&limit=100", "api/v2/serverless/echo/releases"}},
	{"why", "e/idle/why", []string{"data/waiting/idle?owner=*", "api/v2/idle/requests?status=IN_QUEUE&limit=100&owner=*"}},
	{"jobs", "e/echo/jobs", []string{"data/jobs/echo?offset=0&limit=100", "data/jobs/echo?offset=0&limit=100&status=FAILED&owner=*", "data/jobs/echo?offset=0&limit=100&idPrefix=dbe", "api/v2/echo/requests?offset=0&limit=100"}},
	{"all-jobs", "jobs", []string{"data/jobs", "data/jobs?status=FAILED,TIMED_OUT"}},
	{"job", "e/echo/jobs/{job}", []string{"data/job/echo/{job}", "data/job/echo/{job}/input", "data/job/echo/{job}/output", "api/v2/echo/attempts/{job}", "api/v2/serverless/echo/deliveries/{job}"}},
	{"job-failed", "e/echo/jobs/{failed}", []string{"data/job/echo/{failed}", "api/v2/echo/attempts/{failed}"}},
	{"job-again", "e/echo/jobs/{again}", []string{"data/job/echo/{again}", "api/v2/echo/attempts/{again}"}},
	{"job-waits", "e/idle/jobs/{waits}", []string{"data/job/idle/{waits}"}},
	{"job-stream", "e/echo/jobs/{stream}", []string{"data/tail/echo/{stream}"}},
	{"job-gone", "e/echo/jobs/none", []string{"data/job/echo/none"}},
	{"dead", "e/echo/dead/{dead}", []string{"api/v2/echo/dead?owner=*", "api/v2/echo/dead/{dead}"}},
	{"schedules", "e/echo/schedules/{schedule}", []string{"api/v2/echo/schedules?owner=*", "api/v2/echo/schedules/{schedule}"}},
	{"batches", "e/echo/batches/{batch}", []string{"api/v2/echo/batch?owner=*", "api/v2/echo/batch/{batch}/requests?limit=50&offset=0"}},
	{"webhooks", "webhooks", []string{"data/webhooks", "data/webhooks?state=failed"}},
	{"endpoint-webhooks", "e/echo/webhooks", []string{"api/v2/serverless/echo/deliveries?limit=200&owner=*"}},
	{"workers", "e/echo/workers", []string{"data/workers/echo"}},
	{"scaling", "e/echo/scaling", []string{"api/v2/serverless/echo/decisions"}},
	{"queue", "e/echo/queue", []string{"api/v2/serverless/echo/queue"}},
	{"find", "find", []string{"data/find?q=notebook", "data/find?q=local", "data/find?q=none"}},
	{"pods", "pods", []string{"api/v2/pods?owner=*"}},
	{"pod", "pods/{pod}", []string{"api/v2/pods/{pod}", "api/v2/pods/{pod}/why"}},
	{"clusters", "clusters/{cluster}", []string{"api/v2/clusters?owner=*", "api/v2/clusters/{cluster}"}}, // pods that start at once have their addresses in any order
	{"billing", "billing", []string{"api/v2/billing?bucketSize=day"}},
	{"account", "account", []string{"session", "api/v2/account/limits?windows=true", "api/v2/account/keys?owner=*"}},
	{"hosts", "hosts", []string{"api/v2/admin/state?claims=true"}},
	{"users", "users/root", []string{"api/v2/admin/state", "api/v2/account/limits?windows=true&owner=*", "api/v2/account/limits?windows=true&owner=root", "api/v2/pods?owner=root", "api/v2/serverless?owner=root", "api/v2/account/keys?owner=root"}},
	{"volumes", "volumes", []string{"api/v2/network-volumes?owner=*"}},
	{"templates", "templates", []string{"api/v2/templates?owner=*"}},
	{"secrets", "secrets", []string{"api/v2/account/secrets?owner=*"}},
	{"registries", "registries", []string{"api/v2/registries?owner=*"}},
	{"audit", "audit", []string{"api/v2/admin/audit?limit=100", "api/v2/admin/audit?limit=100&since=2000-01-01T00%3A00%3A00.000Z&kind=refusal"}},
}

// What each page reads of a server in a fixed state, at a fixed time, is as in testdata/screens.
func TestWhatEachScreenReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, ids := furnished(t)
		for _, s := range screens {
			var got bytes.Buffer
			for _, read := range s.reads {
				path := "/console/" + fill(read, ids)
				a := w.request(http.MethodGet, path, "")
				fmt.Fprintf(&got, "GET %s\n%d %s\n", path, a.Code, a.Header().Get("Content-Type"))
				var b bytes.Buffer
				if strings.HasPrefix(a.Header().Get("Content-Type"), "application/") && json.Indent(&b, a.Body.Bytes(), "", "  ") == nil {
					got.Write(b.Bytes())
				} else {
					got.Write(a.Body.Bytes())
				}
				got.WriteString("\n\n")
			}
			compareScreen(t, s.name, got.Bytes())
		}
	})
}

func compareScreen(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", "screens", name+".txt")
	if *update {
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, got, 0o644)); err != nil {
			t.Fatal(err)
		}
		return
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("the screen %s does not read what is in %s, -update writes it anew (-want +got):\n%s", name, path, diff)
	}
}

func fill(text string, ids map[string]string) string {
	for name, id := range ids {
		text = strings.ReplaceAll(text, "{"+name+"}", id)
	}
	return text
}

// Every page that the modules have is among the screens.
func TestEveryPageIsAmongTheScreens(t *testing.T) {
	app, err := os.ReadFile("assets/app.mjs")
	if err != nil {
		t.Fatal(err)
	}
	endpoint, err := os.ReadFile("assets/endpoint.mjs")
	if err != nil {
		t.Fatal(err)
	}
	var pages []string
	for _, m := range regexp.MustCompile(`case '([a-z]+)':`).FindAllSubmatch(app, -1) {
		pages = append(pages, string(m[1]))
	}
	for _, m := range regexp.MustCompile(`\{key: '([a-z]+)', name:`).FindAllSubmatch(endpoint, -1) {
		pages = append(pages, "e/*/"+string(m[1]))
	}
	if len(pages) < 15 {
		t.Fatalf("the modules have the pages %q: more were expected", pages)
	}
	for _, page := range pages {
		found := false
		for _, s := range screens {
			parts := strings.Split(s.page, "/")
			if len(parts) > 2 && parts[0] == "e" {
				parts[1] = "*"
			}
			found = found || strings.HasPrefix(strings.Join(parts, "/")+"/", page+"/")
		}
		if !found {
			t.Errorf("the page %s is not among the screens", page)
		}
	}
}

// furnished returns a world that has something of everything, with the ids of records by their names.
// The console is signed in as an operator.
func furnished(t *testing.T) (w *world, ids map[string]string) {
	t.Helper()
	w = &world{t: t, headers: http.Header{"Sec-Fetch-Site": {"same-origin"}, "Podyard-Console": {"1"}}}
	auth, err := httpapi.NewKeys([]httpapi.Key{{Secret: operatorKey, User: "root", Scopes: []string{"*", "operator"}, Exempt: true}}, time.Now)
	check(t, err)
	cat, bills := catalog.Sample(), billing.New(memory.NewBilling(), nil)
	queue, eps, podStore, keyStore := memory.NewJobs(), memory.NewEndpoints(), memory.NewPods(), memory.NewAccounts()
	w.jobs = serverless.New(queue, eps, &serverless.Options{Schedules: memory.NewSchedules(), Batches: memory.NewBatches(), DecodeRun: httpapi.DecodeRun, Rand: rand.NewChaCha8([32]byte{1}), Sender: refusing{}})
	check(t, w.jobs.EnsureEndpoint(t.Context(), "echo"))
	check(t, w.jobs.EnsureEndpoint(t.Context(), "idle"))
	p, err := pods.New(podStore, cat, pods.SimulatedHosts(cat, memory.NewRuntime(&memory.RuntimeOptions{Seed: 1})), &pods.Options{Rand: rand.NewChaCha8([32]byte{2}), Meter: bills})
	check(t, err)
	account := accounts.New(keyStore, &accounts.Options{Rand: rand.NewChaCha8([32]byte{3})})
	w.api = httpapi.New(httpapi.Services{
		Volumes: volumes.New(memory.NewVolumes(), cat, &volumes.Options{Rand: rand.NewChaCha8([32]byte{4})}), Templates: templates.New(memory.NewTemplates(), &templates.Options{Rand: rand.NewChaCha8([32]byte{5})}),
		Registries: registries.New(memory.NewRegistries(), &registries.Options{Rand: rand.NewChaCha8([32]byte{6})}), Secrets: secrets.New(memory.NewSecrets(), nil),
		Jobs: w.jobs, Pods: p, Accounts: account, Billing: bills, Budgets: budget.NewLedger(budget.NewSet(budget.Users{}), podStore, keyStore, queue, eps),
	}, &httpapi.Options{Auth: auth, Audit: audit.NewMemory(100)})
	w.console, err = console.New(w.api, &console.Options{Auth: auth, Jobs: w.jobs, Secret: bytes.Repeat([]byte("s"), 32)})
	check(t, err)
	w.background(p.Run)
	w.background(w.jobs.Run)
	w.background(func(ctx context.Context) error {
		return w.jobs.Serve(ctx, "echo", serverless.WorkerFunc(screenWork), &serverless.ServeOptions{ID: "local-echo", Drain: time.Millisecond})
	})
	synctest.Wait()
	w.background(w.console.Run) // its first look finds the worker
	synctest.Wait()
	return w, w.furnish()
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// background runs something until the test ends.
func (w *world) background(run func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(w.t.Context()))
	done := make(chan error)
	go func() { done <- run(ctx) }()
	w.t.Cleanup(func() { cancel(); <-done })
}

const clusterBody = `{"name":"train","type":"TRAINING","image":"acme/train:2","compute":{"gpuTypeId":"NVIDIA GeForce RTX 4090","gpuCountPerPod":1,"podCount":2}}`

// refusing is a receiver of webhooks that is not there.
type refusing struct{}

func (refusing) Send(context.Context, *serverless.Delivery) (int, error) {
	return 0, errors.New("receiver.example does not answer")
}

// screenWork fails with the text of "fail", and sends the chunks of "chunks".
func screenWork(ctx context.Context, t *serverless.Task) ([]byte, error) {
	var in struct {
		Fail   string
		Chunks []json.RawMessage
	}
	_ = json.Unmarshal(t.Input, &in) // other inputs are echoed
	time.Sleep(250 * time.Millisecond)
	for _, c := range in.Chunks {
		if err := t.Emit(ctx, c); err != nil {
			return nil, err
		}
	}
	if in.Fail != "" {
		return nil, errors.New(in.Fail)
	}
	return t.Input, nil
}

// furnish makes the records, one after the other, and returns their ids.
func (w *world) furnish() map[string]string {
	w.t.Helper()
	w.signIn(operatorKey)
	ids := map[string]string{}
	add := func(name, method, path, body string) {
		var v struct{ ID string }
		b := w.call(method, path, body)
		check(w.t, json.Unmarshal(b, &v))
		ids[name] = v.ID
		time.Sleep(time.Second)
	}
	w.call("PATCH", "/v2/serverless/echo/queue", `{"deadLetter":86400000}`)
	add("job", "POST", "/v2/echo/run", `{"input":{"text":"a cat","big":9223372036854775809,"n":[1e400,0.10]},"webhook":"https://receiver.example/hook"}`)
	add("dead", "POST", "/v2/echo/run", `{"input":{"fail":"the model is not there"}}`)
	add("failed", "POST", "/v2/echo/run", `{"input":{"fail":"CUDA out of memory"},"queue":{"key":"gpu","priority":7}}`)
	add("stream", "POST", "/v2/echo/run", `{"input":{"chunks":["A cat",{"on":"a bicycle"},1e400]}}`)
	add("waits", "POST", "/v2/idle/run", `{"input":{"prompt":"a dog"}}`)
	add("schedule", "POST", "/v2/echo/schedules", `{"cron":"0 4 * * *","run":{"input":{"nightly":true}}}`)
	add("batch", "POST", "/v2/echo/batch", `{"name":"captions","finalize":true,"requests":[{"input":{"n":1}},{"input":{"fail":"no such picture"}}]}`)
	add("pod", "POST", "/v2/pods", `{"name":"notebook","image":"acme/jupyter:2","cpu":{"id":"cpu3c","vcpuCount":2},"ports":["8888/http"],"env":{"TOKEN":"a-value"}}`)
	add("key", "POST", "/v2/account/keys", `{"scopes":["pods:read"]}`)
	add("again", "POST", "/v2/echo/run", `{"input":{"fail":"no GPU"},"queue":{"retry":{"attempts":2,"delay":100}}}`)
	w.call("POST", "/v2/network-volumes", `{"name":"weights","size":50,"dataCenter":"US-KS-2"}`)
	w.call("POST", "/v2/templates", `{"name":"jupyter","image":"acme/jupyter:2"}`)
	w.call("POST", "/v2/registries", `{"name":"ghcr","username":"acme","password":"a-value"}`)
	var cluster struct{ ID string }
	check(w.t, json.Unmarshal(w.call("POST", "/v2/clusters", clusterBody), &cluster))
	ids["cluster"] = cluster.ID
	time.Sleep(time.Minute - time.Second) // not at the instant of a sample
	return ids
}

// call makes a request to the API as the operator.
func (w *world) call(method, path, body string) []byte {
	w.t.Helper()
	a := w.request(method, "/console/api"+path, body)
	if a.Code >= 300 {
		w.t.Fatalf("%s %s = %d %s", method, path, a.Code, a.Body)
	}
	return a.Body.Bytes()
}
