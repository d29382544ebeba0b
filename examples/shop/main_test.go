package main

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/podyard/podyard/examples/shop/shoptest"
	"github.com/podyard/podyard/internal/postgrestest"
)

var postgresql postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }

const workerKey = "the-key-of-workers"

// run has a copy of the shop serve until the end of the test.
func run(t *testing.T, database string) (url string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, database, shoptest.Secret, workerKey) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the shop ends with %v", err)
		}
	})
	return "http://" + l.Addr().String()
}

// ask calls the interface of jobs with a key.
func ask(t *testing.T, method, url, key string, answer any) (status int) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(`{"input":{}}`))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer != nil {
		if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
			t.Fatal(err)
		}
	}
	return resp.StatusCode
}

type job struct{ ID, WorkerID, Status string }

// A customer has one order with each reference. The second one is rolled back after its job was submitted.
func TestAnOrderThatIsRolledBackMakesNoJob(t *testing.T) {
	url := run(t, postgresql.Database(t))
	ann := shoptest.SignIn(t, url, "ann")
	for n, want := range []int{http.StatusOK, http.StatusConflict, http.StatusConflict} {
		if status, text := ann.Do("POST", "/orders", shoptest.Body("birthday", 2)); status != want {
			t.Errorf("order %d with the same reference is answered %d %s, want %d", n+1, status, text, want)
		}
	}
	ann.Invoice(ann.Order(1), 1) // by then those before have been taken, if there are any
	var jobs struct{ Requests []job }
	if status := ask(t, "GET", url+"/v2/invoice/requests", ann.Cookie.Value, &jobs); status != http.StatusOK || len(jobs.Requests) != 2 {
		t.Errorf("%d: ann has the jobs %+v, want those of the two orders that were committed", status, jobs.Requests)
	}
}

// buyers are ten customers with two orders each. That is more than a copy makes at once.
func buyers(t *testing.T, urls ...string) (orders map[*shoptest.Customer][]string) {
	t.Helper()
	orders = map[*shoptest.Customer][]string{}
	for i, name := range strings.Fields("ann bob cat dan eve fay gus hal ian joe") {
		c := shoptest.SignIn(t, urls[i%len(urls)], name)
		orders[c] = []string{c.Order(40), c.Order(40)}
	}
	return orders
}

func TestTwoCopiesShareTheJobs(t *testing.T) {
	database := postgresql.Database(t)
	urls := []string{run(t, database), run(t, database)}
	for c, ids := range buyers(t, urls...) {
		for _, id := range ids {
			c.Invoice(id, 40)
		}
	}
	for _, url := range urls {
		if n := shoptest.Nobody(t, url).Completed("invoice"); n == "" || n == "0" || n == "20" {
			t.Errorf("a copy has made %q of 20 invoices, want some", n)
		}
	}
	ann, elsewhere := shoptest.SignIn(t, urls[0], "ann"), shoptest.SignIn(t, urls[1], "ann")
	long := []string{ann.Order(1000), ann.Order(1000)}
	for _, id := range long {
		ann.Await(id, func(v shoptest.View) bool { return v.Output[1] > 0 })
	}
	third, bob := elsewhere.Order(2), shoptest.SignIn(t, urls[1], "bob")
	bob.Invoice(bob.Order(2), 2)
	if v := ann.Show(third); v.Status != "IN_QUEUE" {
		t.Errorf("the third order of ann, at the other copy, is %s, want the limit to count at both", v.Status)
	}
	for _, id := range long {
		if v := elsewhere.Cancel(id); v.Status != "CANCELLED" {
			t.Errorf("cancelled at the other copy, the order is %s", v.Status)
		}
	}
	ann.Invoice(third, 2)
}

func TestTheConsoleIsForThoseWhoHaveSignedIn(t *testing.T) {
	url := run(t, postgresql.Database(t))
	ann := shoptest.SignIn(t, url, "ann")
	if status, text := ann.Do("GET", "/console/", ""); status != http.StatusOK || !strings.Contains(text, "<html") {
		t.Errorf("the console of ann is %d %.100s", status, text)
	}
	if status, text := ann.Do("GET", "/console/session", ""); status != http.StatusOK || !strings.Contains(text, `"user":"ann"`) {
		t.Errorf("the console knows ann as %d %s", status, text)
	}
	forged := *ann.Cookie
	forged.Value = strings.Replace(forged.Value, "ann", "bob", 1)
	other := shoptest.Nobody(t, url)
	other.Cookie = &forged
	for name, c := range map[string]*shoptest.Customer{"nobody": shoptest.Nobody(t, url), "a forged cookie": other} {
		if status, text := c.Do("GET", "/console/", ""); status != http.StatusUnauthorized {
			t.Errorf("the console of %s is %d %.100s, want 401", name, status, text)
		}
	}
}

// worker is the program of the directory worker.
func worker(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "worker")
	if runtime.GOOS == "windows" {
		program += ".exe"
	}
	if out, err := exec.Command("go", "build", "-o", program, "./worker").CombinedOutput(); err != nil {
		t.Fatalf("go build ./worker: %v\n%s", err, out)
	}
	return program
}

func TestAWorkerElsewhereMakesInvoices(t *testing.T) {
	url := run(t, postgresql.Database(t))
	cmd := exec.CommandContext(t.Context(), worker(t), "-shop", url+"/v2")
	cmd.Env = append(os.Environ(), "SHOP_WORKER_KEY="+workerKey)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Wait() })
	elsewhere := 0
	for elsewhere == 0 {
		for c, ids := range buyers(t, url) {
			for _, id := range ids {
				c.Invoice(id, 40)
				var j job
				if ask(t, "GET", url+"/v2/invoice/status/"+id, c.Cookie.Value, &j); !strings.HasPrefix(j.WorkerID, "local-") {
					elsewhere++
				}
			}
		}
	}
	if status := ask(t, "POST", url+"/v2/invoice/run", workerKey, nil); status != http.StatusForbidden {
		t.Errorf("the key of the worker submits a job: %d, want 403", status)
	}
}
