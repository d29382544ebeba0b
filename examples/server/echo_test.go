package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/internal/suite"
)

// A job is what the tests look at of one.
type job struct {
	ID            string          `json:"id"`
	Status        string          `json:"status"`
	Output        json.RawMessage `json:"output"`
	Error         string          `json:"error"`
	ExecutionTime int             `json:"executionTime"`
}

func TestEchoAnswersWithItsInput(t *testing.T) {
	t.Parallel()
	in := start(t)
	for _, input := range []string{
		`{}`, `{"hello":"world"}`, `{"n": 1.0, "n2":1e400, "s":"\u0041\ud83d\ude00"}`, `{"deep":{"fail":"why","size":3}}`,
		`{"a":1,"a":2}`, `{"fail":null}`, `{"sleep_ms":0}`, `{"sleep_ms":-5}`,
	} {
		got := get[job](in, "POST", "/v2/echo/runsync", `{"input":`+input+`}`, http.StatusOK)
		if got.Status != "COMPLETED" || string(got.Output) != input {
			t.Errorf("input %s: %s with output %s, want COMPLETED with the input byte for byte", input, got.Status, got.Output)
		}
	}
}

func TestEchoWaitsFailsAndMakesOutputs(t *testing.T) {
	t.Parallel()
	in := start(t)
	ask := func(input string) job {
		t.Helper()
		return get[job](in, "POST", "/v2/echo/runsync", `{"input":`+input+`}`, http.StatusOK)
	}
	if j := ask(`{"sleep_ms":200}`); j.Status != "COMPLETED" || j.ExecutionTime < 200 {
		t.Errorf("sleep_ms 200: %s after %d ms, want COMPLETED after 200 ms or more", j.Status, j.ExecutionTime)
	}
	if j := ask(`{"fail":"why"}`); j.Status != "FAILED" || j.Error != "why" || j.Output != nil {
		t.Errorf("fail: %+v, want FAILED with the error \"why\" and no output", j)
	}
	if j := ask(`{"sleep_ms":1,"fail":""}`); j.Status != "FAILED" {
		t.Errorf("fail with an empty text: %s, want FAILED", j.Status)
	}
	if j := ask(`{"size":1000}`); string(j.Output) != `"`+strings.Repeat("x", 1000)+`"` {
		t.Errorf("size 1000: an output of %d bytes, want a string of 1000", len(j.Output)-2)
	}
	if j := ask(`{"size":0}`); string(j.Output) != `""` {
		t.Errorf("size 0: %s, want an empty string", j.Output)
	}
	for _, input := range []string{`{"size":-1}`, `{"size":1000000000}`, `{"size":"big"}`} {
		if j := ask(input); j.Status != "FAILED" || !strings.Contains(j.Error, "size") {
			t.Errorf("%s: %s %q, want FAILED with an error that names size", input, j.Status, j.Error)
		}
	}
	for input, want := range map[string]string{
		`{"sleep_ms":"x"}`: "echo: sleep_ms must be an integer", `{"chunks":1e300}`: "echo: chunks must be an integer", `{"fail":{}}`: "echo: fail must be a string",
	} {
		if j := ask(input); j.Status != "FAILED" || !strings.HasPrefix(j.Error, want) {
			t.Errorf("%s: %s %q, want FAILED and %q", input, j.Status, j.Error, want)
		}
	}
	if j := ask(`{"chunks":2}`); string(j.Output) != `[{"chunk":0},{"chunk":1}]` {
		t.Errorf("chunks 2: output %s", j.Output)
	}
	if j := ask(`{"chunks":0}`); j.Status != "COMPLETED" || string(j.Output) != `[]` {
		t.Errorf("chunks 0: %s with output %s, want COMPLETED with an empty list", j.Status, j.Output)
	}
}

func TestEchoStreamsItsChunks(t *testing.T) {
	t.Parallel()
	in := start(t)
	j := get[job](in, "POST", "/v2/echo/run", `{"input":{"chunks":5}}`, http.StatusOK)
	if j.Status != "IN_QUEUE" {
		t.Errorf("run answers %s, want IN_QUEUE", j.Status)
	}
	var got []int
	for status := ""; status != "COMPLETED"; {
		answer := get[struct {
			Status string
			Stream []struct{ Output struct{ Chunk int } }
		}](in, "GET", "/v2/echo/stream/"+j.ID+"?format=envelope", "", http.StatusOK)
		for _, item := range answer.Stream {
			got = append(got, item.Output.Chunk)
		}
		status = answer.Status
	}
	if diff := cmp.Diff([]int{0, 1, 2, 3, 4}, got); diff != "" {
		t.Errorf("chunks (-want +got):\n%s", diff)
	}
}

func TestEchoRunsAThousandJobsAtOnceAndHalfOfThemForOneUser(t *testing.T) {
	suite.SkipUnlessLong(t)
	t.Parallel()
	in := start(t, "-config", file(t, `{"keys":[{"key":"one","user":"one","scopes":["*"],"exempt":true},{"key":"two","user":"two","scopes":["*"],"exempt":true}]}`))
	type health struct {
		Jobs struct{ InProgress, InQueue int }
	}
	for n, key := range []string{"one", "two"} {
		in.key = key
		for range 515 {
			get[job](in, "POST", "/v2/echo/run", `{"input":{"sleep_ms":600000}}`, http.StatusOK)
		}
		run, wait := 512*(n+1), 3*(n+1)
		eventually(t, fmt.Sprintf("%d jobs in progress and %d waiting", run, wait), func() bool {
			h := get[health](in, "GET", "/v2/echo/health", "", http.StatusOK)
			return h.Jobs.InProgress == run && h.Jobs.InQueue == wait
		})
	}
	in.end(os.Kill) // they need not be waited for
}
