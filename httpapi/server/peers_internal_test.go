package server

import (
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
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
	logs, loads, _ := testPeers("a", "secret", c).reach("b", s.URL)
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

// What answers at the address of a server may be anybody, for example after the address was given to another machine.
func TestAPeerThatSaysTooMuchIsGivenUp(t *testing.T) {
	long := strings.Repeat("x", 1<<20)
	for name, answer := range map[string]http.HandlerFunc{
		"a head without end": func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("Long", strings.Repeat("x", 100<<10)) },
		"a line without end": func(w http.ResponseWriter, _ *http.Request) {
			_, err := io.WriteString(w, `{"text":"`)
			for err == nil {
				_, err = io.WriteString(w, long)
			}
		},
		"blanks without end": func(w http.ResponseWriter, _ *http.Request) {
			blanks := strings.Repeat("\n", 1<<20)
			var err error
			for err == nil {
				_, err = io.WriteString(w, blanks)
			}
		},
	} {
		s := httptest.NewServer(answer)
		logs, _, _ := testPeers("a", "secret", clock.NewManual(time.Now())).reach("b", s.URL)
		failed := 0
		for _, err := range logs.Logs(t.Context(), "p", pods.LogQuery{Tail: -1}) {
			if err != nil {
				failed++
			}
		}
		if failed != 1 {
			t.Errorf("%s: the log had %d errors, want 1", name, failed)
		}
		s.Close()
	}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		for range 12 { // more than one line may have, in all
			_ = json.NewEncoder(w).Encode(peerLine{Text: long})
		}
	}))
	defer s.Close()
	logs, _, _ := testPeers("a", "secret", clock.NewManual(time.Now())).reach("b", s.URL)
	lines := 0
	for l, err := range logs.Logs(t.Context(), "p", pods.LogQuery{Tail: -1}) {
		if err != nil || len(l.Text) != len(long) {
			t.Errorf("line %d: %d bytes, %v", lines, len(l.Text), err)
		}
		lines++
	}
	if lines != 12 {
		t.Errorf("%d lines of 1 MB came, want 12", lines)
	}
}
