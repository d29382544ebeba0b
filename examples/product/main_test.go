package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/httpapi/client"
)

func TestUsersOfTheProgramSignInAndRunJobs(t *testing.T) {
	hooks := make(chan http.Header, 10)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { hooks <- r.Header }))
	defer receiver.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- serve(ctx, l, filepath.Join(t.TempDir(), "data"), &webhook.Options{
			Secrets: []string{"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"}, AllowPrivate: true,
		})
	}()
	url := "http://" + l.Addr().String()
	ask := func(method, path, body string, sign func(*http.Request)) (int, string) {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		sign(req)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, string(b)
	}
	password := func(p string) func(*http.Request) { return func(r *http.Request) { r.SetBasicAuth("ann", p) } }
	bearer := func(key string) func(*http.Request) {
		return func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+key) }
	}

	if status, _ := ask("POST", "/login", "", password("guessed")); status != http.StatusUnauthorized {
		t.Errorf("a wrong password signs in with %d, want 401", status)
	}
	status, key := ask("POST", "/login", "", password("correct horse"))
	if status != http.StatusOK {
		t.Fatalf("the right password signs in with %d, want 200", status)
	}
	const run = "/v2/area/runsync"
	if status, body := ask("POST", run, `{"input":{}}`, bearer("stolen")); status != http.StatusUnauthorized {
		t.Errorf("a job without a session: %d %s, want 401", status, body)
	}
	c, err := client.New(&client.Options{URL: url, Key: client.Secret(key)})
	if err != nil {
		t.Fatal(err)
	}
	job, err := c.Jobs("area").RunSync(t.Context(), client.JobRequest{Input: map[string]int{"width": 3, "height": 4}, Webhook: receiver.URL})
	if err != nil || job.Status != client.Completed || string(job.Output) != "12" {
		t.Errorf("the job is %+v (%v), want COMPLETED with 12", job, err)
	}
	select {
	case h := <-hooks:
		if !strings.HasPrefix(h.Get("Webhook-Signature"), "v1,") {
			t.Errorf("the webhook has the headers %v, want a signature", h)
		}
	case <-time.After(30 * time.Second):
		t.Error("no webhook came")
	}
	if status, text := ask("GET", "/floor", "", func(*http.Request) {}); status != http.StatusOK || text != "12 <nil>\n" {
		t.Errorf("the page that does a job: %d %q, want 12", status, text)
	}
	cookie := func(r *http.Request) { r.AddCookie(&http.Cookie{Name: "session", Value: key}) }
	if status, text := ask("GET", "/console/session", "", cookie); status != http.StatusOK || !strings.Contains(text, "ann") {
		t.Errorf("the console knows the user of the program's session as %d %q, want ann", status, text)
	}
	if status, _ := ask("GET", "/console/session", "", func(*http.Request) {}); status != http.StatusNoContent {
		t.Errorf("the console knows who has not signed in: %d, want 204", status)
	}
	if _, text := ask("GET", "/metrics", "", func(*http.Request) {}); !strings.Contains(text, "jobs_completed_total 2\n") {
		t.Errorf("metrics %q, want two jobs completed", text)
	}
	if status, body := ask("GET", "/v2/serverless", "", bearer(key)); status != http.StatusForbidden {
		t.Errorf("the list of endpoints: %d %s, want 403 for users who run jobs only", status, body)
	}
	cancel()
	if err := <-done; err != nil {
		t.Errorf("the program ends with %v, want nil", err)
	}
}
