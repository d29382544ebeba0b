package httpapi_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podyard/podyard/backend/disk"
	"github.com/podyard/podyard/backend/memory"
	"github.com/podyard/podyard/httpapi"
	"github.com/podyard/podyard/serverless"
)

// echoHandler serves jobs whose endpoint echo answers at once.
func echoHandler(b *testing.B, q serverless.JobQueue) (*serverless.Service, http.Handler) {
	b.Helper()
	jobs := serverless.New(q, newEndpoints(b), nil)
	run(b, jobs.Run)
	run(b, func(ctx context.Context) error {
		return jobs.Serve(ctx, "echo", serverless.WorkerFunc(func(_ context.Context, t *serverless.Task) ([]byte, error) {
			return t.Input, nil
		}), &serverless.ServeOptions{ID: "worker-1", Concurrency: connections})
	})
	known, err := httpapi.NewKeys(keys(time.Now), time.Now)
	if err != nil {
		b.Fatal(err)
	}
	return jobs, httpapi.NewJobs(jobs, &httpapi.Options{Auth: known})
}

func durableJobs(b *testing.B) serverless.JobQueue {
	b.Helper()
	s, err := disk.Open(b.Context(), b.TempDir(), &disk.Options{Ballast: -1})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	})
	return s.Jobs()
}

// BenchmarkDurableRunSync is BenchmarkRunSync on the store of a disk: each answer is durable.
func BenchmarkDurableRunSync(b *testing.B) {
	_, h := echoHandler(b, durableJobs(b))
	load(b, h, "/v2/echo/runsync", "COMPLETED")
}

// BenchmarkOneRunSync compares the median time of a runsync of one connection on the store of a
// disk with that on memory and with one fdatasync of 4 KB on the same disk, each in turn.
func BenchmarkOneRunSync(b *testing.B) {
	_, inMemory := echoHandler(b, memory.NewJobs())
	_, onDisk := echoHandler(b, durableJobs(b))
	f, err := os.Create(b.TempDir() + "/synced")
	if err != nil {
		b.Fatal(err)
	}
	defer f.Close()
	request := rawRequest("POST", "/v2/echo/runsync", aliceFree, benchBody)
	steps := []func() error{rawDial(b, inMemory).ask(request), rawDial(b, onDisk).ask(request), func() error {
		if _, err := f.Write(make([]byte, 4096)); err != nil {
			return err
		}
		return datasync(f)
	}}
	took := make([][]time.Duration, len(steps))
	for b.Loop() {
		for i, step := range steps {
			began := time.Now()
			if err := step(); err != nil {
				b.Fatal(err)
			}
			took[i] = append(took[i], time.Since(began))
		}
	}
	for i, name := range []string{"us/memory", "us/disk", "us/fdatasync"} {
		b.ReportMetric(float64(quantile(took[i], 0.5).Microseconds()), name)
	}
	bound := quantile(took[0], 0.5) + quantile(took[2], 0.5)*3/2
	b.ReportMetric(float64(quantile(took[1], 0.5))/float64(bound), "of-bound")
}

func quantile(d []time.Duration, q float64) time.Duration {
	slices.Sort(d)
	return d[min(int(q*float64(len(d))), len(d)-1)]
}

// A rawClient is one connection to a server.
type rawClient struct {
	c net.Conn
	r *bufio.Reader
}

// rawDial starts a server for h and returns a connection to it.
func rawDial(b *testing.B, h http.Handler) *rawClient {
	b.Helper()
	s := httptest.NewServer(h)
	b.Cleanup(s.Close)
	return dialServer(b, s)
}

func dialServer(b *testing.B, s *httptest.Server) *rawClient {
	b.Helper()
	c, err := net.Dial("tcp", s.Listener.Addr().String())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = c.Close() })
	return &rawClient{c, bufio.NewReader(c)}
}

// send sends a request and returns the body of its answer, which is valid until the next call.
func (k *rawClient) send(request, buf []byte) ([]byte, error) {
	if _, err := k.c.Write(request); err != nil {
		return nil, err
	}
	status, body, err := readAnswer(k.r, buf)
	if err == nil && status != http.StatusOK {
		err = fmt.Errorf("answer %d %s", status, body)
	}
	return body, err
}

func (k *rawClient) ask(request []byte) func() error {
	return func() error {
		_, err := k.send(request, nil)
		return err
	}
}

// tokenBody is a chunk that says when it was sent.
const tokenBody = `{"output":"%019d"}`

// BenchmarkTokens has 64 workers that post tokens over the worker protocol as fast as they can,
// and 64 readers that poll, on the store of a disk. Compare its posts with those of a handler that
// only reads and parses.
func BenchmarkTokens(b *testing.B) {
	b.Run("bare", func(b *testing.B) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil || !bytes.Contains(body, []byte("output")) {
				return
			}
			w.Header().Set("Content-Type", "application/json")
			w.Header().Set("Content-Length", strconv.Itoa(len(accepted)))
			_, _ = io.WriteString(w, accepted)
		}))
		b.Cleanup(s.Close)
		var posters []func() error
		for range connections {
			request := rawRequest("POST", "/v2/idle/job-stream/w/j", aliceFree, fmt.Sprintf(tokenBody, 0))
			posters = append(posters, dialServer(b, s).ask(request))
		}
		postAll(b, posters)
	})
	b.Run("streams", func(b *testing.B) {
		_, _, posters := streams(b)
		postAll(b, posters)
	})
}

// postAll makes b.N posts.
func postAll(b *testing.B, posters []func() error) {
	var left atomic.Int64
	left.Store(int64(b.N))
	var wg sync.WaitGroup
	b.ResetTimer()
	for _, p := range posters {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if err := p(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "posts/s")
}

// BenchmarkTokenLatency has 64 workers that post 50 tokens a second each. It measures the time
// from a post to the reader.
func BenchmarkTokenLatency(b *testing.B) {
	took, stop, posters := streams(b)
	const gap = time.Second / 50
	var wg sync.WaitGroup
	b.ResetTimer()
	for i, p := range posters {
		wg.Go(func() {
			time.Sleep(gap * time.Duration(i) / connections)
			t := time.NewTicker(gap)
			defer t.Stop()
			for range b.N/connections + 1 {
				<-t.C
				if err := p(); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	b.StopTimer()
	stop()
	for _, q := range []float64{0.5, 0.99} {
		b.ReportMetric(float64(quantile(*took, q).Microseconds())/1000, fmt.Sprintf("ms-p%.0f", 100*q))
	}
}

// streams starts a job, a worker that has it and a reader of its stream for each connection. The
// readers add how long each token took until stop is called, or the benchmark ends.
func streams(b *testing.B) (took *[]time.Duration, stop func(), posters []func() error) {
	b.Helper()
	jobs, h := echoHandler(b, durableJobs(b))
	s := httptest.NewServer(h)
	var readers sync.WaitGroup
	var over atomic.Bool
	var mu sync.Mutex
	took = new([]time.Duration)
	stop = func() { over.Store(true); s.CloseClientConnections(); readers.Wait() }
	b.Cleanup(func() { stop(); s.Close() })
	for i := range connections {
		j, err := jobs.Submit(b.Context(), "alice", "idle", serverless.Request{Input: []byte(`{}`)})
		if err != nil {
			b.Fatal(err)
		}
		id := serverless.WorkerID(fmt.Sprint("w", i))
		key := jobs.WorkerKey("idle", id)
		worker, reader := dialServer(b, s), dialServer(b, s)
		got, err := worker.send(rawRequest("GET", fmt.Sprintf("/v2/idle/job-take/%s", id), key, ""), nil)
		if err != nil || !bytes.Contains(got, []byte(j.ID)) {
			b.Fatalf("job-take: %s %v, want job %s", got, err, j.ID)
		}
		var buf []byte
		posters = append(posters, func() error {
			body := fmt.Sprintf(tokenBody, time.Now().UnixNano())
			_, err := worker.send(rawRequest("POST", fmt.Sprintf("/v2/idle/job-stream/%s/%s", id, j.ID), key, body), buf)
			return err
		})
		readers.Go(func() {
			var mine []time.Duration
			request := rawRequest("GET", "/v2/idle/stream/"+string(j.ID), aliceFree, "")
			buf := make([]byte, 0, 1<<16)
			for !over.Load() {
				body, err := reader.send(request, buf)
				if err != nil {
					break
				}
				mine = appendAges(mine, body, time.Now())
			}
			mu.Lock()
			defer mu.Unlock()
			*took = append(*took, mine...)
		})
	}
	return took, stop, posters
}

// appendAges appends the ages of the tokens in a part of a stream.
func appendAges(list []time.Duration, body []byte, now time.Time) []time.Duration {
	const before = `"output":"`
	for {
		_, rest, ok := bytes.Cut(body, []byte(before))
		if !ok {
			return list
		}
		at, err := strconv.ParseInt(string(rest[:19]), 10, 64)
		if err != nil {
			return list
		}
		list, body = append(list, now.Sub(time.Unix(0, at))), rest
	}
}
