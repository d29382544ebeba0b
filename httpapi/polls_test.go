package httpapi_test

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/serverless"
)

// heap returns the size of the live heap in bytes.
func heap() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) + int64(m.StackInuse)
}

func TestTwoThousandWorkersThatWaitCostLessThan60MBAndAskOnce(t *testing.T) {
	const workers, most = 2000, 60 << 20
	w := newTestAPI(t, nil)
	var requests atomic.Int64
	srv := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.handler.ServeHTTP(rw, r)
	}))
	defer srv.Close()
	before := heap()
	for i := range workers {
		id := fmt.Sprint("w", i)
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := fmt.Fprintf(conn, "GET /v2/idle/job-take/%s?gpu=x HTTP/1.1\r\nHost: h\r\nAuthorization: %s\r\n\r\n",
			id, w.jobs.WorkerKey("idle", serverless.WorkerID(id))); err != nil {
			t.Fatal(err)
		}
	}
	ready := func() int {
		h, err := w.jobs.Health(t.Context(), "idle")
		if err != nil {
			t.Fatal(err)
		}
		return h.Workers.Ready
	}
	for deadline := time.Now().Add(time.Minute); ready() < workers; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d workers wait, want %d", ready(), workers)
		}
	}
	cost := heap() - before
	t.Logf("%d workers that wait cost %.1f MB of heap and stacks, their connections' both ends included", workers, float64(cost)/(1<<20))
	if cost > most {
		t.Errorf("%d workers that wait cost %d bytes, want at most %d", workers, cost, most)
	}
	if n := requests.Load(); n != workers {
		t.Errorf("%d requests, want %d: nobody asks twice", n, workers)
	}
}
