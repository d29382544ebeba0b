package command_test

import (
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
)

// A submit with -unique names the job that is there, and -retain keeps its result.
func TestASubmitWithAKeyNamesTheJobThatIsThere(t *testing.T) {
	t.Parallel()
	srv := apitest.Start(t)
	srv.Queue("waits")
	srv.Endpoint("echo").Reply("done")
	s := on(t, srv)
	submit := func(input string) string {
		return s.must("jobs", "submit", "waits", "-unique", "k", "-unique-while", "queued", "-on-conflict", "replace", "-input", input, "-o", "json")
	}
	if first, again := submit(`{"n":1}`), submit(`{"n":2}`); first != again {
		t.Errorf("the second submit shows %s, want the job of the first %s", again, first)
	}
	if out := s.must("jobs", "submit", "waits", "-o", "json"); out == submit(`{"n":3}`) {
		t.Errorf("a submit without a key shows the job of the key: %s", out)
	}
	s.must("jobs", "submit", "echo", "-retain", "2h", "-ttl", "1m", "-wait")
	srv.Advance(2*time.Hour - time.Minute)
	if out := s.must("jobs", "list", "echo"); !strings.Contains(out, "COMPLETED") {
		t.Errorf("past its ttl the list is %s, want the job that is retained", out)
	}
}
