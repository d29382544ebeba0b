package main

import (
	"context"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/examples/shop/shoptest"
	"github.com/podyard/podyard/serverless"
)

// run has the shop serve until the function it returns is called.
func run(t *testing.T, data string) (url string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, data, shoptest.Secret) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the shop ends with %v", err)
		}
	}
}

func TestAnOrderGetsItsInvoice(t *testing.T) {
	url, end := run(t, filepath.Join(t.TempDir(), "data"))
	defer end()
	ann, bob := shoptest.SignIn(t, url, "ann"), shoptest.SignIn(t, url, "bob")
	order := ann.Order(3)
	ann.Invoice(order, 3)
	if v := ann.Show(order); v.Status != "COMPLETED" {
		t.Errorf("the order is %+v, want it COMPLETED", v)
	}
	if status, text := bob.Do("GET", "/orders/"+order, ""); status != http.StatusNotFound {
		t.Errorf("another customer gets the order: %d %s, want 404", status, text)
	}
	if status, text := shoptest.Nobody(t, url).Do("POST", "/orders", shoptest.Body("", 1)); status != http.StatusUnauthorized {
		t.Errorf("an order of nobody is %d %s, want 401", status, text)
	}
	if status, text := ann.Do("POST", "/orders", `{"items":[]}`); status != http.StatusBadRequest {
		t.Errorf("an order of nothing is %d %s, want 400", status, text)
	}
	if n := ann.Completed("invoice"); n != "1" {
		t.Errorf("the registry of the shop has %q completed invoices, want 1", n)
	}
}

func TestACustomerHasTwoInvoicesInProgressAtMost(t *testing.T) {
	url, end := run(t, filepath.Join(t.TempDir(), "data"))
	defer end()
	ann, bob := shoptest.SignIn(t, url, "ann"), shoptest.SignIn(t, url, "bob")
	orders := []string{ann.Order(1000), ann.Order(1000), ann.Order(1000)}
	for _, id := range orders[:2] {
		v := ann.Await(id, func(v shoptest.View) bool { return v.Output[0] > 0 })
		if v.Status != "IN_PROGRESS" || v.Output[1] != 1000 {
			t.Errorf("an order in progress is %+v, want its pages", v)
		}
	}
	bob.Invoice(bob.Order(2), 2) // the limit is one of each customer
	if v := ann.Show(orders[2]); v.Status != "IN_QUEUE" {
		t.Errorf("the third order is %s, want it to wait", v.Status)
	}
	if v := ann.Cancel(orders[0]); v.Status != "CANCELLED" {
		t.Errorf("the order that is cancelled is %s", v.Status)
	}
	if status, _ := ann.Do("GET", "/orders/"+orders[0]+"/invoice", ""); status != http.StatusConflict {
		t.Errorf("the invoice of an order that was cancelled is %d, want 409", status)
	}
	ann.Await(orders[2], func(v shoptest.View) bool { return v.Status == "IN_PROGRESS" })
	for _, id := range orders[1:] {
		ann.Cancel(id)
	}
}

// Those in progress are made before the end, the others after the next start.
func TestOrdersSurviveARestart(t *testing.T) {
	data := filepath.Join(t.TempDir(), "data")
	url, end := run(t, data)
	ann := shoptest.SignIn(t, url, "ann")
	orders := []string{ann.Order(20), ann.Order(20), ann.Order(3)}
	ann.Await(orders[1], func(v shoptest.View) bool { return v.Status == "IN_PROGRESS" })
	end()
	url, end = run(t, data)
	defer end()
	ann = shoptest.SignIn(t, url, "ann")
	for i, pages := range []int{20, 20, 3} {
		ann.Invoice(orders[i], pages)
	}
}

// inMemory runs f in a bubble with a shop that keeps its jobs in memory and needs no network.
func inMemory(t *testing.T, f func(t *testing.T, jobs *serverless.Service, pages http.Handler)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		srv, pages := open(ctx, "", shoptest.Secret)
		done := make(chan error, 1)
		go func() { done <- srv.Run(ctx) }()
		f(t, srv.Services().Jobs, pages)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

func TestAnInvoiceThatFailsIsTriedFiveTimes(t *testing.T) {
	inMemory(t, func(t *testing.T, jobs *serverless.Service, _ http.Handler) {
		began := time.Now()
		j, err := jobs.Submit(t.Context(), "ann", "invoice", serverless.Request{Input: []byte(`{"items":[]}`)}) // no page lets it pass
		if err != nil {
			t.Fatal(err)
		}
		j, err = jobs.Wait(t.Context(), "ann", j.Ref, serverless.MaxWait)
		if err != nil || j.Status != serverless.Failed {
			t.Fatalf("the job is %s (%v), want it FAILED", j.Status, err)
		}
		// The pauses are 1, 3, 9 and 27 s, of which half is random.
		attempts, err := jobs.Attempts(t.Context(), "ann", j.Ref)
		if took := time.Since(began); err != nil || len(attempts) != 5 || took < 20*time.Second || took > 41*time.Second {
			t.Errorf("it had %d attempts (%v) in %v, want 5 in 20 to 40 s", len(attempts), err, took)
		}
	})
}

// The clock of the bubble goes through two days at once.
func TestTheReportRunsEachNight(t *testing.T) {
	inMemory(t, func(t *testing.T, _ *serverless.Service, pages http.Handler) {
		time.Sleep(48 * time.Hour)
		synctest.Wait()
		w := httptest.NewRecorder()
		pages.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		if n := shoptest.CompletedIn(w.Body.String(), "report"); n != "2" {
			t.Errorf("after two days the metrics have %q reports, want 2", n)
		}
	})
}
