package main

import (
	"context"
	"strings"
	"testing"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
	"github.com/podyard/podyard/serverless"
)

func TestTheProgramPrintsWhatAJobStreamsAndItsOutput(t *testing.T) {
	srv := apitest.Start(t)
	srv.Handle("count", func(ctx context.Context, task *serverless.Task) ([]byte, error) {
		for _, n := range []string{"1", "2"} {
			if err := task.Emit(ctx, []byte(n)); err != nil {
				return nil, err
			}
		}
		return task.Input, nil
	})
	c, err := client.New(&client.Options{URL: srv.URL(), Key: client.Secret(srv.Key), Additions: true})
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := run(t.Context(), &out, c.Jobs("count"), `{"a": 1}`); err != nil {
		t.Fatal(err)
	}
	if got := out.String(); got != "1\n2\nCOMPLETED after 0s: {\"a\":1}\n" {
		t.Errorf("the program prints %q", got)
	}
	if err := run(t.Context(), &out, c.Jobs("count"), `[]`); client.StatusOf(err) != 422 {
		t.Errorf("an input that is no object: %v, want the refusal", err)
	}
	if err := run(t.Context(), &out, c.Jobs("count"), `{`); err == nil || client.StatusOf(err) != 0 {
		t.Errorf("an input that is no JSON: %v, want an error before a request", err)
	}
}
