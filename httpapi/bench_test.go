package httpapi_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/podyard/podyard/backend/memory"
)

// connections is how many keep-alive connections send requests at once.
const connections = 64

const benchBody = `{"input":{"prompt":"a lighthouse in the fog","steps":30,"seed":42,"size":[512,512],"negative":"people, text, frames"}}`

// benchAnswer has the length of the answer to benchBody.
const benchAnswer = `{"delayTime":0,"executionTime":0,"id":"sync-c6c150a9-1252-4b1c-bc69-c20d48c464e3-u1",` +
	`"output":{"prompt":"a lighthouse in the fog","steps":30,"seed":42,"size":[512,512],"negative":"people, text, frames"},` +
	`"status":"COMPLETED","workerId":"worker-1"}`

// BenchmarkRunSync measures runsync with an echo: submit, take by a worker in this process,
// finish, answer. Compare its requests per second with BenchmarkBare in the same run.
func BenchmarkRunSync(b *testing.B) {
	_, h := echoHandler(b, memory.NewJobs())
	load(b, h, "/v2/echo/runsync", "COMPLETED")
}

// BenchmarkBare only reads, parses and writes the same bytes.
func BenchmarkBare(b *testing.B) {
	load(b, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var v struct {
			Input json.RawMessage `json:"input"`
		}
		if err := json.Unmarshal(body, &v); err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(benchAnswer)))
		_, _ = io.WriteString(w, benchAnswer)
	}), "/v2/echo/runsync", "COMPLETED")
}

// load makes b.N requests over loopback and checks every answer.
func load(b *testing.B, h http.Handler, path, want string) {
	b.Helper()
	s := httptest.NewServer(h)
	defer s.Close()
	request := rawRequest("POST", path, aliceFree, benchBody)
	var conns []net.Conn
	for range connections {
		c, err := net.Dial("tcp", s.Listener.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		defer c.Close()
		conns = append(conns, c)
	}
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ReportAllocs()
	b.ResetTimer()
	for _, c := range conns {
		wg.Go(func() {
			r := bufio.NewReader(c)
			buf := make([]byte, 0, 1024)
			for left.Add(-1) >= 0 {
				if _, err := c.Write(request); err != nil {
					b.Errorf("write: %v", err)
					return
				}
				status, body, err := readAnswer(r, buf)
				if err != nil || status != 200 || !bytes.Contains(body, []byte(want)) {
					b.Errorf("answer %d %s, %v", status, body, err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "requests/s")
}

// rawRequest returns the bytes of a request.
func rawRequest(method, path, key, body string) []byte {
	return fmt.Appendf(nil, "%s %s HTTP/1.1\r\nHost: podyard.test\r\nAuthorization: Bearer %s\r\n"+
		"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", method, path, key, len(body), body)
}

// readAnswer is a cheap client, so that the benchmark measures the server.
func readAnswer(r *bufio.Reader, buf []byte) (status int, body []byte, err error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		return 0, nil, err
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, nil, err
	}
	length := 0
	for {
		if line, err = r.ReadSlice('\n'); err != nil {
			return 0, nil, err
		}
		if len(line) <= 2 {
			break
		}
		if v, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
			if length, err = strconv.Atoi(string(bytes.TrimSpace(v))); err != nil {
				return 0, nil, err
			}
		}
	}
	body = append(buf[:0], make([]byte, length)...)
	_, err = io.ReadFull(r, body)
	return status, body, err
}
