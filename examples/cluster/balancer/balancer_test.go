package balancer_test

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/examples/cluster/balancer"
)

// A backend echoes bodies.
type backend struct {
	*httptest.Server
	url   *url.URL
	ready atomic.Bool
	got   atomic.Int32
	looks atomic.Int32
}

func newBackend(t *testing.T) *backend {
	t.Helper()
	b := &backend{}
	b.ready.Store(true)
	b.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/readyz":
			b.got.Add(1)
			_, _ = io.Copy(w, r.Body) // the client sees what is missing
			return
		case !b.ready.Load():
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		b.looks.Add(1)
	}))
	t.Cleanup(b.Close)
	b.url, _ = url.Parse(b.URL)
	return b
}

func post(b *balancer.Balancer, body string) (int, string) {
	w := httptest.NewRecorder()
	b.ServeHTTP(w, httptest.NewRequest(http.MethodPost, "/v2/echo/run", strings.NewReader(body)))
	return w.Code, w.Body.String()
}

func TestRequestsGoInTurnToServersThatAreReady(t *testing.T) {
	b := balancer.New(nil)
	if code, _ := post(b, "x"); code != http.StatusServiceUnavailable {
		t.Errorf("without servers the answer is %d, want 503", code)
	}
	one, two, three := newBackend(t), newBackend(t), newBackend(t)
	three.ready.Store(false)
	b.Set(t.Context(), one.url, two.url, three.url)
	for range 10 {
		if code, body := post(b, "body"); code != http.StatusOK || body != "body" {
			t.Errorf("the answer is %d %q, want the body", code, body)
		}
	}
	if one.got.Load() != 5 || two.got.Load() != 5 || three.got.Load() != 0 {
		t.Errorf("the servers got %d, %d and %d, want 5, 5 and none", one.got.Load(), two.got.Load(), three.got.Load())
	}
}

func TestARequestOfWhichNothingWasSentGoesToAnotherServer(t *testing.T) {
	b := balancer.New(nil)
	one, two := newBackend(t), newBackend(t)
	b.Set(t.Context(), one.url, two.url)
	one.Close()
	for range 4 {
		if code, body := post(b, "body"); code != http.StatusOK || body != "body" {
			t.Errorf("the answer is %d %q, want the body", code, body)
		}
	}
}

func TestARequestThatWasSentIsNotSentAgain(t *testing.T) {
	b := balancer.New(nil)
	var got atomic.Int32
	cut := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			got.Add(1)
			panic(http.ErrAbortHandler)
		}
	}))
	t.Cleanup(cut.Close)
	u, _ := url.Parse(cut.URL)
	b.Set(t.Context(), u, u)
	if code, _ := post(b, "body"); code != http.StatusBadGateway || got.Load() != 1 {
		t.Errorf("the answer is %d after %d requests, want 502 after one", code, got.Load())
	}
}

func TestServersAreAskedAgainAndAgain(t *testing.T) {
	one := newBackend(t)
	one.ready.Store(false)
	b := balancer.New(&balancer.Options{Every: time.Millisecond})
	b.Set(t.Context(), one.url)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	one.ready.Store(true)
	for range 5000 {
		if code, _ := post(b, "x"); code == http.StatusOK {
			return
		}
		time.Sleep(time.Millisecond)
	}
	t.Error("the server became ready and gets no requests")
}

func TestAServerThatDoesNotAnswerHoldsUpNoLookAtOthers(t *testing.T) {
	var hangs atomic.Bool
	end := make(chan struct{})
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		if hangs.Load() {
			<-end
		}
	}))
	t.Cleanup(other.Close)
	one := newBackend(t)
	one.ready.Store(false)
	b := balancer.New(&balancer.Options{Every: time.Millisecond})
	u, _ := url.Parse(other.URL)
	b.Set(t.Context(), one.url, u)
	hangs.Store(true)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	running.Go(func() { b.Run(ctx) })
	defer running.Wait()
	defer cancel()
	defer close(end)
	looks := one.looks.Load()
	deadline := time.Now().Add(30 * time.Second)
	for one.looks.Load() < looks+50 {
		if time.Now().After(deadline) {
			t.Fatalf("%d looks at one server in 30 s while another does not answer", one.looks.Load()-looks)
		}
		time.Sleep(time.Millisecond)
	}
}
