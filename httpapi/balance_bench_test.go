package httpapi_test

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"testing"
)

// BenchmarkBalance compares a request to a worker that echoes its body, at 64 connections, with
// httputil.ReverseProxy alone in front of the same worker.
func BenchmarkBalance(b *testing.B) {
	worker := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		_, _ = w.Write(body)
	}))
	b.Cleanup(worker.Close)
	at, err := url.Parse(worker.URL)
	if err != nil {
		b.Fatal(err)
	}
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		proxy := &httputil.ReverseProxy{
			Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(at) },
			Transport: &http.Transport{MaxIdleConnsPerHost: 1024},
		}
		exchange(b, proxy, "/echo")
	})
	b.Run("balanced", func(b *testing.B) {
		b.ReportAllocs()
		w := newTestAPI(b, nil)
		if err := w.jobs.EnsureBalanced(b.Context(), "web"); err != nil {
			b.Fatal(err)
		}
		run(b, func(ctx context.Context) error {
			return w.jobs.ServeRequests(ctx, "web", func(ctx context.Context) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
			}, nil)
		})
		exchange(b, w.handler, "/lb/web/echo")
	})
}

// exchange posts 1 KB at 64 connections.
func exchange(b *testing.B, h http.Handler, path string) {
	b.Helper()
	srv := httptest.NewServer(h)
	b.Cleanup(srv.Close)
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, MaxConnsPerHost: 64}}
	body := strings.Repeat("x", 1024)
	b.SetParallelism(64)
	b.ResetTimer()
	b.RunParallel(func(p *testing.PB) {
		for p.Next() {
			r, err := http.NewRequestWithContext(b.Context(), http.MethodPost, srv.URL+path, strings.NewReader(body))
			if err != nil {
				b.Error(err)
				return
			}
			r.Header.Set("Authorization", aliceFree)
			res, err := client.Do(r)
			if err != nil {
				b.Error(err)
				return
			}
			n, err := io.Copy(io.Discard, res.Body)
			if err != nil || n != 1024 || res.StatusCode != http.StatusOK {
				b.Errorf("answer %d with %d bytes, %v", res.StatusCode, n, err)
			}
			_ = res.Body.Close()
		}
	})
}
