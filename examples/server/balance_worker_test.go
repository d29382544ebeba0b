package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"time"
)

// balanceWorkerEnv makes this test binary a worker of a load-balancing endpoint.
const balanceWorkerEnv = "TEST_BALANCE_WORKER"

// balanceWorker serves until the process ends.
func balanceWorker() error {
	id := os.Getenv("RUNPOD_POD_ID")
	mux := http.NewServeMux()
	mux.HandleFunc("/ping", func(http.ResponseWriter, *http.Request) {})
	mux.HandleFunc("/who", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, id) })
	mux.HandleFunc("/echo", func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) })
	var slow atomic.Int64 // requests that have come
	mux.HandleFunc("/slow/count", func(w http.ResponseWriter, _ *http.Request) { _, _ = fmt.Fprint(w, slow.Load()) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
		slow.Add(1)
		d, _ := time.ParseDuration(r.URL.Query().Get("for"))
		time.Sleep(d)
		_, _ = io.WriteString(w, id)
	})
	mux.HandleFunc("/exit", func(http.ResponseWriter, *http.Request) { os.Exit(3) })
	mux.HandleFunc("/socket", func(w http.ResponseWriter, _ *http.Request) {
		c, rw, err := http.NewResponseController(w).Hijack()
		if err != nil {
			return
		}
		defer c.Close()
		_, _ = rw.WriteString("HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		_ = rw.Flush()
		_, _ = io.Copy(c, rw)
	})
	mux.HandleFunc("/headers", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Add("Set-Cookie", "theme=dark; Path=/; domain=localhost; HttpOnly")
		w.Header().Set("Clear-Site-Data", `"cookies"`)
		w.WriteHeader(http.StatusEarlyHints)
		_, _ = fmt.Fprintf(w, "%s %q %q", r.Host, r.Header.Get("Cookie"), r.Header.Get("Podyard-Key")+r.Header.Get("X-Real-Ip"))
	})
	mux.HandleFunc("/events", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		for part := range strings.FieldsSeq("one two three") {
			_, _ = io.WriteString(w, "data: "+part+"\n\n")
			_ = http.NewResponseController(w).Flush()
			time.Sleep(50 * time.Millisecond)
		}
	})
	return http.ListenAndServe("127.0.0.1:"+os.Getenv("PORT"), mux)
}
