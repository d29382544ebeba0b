package main

import (
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/shop/shoptest"
	"github.com/podyard/podyard/internal/postgrestest"
)

var postgresql postgrestest.Server

func TestMain(m *testing.M) { os.Exit(postgresql.Main(m)) }

func run(t *testing.T, database string) (url string, end func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- serve(ctx, l, database, shoptest.Secret) }()
	return "http://" + l.Addr().String(), func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the shop ends with %v", err)
		}
	}
}

// What is compared with podyard's shop does the same: the test is that of its first two steps.
func TestTheShopWithRiverDoesWhatPodyardsDoes(t *testing.T) {
	database := postgresql.Database(t)
	url, end := run(t, database)
	ann, bob := shoptest.SignIn(t, url, "ann"), shoptest.SignIn(t, url, "bob")
	other, endOther := run(t, database) // not sooner: two that make the tables at once fail
	for n, want := range []int{http.StatusOK, http.StatusConflict} {
		if status, text := ann.Do("POST", "/orders", shoptest.Body("birthday", 1)); status != want {
			t.Errorf("order %d with the same reference is answered %d %s, want %d", n+1, status, text, want)
		}
	}
	order := bob.Order(3)
	bob.Invoice(order, 3)
	if status, text := ann.Do("GET", "/orders/"+order, ""); status != http.StatusNotFound {
		t.Errorf("another customer gets the order: %d %s, want 404", status, text)
	}
	orders := []string{ann.Order(1000), ann.Order(1000)}
	for _, id := range orders {
		ann.Await(id, func(v shoptest.View) bool { return v.Output[1] > 0 })
	}
	third := ann.Order(30)
	bob.Invoice(bob.Order(2), 2)
	if v := ann.Show(third); v.Status == "running" && v.Output[1] > 0 {
		t.Errorf("the third order is %+v, want it to wait", v)
	}
	for _, id := range orders {
		shoptest.SignIn(t, other, "ann").Cancel(id)
		ann.Await(id, func(v shoptest.View) bool { return v.Status == "cancelled" })
	}
	ann.Await(third, func(v shoptest.View) bool { return v.Output[1] > 0 })
	last := bob.Order(2)
	end()
	endOther()
	url, end = run(t, database)
	defer end()
	shoptest.SignIn(t, url, "ann").Invoice(third, 30)
	shoptest.SignIn(t, url, "bob").Invoice(last, 2)
}

func TestNightlyIsThreeOClockInItsZone(t *testing.T) {
	zone := must(time.LoadLocation("Europe/Berlin"))
	for now, want := range map[string]string{
		"2026-03-28T02:00:00Z": "2026-03-29T01:00:00Z", // 3 o'clock there, when summer begins
		"2026-01-01T01:59:59Z": "2026-01-01T02:00:00Z",
	} {
		at := must(time.Parse(time.RFC3339, now))
		if got := (nightly{zone}).Next(at).UTC().Format(time.RFC3339); got != want {
			t.Errorf("after %s it is %s, want %s", now, got, want)
		}
	}
}
