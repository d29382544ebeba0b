package apitest_test

import (
	"context"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/double"
	"github.com/podyard/podyard/serverless"
)

func echo(_ context.Context, k *serverless.Task) ([]byte, error) { return k.Input, nil }

func post(t testing.TB, c *http.Client, url, key, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if key != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	res, err := c.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func TestServerIsReachedInProcessAndBySocket(t *testing.T) {
	srv := apitest.Start(t)
	srv.Handle("echo", echo)
	tr := &http.Transport{}
	defer tr.CloseIdleConnections()
	for how, c := range map[string]*http.Client{"in process": srv.Client(), "by socket": {Transport: tr}} {
		url := double.BaseURL
		if how == "by socket" {
			url = srv.URL()
		}
		if code, body := post(t, c, url+"/v2/echo/runsync", srv.Key, `{"input":{"a":1}}`); code != 200 || !strings.Contains(body, `"output":{"a":1}`) {
			t.Errorf("%s: %d %s", how, code, body)
		}
	}
	if code, _ := post(t, srv.Client(), double.BaseURL+"/v2/echo/run", "wrong", `{"input":{}}`); code != 401 {
		t.Errorf("with a wrong key: %d, want 401", code)
	}
	srv.RequireJob(t, apitest.JobMatch{Endpoint: "echo", User: double.User, Times: 2})
}

func TestEnvironmentIsThatOfTheSDKs(t *testing.T) {
	srv := apitest.Start(t)
	srv.Setenv()
	if got, want := os.Getenv("RUNPOD_ENDPOINT_BASE_URL"), srv.URL()+"/v2"; got != want {
		t.Errorf("RUNPOD_ENDPOINT_BASE_URL = %q, want %q", got, want)
	}
	if got := os.Getenv("RUNPOD_API_KEY"); got != srv.Key {
		t.Errorf("RUNPOD_API_KEY = %q, want the key", got)
	}
	if n := len(srv.Environ()); n != len(srv.Env()) {
		t.Errorf("Environ has %d lines, want %d", n, len(srv.Env()))
	}
}

func TestServicesAreThoseBehindTheHandler(t *testing.T) {
	srv := apitest.Start(t)
	srv.Queue("q")
	post(t, srv.Client(), double.BaseURL+"/v2/q/run", "", `{"input":{}}`)
	h, err := srv.Jobs.Health(t.Context(), "q")
	if err != nil || h.Jobs.Queued != 1 {
		t.Errorf("Health = %+v, %v, want one queued", h, err)
	}
	srv.Reset(1)
	if _, err := srv.Jobs.Health(t.Context(), "q"); err == nil {
		t.Error("after a Reset the services are the old ones")
	}
}

func TestAnHourOfWorkTakesNoTime(t *testing.T) {
	srv := apitest.Start(t)
	srv.Endpoint("train").After(time.Hour).Reply("a model")

	post(t, srv.Client(), double.BaseURL+"/v2/train/run", "", `{"input":{"epochs":3},"policy":{"executionTimeout":7200000}}`)
	if got := srv.RunUntilIdle(); got != time.Hour {
		t.Errorf("RunUntilIdle went on by %v, want 1h", got)
	}

	job := srv.RequireJob(t, apitest.JobMatch{Endpoint: "train", Input: map[string]any{"epochs": 3}})
	if job.Status != "COMPLETED" || string(job.Output) != `"a model"` {
		t.Errorf("the job is %s with %s, want COMPLETED with the model", job.Status, job.Output)
	}
}
