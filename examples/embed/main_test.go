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
	mux, err := routes(ctx, "secret")
	if err != nil {
		fmt.Println(err)
		return
	}
	srv := httptest.NewServer(mux)
	defer srv.Close()

	own, err := http.Get(srv.URL + "/main.go")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer own.Body.Close()
	page, _ := io.ReadAll(own.Body)
	fmt.Println("its own files:", strings.Contains(string(page), "package main"))

	req, _ := http.NewRequestWithContext(ctx, http.MethodPost, srv.URL+"/v2/shout/runsync", strings.NewReader(`{"input":{"say":"hello"}}`))
	req.Header.Set("Authorization", "Bearer secret")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer resp.Body.Close()
	var job struct {
		Status string
		Output json.RawMessage
	}
	if err := json.NewDecoder(resp.Body).Decode(&job); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(job.Status, string(job.Output))
	// Output:
	// its own files: true
	// COMPLETED {"SAY":"HELLO"}
}
