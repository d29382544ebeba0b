package client_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
)

func TestOptionsThatAreWrongAreNamed(t *testing.T) {
	for _, o := range []*client.Options{
		nil, {}, {URL: "pods.example.com"}, {URL: "ftp://x"}, {URL: "http://"}, {URL: "http://x?y=z"}, {URL: "http://x", JobsURL: "%"},
	} {
		if c, err := client.New(o); err == nil || c != nil || !strings.Contains(err.Error(), "URL") {
			t.Errorf("New(%+v) = %v, want an error that names the URL", o, err)
		}
	}
}

func TestInputThatIsNoRequestIsRefusedBeforeOne(t *testing.T) {
	if _, err := client.New(&client.Options{URL: "http://x", Key: "a\nb"}); err == nil || strings.Contains(err.Error(), "a") && strings.Contains(err.Error(), "b\n") {
		t.Errorf("a key of two lines: %v", err)
	}
	c, s := scripted(t, client.Options{}, answer(200, "{}"))
	ctx := t.Context()
	calls := map[string]func() error{
		"an empty id":  func() error { _, err := c.Pods.Get(ctx, ""); return err },
		"a dot":        func() error { return c.Volumes.Delete(ctx, "..") },
		"no endpoint":  func() error { _, err := c.Jobs("").Health(ctx); return err },
		"no JSON":      func() error { _, err := c.Jobs("e").Submit(ctx, client.JobRequest{Input: func() {}}); return err },
		"a bad key":    func() error { _, err := c.Jobs("e").Submit(ctx, client.JobRequest{IdempotencyKey: "a b"}); return err },
		"an empty log": func() error { _, err := first(c.Pods.Logs(ctx, "", nil)); return err },
	}
	for name, call := range calls {
		if err := call(); err == nil || client.StatusOf(err) != 0 {
			t.Errorf("%s: %v, want an error before a request", name, err)
		}
	}
	if len(s.requests) > 0 {
		t.Errorf("requests were made: %v", s.requests[0].URL)
	}
}

func TestErrorsHaveTheProblem(t *testing.T) {
	s := apitest.Start(t)
	c := newClient(t, s, nil)
	_, err := c.Pods.Create(t.Context(), client.PodSettings{Disk: -1})
	var e *client.Error
	if !errors.As(err, &e) {
		t.Fatalf("Create = %v, want an Error", err)
	}
	want := &client.Error{
		Method: "POST", Path: "/v2/pods", Status: 422, Title: "Unprocessable Entity", Detail: e.Detail,
		Errors: []string{"/name: must not be empty", "/image: is required", "/disk: must be 1 to 1048576 GB"},
	}
	if diff := cmp.Diff(want, e); diff != "" {
		t.Errorf("error (-want +got):\n%s", diff)
	}
	if text := err.Error(); text != "client: POST /v2/pods: 422 Unprocessable Entity: /name: must not be empty; /image: is required; /disk: must be 1 to 1048576 GB" {
		t.Errorf("text of the error: %s", text)
	}
}

func TestErrorsOfOtherFormsAreRead(t *testing.T) {
	for body, detail := range map[string]string{
		`{"error":"no such job"}`:                "no such job",
		`{"error":{"message":"bad model"}}`:      "bad model",
		`<html>Bad gateway</html>`:               "",
		`{"title":"Gone","detail":"it is gone"}`: "it is gone",
	} {
		c, _ := scripted(t, client.Options{}, answer(410, body, "X-Request-Id", "r1"))
		_, err := c.Jobs("e").Get(t.Context(), "j")
		var e *client.Error
		if !errors.As(err, &e) || e.Status != 410 || e.Detail != detail || e.RequestID != "r1" {
			t.Errorf("%s becomes %+v", body, e)
		}
	}
}

// The hosted service gets nothing that it does not have, from any method that is no addition.
func TestNothingIsSentThatTheHostedServiceDoesNotHave(t *testing.T) {
	c, s := scripted(t, client.Options{}, answer(200, "{}"))
	ctx := t.Context()
	_, _ = c.Pods.List(ctx)
	_, _ = c.Pods.Create(ctx, newPod)
	_, _ = c.Endpoints.Create(ctx, newEndpoint)
	_, _ = c.Jobs("e").Submit(ctx, client.JobRequest{Policy: &client.JobPolicy{LowPriority: true}})
	_, _ = c.Jobs("e").RunSync(ctx, client.JobRequest{})
	_, _ = c.Billing.All(ctx, client.BillingQuery{})
	for _, err := range c.Jobs("e").List(ctx, client.JobsQuery{}) {
		_ = err
	}
	for _, err := range c.Jobs("e").Stream(ctx, "j") {
		_ = err
		break
	}
	if len(s.requests) < 8 {
		t.Fatalf("only %d requests", len(s.requests))
	}
	for _, r := range s.requests {
		for _, name := range []string{"Idempotency-Key", "Last-Event-Id", "Traceparent"} {
			if r.Header.Get(name) != "" {
				t.Errorf("%s has the header %s", r.URL, name)
			}
		}
		q := r.URL.Query()
		for _, name := range []string{"cursor", "owner", "format"} {
			if q.Has(name) {
				t.Errorf("%s has the parameter %s", r.URL, name)
			}
		}
		if q.Has("limit") && !strings.HasSuffix(r.URL.Path, "/requests") {
			t.Errorf("%s has a limit", r.URL)
		}
	}
}

func TestEachPartOfTheHostedServiceHasItsAddress(t *testing.T) {
	s := &script{steps: []http.HandlerFunc{answer(200, "{}")}}
	c, err := client.New(&client.Options{
		URL: "https://api.example.com", JobsURL: "https://jobs.example.com/", LegacyURL: "https://rest.example.com", HTTP: &http.Client{Transport: s}, Key: "k",
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = c.Pods.Get(t.Context(), "a/b c")
	_, _ = c.Jobs("e").Health(t.Context())
	_, _ = c.Pods.Reset(t.Context(), "p")
	var got []string
	for _, r := range s.requests {
		got = append(got, r.URL.String())
		if r.Header.Get("Authorization") != "Bearer k" || r.Header.Get("User-Agent") != "podyard-client" {
			t.Errorf("headers of %s: %v", r.URL, r.Header)
		}
	}
	want := []string{"https://api.example.com/v2/pods/a%2Fb%20c", "https://jobs.example.com/v2/e/health", "https://rest.example.com/v1/pods/p/reset"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("addresses (-want +got):\n%s", diff)
	}
}

func TestSecretsAreNotPrinted(t *testing.T) {
	o := client.Options{URL: "http://127.0.0.1:1", Key: "s3cret", Retry: client.Retry{Max: -1}}
	c, err := client.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	_, err = c.Pods.List(t.Context())
	if err == nil {
		t.Fatal("a request to nobody has succeeded")
	}
	for _, text := range []string{fmt.Sprintf("%+v %#v %v", o, o, o), fmt.Sprintf("%+v", *c), err.Error()} {
		if strings.Contains(text, "s3cret") {
			t.Errorf("the key is in %s", text)
		}
	}
}

func TestListsAreReadInPages(t *testing.T) {
	first := answer(200, `{"pods":[{"id":"a"},{"id":"b"}]}`, "Link", `<https://other.test/x>; rel="prev", </prefix/v2/pods?cursor=2&limit=500>; rel="next"`)
	c, s := scripted(t, client.Options{Additions: true}, first, answer(200, `{"pods":[{"id":"c"}]}`))
	list, err := c.Pods.List(t.Context())
	if err != nil || len(list) != 3 || list[2].ID != "c" {
		t.Errorf("List = %+v, %v", list, err)
	}
	if got := s.requests[0].URL.RawQuery + " " + s.requests[1].URL.RequestURI(); got != "limit=500 /prefix/v2/pods?cursor=2&limit=500" {
		t.Errorf("requests: %s", got)
	}
	c, s = scripted(t, client.Options{Additions: true}, answer(200, `{"pods":[]}`, "Link", `<https://evil.test/v2/pods>; rel="next"`))
	if _, err := c.Pods.List(t.Context()); err == nil || len(s.requests) != 1 {
		t.Errorf("a page on another host = %v after %d requests, want an error", err, len(s.requests))
	}
}

// Under a prefix, the pages of a server are where the client sees them.
func TestPagesOfAServerUnderAPrefixAreRead(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("q")
	srv := httptest.NewServer(http.StripPrefix("/gpu", s.Double.Handler()))
	defer srv.Close()
	c := newClient(t, s, func(o *client.Options) { o.URL, o.Additions = srv.URL+"/gpu", true })
	const jobs = 520 // more than a page
	for range jobs {
		if _, err := c.Jobs("q").Submit(t.Context(), client.JobRequest{}); err != nil {
			t.Fatal(err)
		}
	}
	seen := map[string]bool{}
	for j, err := range c.Endpoints.Jobs(t.Context(), "q") {
		if err != nil {
			t.Fatal(err)
		}
		seen[j.ID] = true
	}
	if len(seen) != jobs {
		t.Errorf("%d jobs in the pages, want %d", len(seen), jobs)
	}
	s.RequireRequest(t, apitest.RequestMatch{Operation: "listEndpointJobs", Times: 2})
}

func TestOperatorsSeeOwners(t *testing.T) {
	s := apitest.Start(t)
	c := newClient(t, s, nil)
	k, err := c.Account.CreateKey(t.Context(), client.KeySettings{User: "bob", Scopes: []string{"*"}})
	if err != nil {
		t.Fatal(err)
	}
	bob := newClient(t, s, func(o *client.Options) { o.Key = k.Secret })
	v, err := bob.Volumes.Create(t.Context(), client.Volume{Name: "v", Size: 10, DataCenter: "US-KS-2"})
	if err != nil {
		t.Fatal(err)
	}
	list, err := c.As("*").Volumes.List(t.Context())
	if err != nil || len(list) != 1 || list[0].Owner != "bob" || list[0].ID != v.ID {
		t.Errorf("volumes of all users: %+v, %v", list, err)
	}
	if got, err := c.Volumes.Get(t.Context(), v.ID); err != nil || got.Owner != "bob" {
		t.Errorf("a volume of bob: %+v, %v", got, err)
	}
	if list, err := c.Volumes.List(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("the operator's own volumes: %+v, %v", list, err)
	}
	s.Queue("q")
	if _, err := bob.Jobs("q").Submit(t.Context(), client.JobRequest{}); err != nil {
		t.Fatal(err)
	}
	j, err := first(c.As("bob").Jobs("q").List(t.Context(), client.JobsQuery{}))
	if err != nil || j.Owner != "bob" {
		t.Errorf("a job of bob: %+v, %v", j, err)
	}
	if n, err := c.As("bob").Jobs("q").Purge(t.Context()); err != nil || n != 1 {
		t.Errorf("a purge for bob: %d, %v", n, err)
	}
}
