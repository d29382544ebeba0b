package serverless_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/serverless"
	"github.com/podyard/podyard/serverless/queue"
)

type order struct {
	Item  string    `json:"item"`
	Count uint8     `json:"count"`
	When  time.Time `json:"when"`
	Tags  []string  `json:"tags"`
	To    struct {
		City string `json:"city"`
		Fast bool   `json:"fast"`
	} `json:"to"`
}

// work runs one input and returns the output or the text that the job would fail with.
func work(w serverless.Worker, input string) string {
	out, err := w.Work(context.Background(), serverless.NewTask("j", []byte(input), nil, 1, nil))
	if err != nil {
		return "error: " + err.Error()
	}
	return string(out)
}

// An input that does not fit fails the job without a call of the function, and says which
// field it is and what it must be.
func TestJSONWorkerSaysWhichFieldIsWrong(t *testing.T) {
	echo := func(_ context.Context, t *serverless.JSONTask[order]) (string, error) {
		return fmt.Sprint(t.Input.Count, " ", t.Input.Item), nil
	}
	lax, strict := serverless.JSONWorker[order, string]{Func: echo}, serverless.JSONWorker[order, string]{Func: echo, Strict: true}
	for _, c := range []struct {
		worker      serverless.Worker
		input, want string
	}{
		{lax, `{"item":"tea & co","count":3}`, `"3 tea & co"`},
		{lax, `{}`, `"0 "`},
		{lax, `{"item":"tea","colour":"red"}`, `"0 tea"`},
		{strict, `{"item":"tea","colour":"red"}`, `error: input: unknown field "colour"`},
		{strict, `{"item":"tea"}`, `"0 tea"`},
		{lax, `{"item":3}`, `error: input: "item" must be a string, not number`},
		{lax, `{"count":"3"}`, `error: input: "count" must be a whole number from 0 of 8 bits, not string`},
		{lax, `{"count":300}`, `error: input: "count" must be a whole number from 0 of 8 bits, not number 300`},
		{lax, `{"tags":{}}`, `error: input: "tags" must be an array, not object`},
		{lax, `{"to":"me"}`, `error: input: "to" must be an object, not string`},
		{lax, `{"to":{"city":["x"]}}`, `error: input: "to.city" must be a string, not array`},
		{lax, `{"to":{"fast":"yes"}}`, `error: input: "to.fast" must be true or false, not string`},
		{lax, `{"item":"tea","when":"today"}`, `error: input: "when": parsing time "today" as "2006-01-02T15:04:05Z07:00": cannot parse "today" as "2006"`},
		{serverless.JSON(func(context.Context, string) (int, error) { return 0, nil }), `{"a":1}`, `error: input must be a string, not object`},
		{serverless.JSON(func(context.Context, map[string]int) (int, error) { return 0, nil }), `{"a":1.5}`, `error: input: "a" must be a whole number, not number 1.5`},
		{serverless.JSON(func(context.Context, map[string]string) (int, error) { return 0, nil }), `{"a":"b","c":{}}`, `error: input: "c" must be a string, not object`},
		{serverless.JSON(func(context.Context, []int) (float64, error) { return math.NaN(), nil }), `[]`, `error: output: unsupported value: NaN`},
		{serverless.JSON(func(context.Context, json.RawMessage) (*order, error) { return nil, nil }), `{}`, `null`},
	} {
		if got := work(c.worker, c.input); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.input, got, c.want)
		}
	}
}

// Errors of the function fail the job as those of any worker do, with the output of a
// *Failure; a panic fails it too.
func TestJSONWorkerFailsAsAnyWorker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := serverless.New(memory.NewJobs(), memory.NewEndpoints(), nil)
		if err := s.EnsureEndpoint(t.Context(), "echo"); err != nil {
			t.Fatal(err)
		}
		ctx, end := context.WithCancel(t.Context())
		defer synctest.Wait()
		defer end()
		go func() { _ = s.Run(ctx) }()
		type ask struct{ Do string }
		go func() {
			_ = s.Serve(ctx, "echo", serverless.JSON(func(_ context.Context, in ask) (any, error) {
				switch in.Do {
				case "err":
					return nil, errors.New("no such thing")
				case "failure":
					return nil, &serverless.Failure{Output: []byte(`{"seen":2}`), Text: "half done"}
				case "panic":
					panic("ouch")
				}
				return in, nil
			}), nil)
		}()
		type result struct {
			Status        serverless.Status
			Output, Error string
		}
		for do, want := range map[string]result{
			"fine":    {serverless.Completed, `{"Do":"fine"}`, ""},
			"err":     {serverless.Failed, "", "no such thing"},
			"failure": {serverless.Failed, `{"seen":2}`, "half done"},
			"panic":   {serverless.Failed, "", "the worker panicked: ouch"},
		} {
			j, err := s.SubmitAndWait(t.Context(), "ann", "echo", serverless.Request{Input: fmt.Appendf(nil, `{"Do":%q}`, do)})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, result{j.Status, string(j.Output), j.Error}); diff != "" {
				t.Errorf("%s (-want +got):\n%s", do, diff)
			}
		}
	})
}

// A typed task emits chunks and progress as JSON, and says what cannot be JSON.
func TestJSONTaskEmitsValues(t *testing.T) {
	var got []string
	task := serverless.NewTask("j", []byte(`{"n":2}`), []byte(`{"s3Config":{}}`), 3, func(_ context.Context, k queue.OpKind, b []byte) error {
		got = append(got, fmt.Sprint(k == queue.OpChunk, " ", string(b)))
		return nil
	})
	w := serverless.JSONWorker[struct{ N int }, struct{}]{Func: func(ctx context.Context, t *serverless.JSONTask[struct{ N int }]) (out struct{}, err error) {
		got = append(got, fmt.Sprint(t.ID, t.Attempt, string(t.Extra)))
		if err := errors.Join(t.Progress(ctx, "begun"), t.Emit(ctx, map[string]int{"n": t.Input.N})); err != nil {
			return out, err
		}
		return out, t.Emit(ctx, make(chan int))
	}}
	_, err := w.Work(t.Context(), task)
	if want := "chunk: unsupported type: chan int"; err == nil || err.Error() != want {
		t.Errorf("Emit of a channel = %v, want %s", err, want)
	}
	if diff := cmp.Diff([]string{`j3{"s3Config":{}}`, `false "begun"`, `true {"n":2}`}, got); diff != "" {
		t.Errorf("calls (-want +got):\n%s", diff)
	}
}
