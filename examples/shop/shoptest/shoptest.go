// Package shoptest has customers of a shop, for the tests of its steps.
package shoptest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"
)

// Secret is a secret for the sign-in.
const Secret = "only tests have it, and it is 32 "

// A Customer is somebody who has signed in to a shop.
type Customer struct {
	t      testing.TB
	url    string
	Cookie *http.Cookie // nil: of nobody
}

// Nobody has not signed in.
func Nobody(t testing.TB, url string) *Customer { return &Customer{t: t, url: url} }

// SignIn signs a customer in.
func SignIn(t testing.TB, url, name string) *Customer {
	t.Helper()
	req := request(t, "POST", url+"/login", "")
	req.SetBasicAuth(name, "correct horse")
	a := send(t, req)
	if len(a.cookies) != 1 {
		t.Fatalf("POST /login of %s: %d %s with %d cookies, want one", name, a.status, a.text, len(a.cookies))
	}
	return &Customer{t, url, a.cookies[0]}
}

func request(t testing.TB, method, url, body string) *http.Request {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	return req
}

// An answer is what came back.
type answer struct {
	status  int
	text    string
	cookies []*http.Cookie
}

func send(t testing.TB, req *http.Request) answer {
	t.Helper()
	client := http.Client{Transport: &http.Transport{MaxResponseHeaderBytes: 1 << 16, DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 16<<20))
	if err != nil {
		t.Fatal(err)
	}
	return answer{resp.StatusCode, string(b), resp.Cookies()}
}

// Do sends a request and returns the answer.
func (c *Customer) Do(method, path, body string) (status int, text string) {
	c.t.Helper()
	req := request(c.t, method, c.url+path, body)
	if c.Cookie != nil {
		req.AddCookie(c.Cookie)
	}
	a := send(c.t, req)
	return a.status, a.text
}

// A View is what a customer sees of an order.
type View struct {
	ID     string
	Status string
	Output [2]int // pages: done and all, while the invoice is made
}

func (c *Customer) view(method, path, body string) (v View) {
	c.t.Helper()
	status, text := c.Do(method, path, body)
	if err := json.Unmarshal([]byte(text), &v); err != nil || status != http.StatusOK {
		c.t.Fatalf("%s %s answers %d %s, want an order", method, path, status, text)
	}
	return v
}

// Body is the body of an order of so many items. The reference may be empty.
func Body(reference string, items int) string {
	return fmt.Sprintf(`{"reference":%q,"items":[%s]}`, reference, strings.TrimSuffix(strings.Repeat(`"a book",`, items), ","))
}

// Order orders so many items, whose invoice has as many pages, and returns the order's id.
func (c *Customer) Order(items int) string {
	c.t.Helper()
	return c.view("POST", "/orders", Body("", items)).ID
}

// Show returns an order.
func (c *Customer) Show(id string) View {
	c.t.Helper()
	return c.view("GET", "/orders/"+id, "")
}

// Cancel cancels an order.
func (c *Customer) Cancel(id string) View {
	c.t.Helper()
	return c.view("DELETE", "/orders/"+id, "")
}

// Await waits until an order is as it should be.
func (c *Customer) Await(id string, should func(View) bool) View {
	c.t.Helper()
	for {
		v := c.Show(id)
		if should(v) {
			return v
		}
		select {
		case <-c.t.Context().Done():
			c.t.Fatalf("order %s is %+v at the end of the test", id, v)
		case <-time.After(5 * time.Millisecond):
		}
	}
}

// Invoice waits for the invoice of an order, which must be a PDF with so many pages.
func (c *Customer) Invoice(id string, pages int) {
	c.t.Helper()
	status, text := c.Do("GET", "/orders/"+id+"/invoice", "")
	if status != http.StatusOK || !strings.HasPrefix(text, "%PDF-") || strings.Count(text, "/Type /Page ") != pages {
		c.t.Errorf("the invoice of order %s is %d %.80q with %d pages, want a PDF with %d", id, status, text, strings.Count(text, "/Type /Page "), pages)
	}
}

// Completed returns how many jobs of an endpoint the metrics of a shop say it has completed.
func (c *Customer) Completed(endpoint string) string {
	c.t.Helper()
	_, text := c.Do("GET", "/metrics", "")
	return CompletedIn(text, endpoint)
}

// CompletedIn reads metrics. It returns "" if there are none of such jobs.
func CompletedIn(metrics, endpoint string) string {
	for line := range strings.Lines(metrics) {
		labels, n, _ := strings.Cut(strings.TrimSpace(line), "} ")
		if strings.HasPrefix(labels, "podyard_jobs_finished_total{") && strings.Contains(labels, fmt.Sprintf("endpoint=%q", endpoint)) && strings.Contains(labels, `status="COMPLETED"`) {
			return n
		}
	}
	return ""
}
