package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"time"
)

// A task is a job as a worker gets it.
type task struct {
	ID    string `json:"id"`
	Input struct {
		Name  string `json:"name"`
		Sleep int    `json:"sleep_ms"`
	} `json:"input"`
}

// work is a worker, until ctx ends: it takes a job, does it, says what came of it. Where
// and as whom is in its environment. One with longer jobs would ping besides.
func work(ctx context.Context) error {
	id := os.Getenv("RUNPOD_POD_ID")
	take := strings.ReplaceAll(os.Getenv("RUNPOD_WEBHOOK_GET_JOB"), "$ID", id)
	done := strings.ReplaceAll(os.Getenv("RUNPOD_WEBHOOK_POST_OUTPUT"), "$RUNPOD_POD_ID", id)
	fmt.Println("process", os.Getpid())
	for ctx.Err() == nil {
		t, err := next(ctx, take)
		if err != nil {
			return err
		}
		if t == nil {
			continue
		}
		out, err := json.Marshal(map[string]any{"output": greet(t)})
		if err != nil {
			return err
		}
		// The job is done: it is to be known even if the worker is to end.
		if _, _, err := ask(context.WithoutCancel(ctx), http.MethodPost, strings.ReplaceAll(done, "$ID", t.ID)+"&isStream=false", out); err != nil {
			return err
		}
	}
	return nil
}

// next waits for a job. It is nil when none has come for a while, or ctx has ended.
func next(ctx context.Context, take string) (*task, error) {
	status, body, err := ask(ctx, http.MethodGet, take+"&job_in_progress=0", nil)
	switch {
	case errors.Is(err, context.Canceled), status == http.StatusNoContent:
		return nil, nil
	case err != nil:
		return nil, err
	case status != http.StatusOK:
		return nil, fmt.Errorf("take a job: status %d", status)
	}
	var t task
	if err := json.Unmarshal(body, &t); err != nil {
		return nil, err
	}
	return &t, nil
}

func greet(t *task) string {
	time.Sleep(time.Duration(t.Input.Sleep) * time.Millisecond)
	return os.Getenv("GREETING") + ", " + t.Input.Name
}

var client = &http.Client{Transport: &http.Transport{Proxy: http.ProxyFromEnvironment, MaxResponseHeaderBytes: 64 << 10}}

func ask(ctx context.Context, method, url string, body []byte) (status int, answer []byte, err error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body)) //nolint:gosec // see below
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", os.Getenv("RUNPOD_AI_API_KEY"))
	resp, err := client.Do(req) //nolint:gosec // the address is the server's own, which started us
	if err != nil {
		return 0, nil, err
	}
	answer, err = io.ReadAll(io.LimitReader(resp.Body, 32<<20))
	return resp.StatusCode, answer, errors.Join(err, resp.Body.Close())
}
