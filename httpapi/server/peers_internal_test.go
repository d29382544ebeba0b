package server

import (
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/clock"
	"github.com/podyard/podyard/pods"
)

func testPeers(name, secret string, c pods.Clock) *peers {
	return newPeers(name, []byte(secret), c, slog.New(slog.DiscardHandler))
}

func TestTokenIsForOneRequestToOneServerForAShortTime(t *testing.T) {
	c := clock.NewManual(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	a, b := testPeers("a", "secret", c), testPeers("b", "secret", c)
	const uri = peerPrefix + "pods/p/log?tail=1"
	good := a.token(c.Now(), "b", "GET", uri)
	ask := func(x *peers, method, uri, token string) error {
		r := httptest.NewRequestWithContext(t.Context(), method, uri, nil)
		r.Header.Set("Authorization", peerScheme+token)
		return x.check(r)
	}
	if err := ask(b, "GET", uri, good); err != nil {
		t.Errorf("the token = %v, want nil", err)
	}
	for what, err := range map[string]error{
		"another server": ask(testPeers("c", "secret", c), "GET", uri, good),
		"another store":  ask(testPeers("b", "else", c), "GET", uri, good),
		"another method": ask(b, "POST", uri, good),
		"another pod":    ask(b, "GET", peerPrefix+"pods/q/log?tail=1", good),
		"another query":  ask(b, "GET", uri+"1", good),
		"later":          ask(b, "GET", uri, a.token(c.Now().Add(-time.Minute), "b", "GET", uri)),
		"earlier":        ask(b, "GET", uri, a.token(c.Now().Add(time.Minute), "b", "GET", uri)),
		"nothing":        ask(b, "GET", uri, ""),
	} {
		if !errors.Is(err, errNoPeer) {
			t.Errorf("%s: %v, want errNoPeer", what, err)
		}
	}
}

func TestServerThatDoesNotAnswerIsAwayAndNotAskedForLoadsForAWhile(t *testing.T) {
	asked := 0
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		asked++
		http.Redirect(w, &http.Request{}, "http://127.0.0.1:1/", http.StatusFound)
	}))
	defer s.Close()
	c := clock.NewManual(time.Now())
	logs, loads := testPeers("a", "secret", c).reach("b", s.URL)
	for _, err := range logs.Logs(t.Context(), "p", pods.LogQuery{Tail: -1}) {
		if !errors.Is(err, pods.ErrHostAway) || err.Error() != pods.ErrHostAway.Error()+": b" {
			t.Errorf("log = %v, want ErrHostAway with the name", err)
		}
	}
	for range 3 {
		if _, ok := loads.Sample(t.Context(), "p"); ok {
			t.Error("a load of a server that does not answer")
		}
	}
	if asked != 2 {
		t.Errorf("%d requests, want one for the log and one for the load", asked)
	}
}
