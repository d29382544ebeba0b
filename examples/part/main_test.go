package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
)

func Example() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	part, err := open(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = part.Run(ctx) }()
	srv := httptest.NewServer(handler(part))
	defer srv.Close()
	ask := func(method, path, key, body string) {
		req, _ := http.NewRequestWithContext(ctx, method, srv.URL+path, strings.NewReader(body))
		req.Header.Set("Authorization", "Bearer "+key)
		req.Header.Set("Content-Type", "application/json")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			fmt.Println(err)
			return
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		var pod struct{ Name, Status, Detail string }
		_ = json.Unmarshal(text, &pod)
		fmt.Println(strings.TrimSpace(fmt.Sprintln(method, path, resp.StatusCode, pod.Name+pod.Detail, pod.Status)))
	}

	ask("GET", "/v2/orders", "", "")
	ask("POST", "/gpu/v2/pods", "ann-session", `{"name":"train","image":"pytorch","gpu":{"id":"NVIDIA GeForce RTX 4090"}}`)
	ask("POST", "/gpu/v2/pods", "stolen", `{}`)
	ask("GET", "/gpu/v2/registries", "ann-session", "")
	ask("GET", "/v2/pods", "ann-session", "")
	// Output:
	// GET /v2/orders 204
	// POST /gpu/v2/pods 201 train PROVISIONING
	// POST /gpu/v2/pods 401 invalid or expired token
	// GET /gpu/v2/registries 404 The requested path was not found.
	// GET /v2/pods 404
}
