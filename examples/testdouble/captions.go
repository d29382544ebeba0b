// Package testdouble is a small client of the service as somebody writes it, with the
// tests that somebody writes for it: in Go here, in Python and JavaScript below. Nothing in
// it knows that it is tested with a double.
package testdouble

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

// A Captioner has images described by an endpoint of the service.
type Captioner struct {
	URL, Key string // the service, without its /v2
	Client   *http.Client
	// Sleep waits before a request is made again. Default: time.Sleep.
	Sleep func(time.Duration)
}

// Caption describes one image. A refusal for too many requests is waited out once.
func (c *Captioner) Caption(ctx context.Context, image string) (string, error) {
	res, err := c.ask(ctx, image)
	if err != nil {
		return "", err
	}
	if res.StatusCode == http.StatusTooManyRequests {
		_ = res.Body.Close()
		seconds, err := strconv.Atoi(res.Header.Get("Retry-After"))
		if err != nil {
			return "", fmt.Errorf("captions: Retry-After: %w", err)
		}
		c.sleep(time.Duration(seconds) * time.Second)
		if res, err = c.ask(ctx, image); err != nil {
			return "", err
		}
	}
	defer func() { _ = res.Body.Close() }()
	var job struct {
		Status, Error string
		Output        struct{ Text string }
	}
	if err := json.NewDecoder(io.LimitReader(res.Body, 32<<20)).Decode(&job); err != nil {
		return "", fmt.Errorf("captions: %s: %w", res.Status, err)
	}
	if job.Status != "COMPLETED" {
		return "", fmt.Errorf("captions: job %s: %s", job.Status, job.Error)
	}
	return job.Output.Text, nil
}

func (c *Captioner) ask(ctx context.Context, image string) (*http.Response, error) {
	body, err := json.Marshal(map[string]any{"input": map[string]string{"image": image}})
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, c.URL+"/v2/captions/runsync", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	r.Header.Set("Authorization", "Bearer "+c.Key)
	return c.Client.Do(r)
}

func (c *Captioner) sleep(d time.Duration) {
	if c.Sleep != nil {
		c.Sleep(d)
		return
	}
	time.Sleep(d)
}
