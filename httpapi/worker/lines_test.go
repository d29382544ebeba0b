package worker_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/podyard/podyard/httpapi/worker"
	"github.com/podyard/podyard/serverless"
)

func TestLinesOfATaskAreWrittenAsTheSDKPrintsThem(t *testing.T) {
	s, url := start(t)
	var lines bytes.Buffer
	stop := work(t, func(_ context.Context, task *serverless.Task) ([]byte, error) {
		task.Log("two\nlines \"x\"")
		return []byte(`1`), nil
	}, worker.Options{URL: url, Endpoint: "e", ID: "w1", Key: "admin", Lines: &lines})
	j := submit(t, s, `{}`)
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	want := `{"requestId":"` + string(j.ID) + `","message":"two\nlines \"x\"","level":"INFO"}` + "\n"
	if lines.String() != want {
		t.Errorf("written is %q, want %q", lines.String(), want)
	}
}
