package webhook_test

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/webhook"
	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/serverless/queue"
)

func TestIsPublicKnowsEveryKindOfAddress(t *testing.T) {
	for _, tt := range []struct {
		why    string
		public bool
		addrs  []string
	}{
		{"public", true, []string{"1.1.1.1", "8.8.8.8", "93.184.216.34", "100.63.255.255", "100.128.0.0", "172.15.255.255", "172.32.0.1", "192.0.1.1", "198.17.255.255", "198.20.0.1", "223.255.255.255", "2606:4700::1111", "2a00:1450::8a"}},
		{"loopback", false, []string{"127.0.0.1", "127.255.255.254", "127.1.2.3", "::1"}},
		{"unspecified", false, []string{"0.0.0.0", "0.1.2.3", "::"}},
		{"private", false, []string{"10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.1", "192.168.255.255", "fc00::1", "fd12:3456::1"}},
		{"link-local and metadata", false, []string{"169.254.0.1", "169.254.169.254", "169.254.170.2", "fe80::1", "febf::1", "fd00:ec2::254"}},
		{"behind carriers' NAT", false, []string{"100.64.0.1", "100.127.255.255"}},
		{"protocol assignments", false, []string{"192.0.0.1", "192.0.0.170", "192.88.99.1"}},
		{"documentation", false, []string{"192.0.2.1", "198.51.100.7", "203.0.113.9", "2001:db8::1", "3fff::1"}},
		{"benchmarks", false, []string{"198.18.0.1", "198.19.255.255", "2001:2::1"}},
		{"multicast", false, []string{"224.0.0.1", "239.255.255.250", "ff02::1", "ff05::2"}},
		{"reserved and broadcast", false, []string{"240.0.0.1", "255.255.255.255"}},
		{"site-local and discard", false, []string{"fec0::1", "100::1"}},
		{"IPv4 mapped into IPv6", false, []string{"::ffff:127.0.0.1", "::ffff:10.1.2.3", "::ffff:169.254.169.254", "::ffff:100.64.0.1"}},
		{"IPv4 mapped into IPv6, public", true, []string{"::ffff:1.1.1.1"}},
		{"IPv4-compatible and translated", false, []string{"::127.0.0.1", "::10.0.0.1", "::1.1.1.1", "::ffff:0:10.0.0.1"}},
		{"NAT64 of a private address", false, []string{"64:ff9b::10.0.0.1", "64:ff9b::127.0.0.1", "64:ff9b::169.254.169.254", "64:ff9b:1::10.0.0.1", "64:ff9b:1::1.1.1.1"}},
		{"NAT64 of a public address", true, []string{"64:ff9b::8.8.8.8"}},
		{"6to4 and Teredo", false, []string{"2002:a00:1::1", "2002:7f00:1::1", "2001::1", "2001:0:53aa:64c::1", "2001:10::1", "2001:20::1"}},
		{"with a zone", false, []string{"fe80::1%eth0", "2606:4700::1111%eth0"}},
		{"segment routing and what is not assigned", false, []string{"5f00::1", "4000::1", "e000::1"}},
	} {
		for _, a := range tt.addrs {
			if got := webhook.IsPublic(netip.MustParseAddr(a)); got != tt.public {
				t.Errorf("%s: IsPublic(%s) = %t, want %t", tt.why, a, got, tt.public)
			}
		}
	}
	if webhook.IsPublic(netip.Addr{}) {
		t.Error("the zero address is public, want not")
	}
}

func delivery(url string) *queue.Delivery {
	return &queue.Delivery{ID: "msg_j1_0", Job: queue.Job{
		Ref: queue.Ref{Endpoint: "e", ID: "j1"}, Webhook: url,
		Input: []byte(`{"a":1}`), Output: []byte(`2`), Extra: []byte(`{"s3Config":{"accessSecret":"hush"}}`),
		State: queue.State{Status: queue.Completed, Worker: "w", Queued: 1, Started: 3, Finished: 7},
	}}
}

func sender(t *testing.T, o webhook.Options) *webhook.Sender {
	t.Helper()
	s, err := webhook.New(&o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestSendPostsTheJobWithItsInputAndNothingElse(t *testing.T) {
	var got string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = r.Method + " " + r.Header.Get("Content-Type") + " " + r.Header.Get("Webhook-Signature") + string(b)
		w.WriteHeader(http.StatusAccepted)
	}))
	defer srv.Close()
	status, err := sender(t, webhook.Options{AllowPrivate: true}).Send(t.Context(), delivery(srv.URL))
	if status != http.StatusAccepted || err != nil {
		t.Errorf("Send = %d, %v, want the receiver's 202", status, err)
	}
	const want = `POST application/json {"delayTime":2,"executionTime":4,"id":"j1","input":{"a":1},"output":2,"status":"COMPLETED","webhook":"URL","workerId":"w"}`
	if want := strings.Replace(want, "URL", srv.URL, 1); got != want {
		t.Errorf("received %s\nwant     %s", got, want)
	}
}

func TestSendHasTheTraceContextOfTheJob(t *testing.T) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		got = append(got, fmt.Sprint(r.Header["Traceparent"], r.Header["Tracestate"]))
	}))
	defer srv.Close()
	d := delivery(srv.URL)
	const parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for _, trace := range []queue.Trace{{}, {Parent: parent}, {Parent: parent, State: `a=1,b="`}} {
		d.Job.Trace = trace
		if _, err := sender(t, webhook.Options{AllowPrivate: true}).Send(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"[] []", "[" + parent + "] []", "[" + parent + `] [a=1,b="]`}; !slices.Equal(got, want) {
		t.Errorf("received %q, want %q", got, want)
	}
}

func TestSendRefusesAnAddressThatIsNotPublicAfterResolution(t *testing.T) {
	hits := 0
	srv := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { hits++ }))
	defer srv.Close()
	port := srv.URL[strings.LastIndex(srv.URL, ":"):]
	for _, host := range []string{"127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]"} {
		_, err := sender(t, webhook.Options{}).Send(t.Context(), delivery("http://"+host+port+"/?token=hush"))
		if err == nil || !strings.Contains(err.Error(), "not public") || strings.Contains(err.Error(), "hush") {
			t.Errorf("Send to %s = %v, want that it is not public and no more", host, err)
		}
	}
	if hits != 0 {
		t.Errorf("%d requests arrived, want none", hits)
	}
}

func TestSendFollowsNoRedirectAndBelievesNoOtherScheme(t *testing.T) {
	srv := httptest.NewServer(http.RedirectHandler("/elsewhere", http.StatusFound))
	defer srv.Close()
	s := sender(t, webhook.Options{AllowPrivate: true})
	if status, err := s.Send(t.Context(), delivery(srv.URL)); status != http.StatusFound || err != nil {
		t.Errorf("Send = %d, %v, want the redirect's 302 as the answer", status, err)
	}
	for _, u := range []string{"file:///etc/passwd", "ftp://example.com/", "http://user:pass@example.com/", "::"} {
		if _, err := s.Send(t.Context(), delivery(u)); err == nil {
			t.Errorf("Send to %s succeeded, want an error", u)
		}
	}
}

func TestSendGivesUpOnASlowReceiverAndWhenItsContextEnds(t *testing.T) {
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-block:
		case <-r.Context().Done():
		}
	}))
	defer srv.Close()
	defer close(block)
	s := sender(t, webhook.Options{AllowPrivate: true, Timeout: 20 * time.Millisecond})
	if _, err := s.Send(t.Context(), delivery(srv.URL)); err == nil || !strings.Contains(err.Error(), "in time") {
		t.Errorf("Send = %v, want that the receiver did not answer in time", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	patient := sender(t, webhook.Options{AllowPrivate: true}) // or its own time may end first
	if _, err := patient.Send(ctx, delivery(srv.URL)); !errors.Is(err, context.Canceled) {
		t.Errorf("Send = %v, want context.Canceled", err)
	}
}

func TestSendSignsWithEverySecretCurrentFirst(t *testing.T) {
	old, current := strings.Repeat("o", 24), strings.Repeat("n", 32)
	text := func(s string) string { return "whsec_" + base64.StdEncoding.EncodeToString([]byte(s)) }
	var h http.Header
	var body []byte
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		h = r.Header
		body, _ = io.ReadAll(r.Body)
	}))
	defer srv.Close()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s := sender(t, webhook.Options{AllowPrivate: true, Secrets: []string{text(current), text(old)}, Clock: clock.NewManual(now)})
	if _, err := s.Send(t.Context(), delivery(srv.URL)); err != nil {
		t.Fatal(err)
	}
	at := strconv.FormatInt(now.Unix(), 10)
	sig := func(secret string) string {
		m := hmac.New(sha256.New, []byte(secret))
		m.Write([]byte("msg_j1_0." + at + "." + string(body)))
		return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
	}
	if got, want := h.Get("webhook-signature"), sig(current)+" "+sig(old); got != want {
		t.Errorf("webhook-signature = %q, want %q", got, want)
	}
	if h.Get("webhook-id") != "msg_j1_0" || h.Get("webhook-timestamp") != at {
		t.Errorf("id and time = %q, %q, want msg_j1_0, %s", h.Get("webhook-id"), h.Get("webhook-timestamp"), at)
	}
}

func TestSendWithoutSecretsHasTheIDAndNoSignature(t *testing.T) {
	var h http.Header
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { h = r.Header }))
	defer srv.Close()
	s := sender(t, webhook.Options{AllowPrivate: true})
	for range 2 {
		if _, err := s.Send(t.Context(), delivery(srv.URL)); err != nil {
			t.Fatal(err)
		}
		if id, sig := h.Get("webhook-id"), h.Get("webhook-signature"); id != "msg_j1_0" || sig != "" {
			t.Errorf("webhook-id, webhook-signature = %q, %q, want msg_j1_0 at each attempt, and none", id, sig)
		}
	}
}

func TestNewRefusesASecretThatIsNoneAndDoesNotShowIt(t *testing.T) {
	for _, s := range []string{"hush", "whsec_", "whsec_!!", "whsec_aHVzaA=="} {
		if _, err := webhook.New(&webhook.Options{Secrets: []string{s}}); err == nil || strings.Contains(err.Error(), "aHVzaA") || strings.Contains(err.Error(), "hush") {
			t.Errorf("New(%q) = %v, want an error that does not show it", s, err)
		}
	}
}

type recordingTransport struct{ requests chan *http.Request }

func (e recordingTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	e.requests <- r
	return &http.Response{StatusCode: http.StatusAccepted, Body: http.NoBody, Request: r}, nil
}

func TestTransportOfTheProgramGetsTheSignedRequest(t *testing.T) {
	e := recordingTransport{make(chan *http.Request, 1)}
	s, err := webhook.New(&webhook.Options{
		Transport: e, Secrets: []string{"whsec_" + base64.StdEncoding.EncodeToString(make([]byte, 24))},
	})
	if err != nil {
		t.Fatal(err)
	}
	status, err := s.Send(t.Context(), delivery("http://127.0.0.1:1/here"))
	if status != http.StatusAccepted || err != nil {
		t.Fatalf("Send = %d, %v, want 202", status, err)
	}
	if r := <-e.requests; r.Header.Get("Webhook-Signature") == "" {
		t.Error("the request is not signed")
	}
}
