package client_test

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/podyard/podyard/httpapi/apitest"
	"github.com/podyard/podyard/httpapi/client"
)

// A cutter is a server whose connections break after some bytes of a body, as often as breaks
// says.
type cutter struct {
	http.Handler
	after    int
	breaks   atomic.Int64
	requests sync.Map // path to *atomic.Int64
}

func (c *cutter) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n, _ := c.requests.LoadOrStore(r.URL.Path, new(atomic.Int64))
	n.(*atomic.Int64).Add(1)
	if c.breaks.Add(-1) >= 0 {
		w = &cutWriter{ResponseWriter: w, left: c.after}
	}
	c.Handler.ServeHTTP(w, r)
}

func (c *cutter) count(path string) int64 {
	n, ok := c.requests.Load(path)
	if !ok {
		return 0
	}
	return n.(*atomic.Int64).Load()
}

type cutWriter struct {
	http.ResponseWriter
	left int
}

func (w *cutWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

func (w *cutWriter) Write(b []byte) (int, error) {
	if w.left >= len(b) {
		w.left -= len(b)
		return w.ResponseWriter.Write(b)
	}
	_, _ = w.ResponseWriter.Write(b[:w.left])
	_ = http.NewResponseController(w.ResponseWriter).Flush()
	panic(http.ErrAbortHandler) // closes the socket
}

// cutting returns a client of a server whose first answers break.
func cutting(t *testing.T, s *apitest.Server, after, breaks int, additions bool) (*client.Client, *cutter) {
	t.Helper()
	c := &cutter{Handler: s.Double.Handler(), after: after}
	c.breaks.Store(int64(breaks))
	srv := httptest.NewServer(c)
	t.Cleanup(srv.Close)
	return newClient(t, s, func(o *client.Options) {
		o.URL, o.Additions, o.Retry = srv.URL, additions, client.Retry{First: time.Millisecond, Longest: 5 * time.Millisecond}
	}), c
}

func TestAnswerThatBreaksOffIsAskedForAgain(t *testing.T) {
	s := apitest.Start(t)
	c, srv := cutting(t, s, 30, 3, false)
	gpus, err := c.Catalog.GPUs(t.Context(), client.StockQuery{})
	if err != nil || len(gpus) == 0 || srv.count("/v2/catalog/gpus") != 4 {
		t.Errorf("%d types after %d requests, %v, want all after 4", len(gpus), srv.count("/v2/catalog/gpus"), err)
	}
}

func TestSubmitThatBreaksOffIsRepeatedOnlyWithAKey(t *testing.T) {
	s := apitest.Start(t)
	s.Queue("q")
	c, srv := cutting(t, s, 10, 1, false)
	if _, err := c.Jobs("q").Submit(t.Context(), client.JobRequest{}); !errors.Is(err, io.ErrUnexpectedEOF) || srv.count("/v2/q/run") != 1 {
		t.Errorf("Submit without a key = %v after %d requests, want an error after one", err, srv.count("/v2/q/run"))
	}
	c, srv = cutting(t, s, 10, 1, true)
	j, err := c.Jobs("q").Submit(t.Context(), client.JobRequest{})
	if err != nil || j.ID == "" || srv.count("/v2/q/run") != 2 {
		t.Errorf("Submit with a key = %+v, %v after %d requests, want a job after two", j, err, srv.count("/v2/q/run"))
	}
	if h, err := c.Jobs("q").Health(t.Context()); err != nil || h.Jobs.InQueue != 2 {
		t.Errorf("%d jobs, %v, want one of each call", h.Jobs.InQueue, err)
	}
	c, srv = cutting(t, s, 10, 2, true)
	if _, err := c.Volumes.Create(t.Context(), client.Volume{Name: "v", Size: 10, DataCenter: "US-KS-2"}); err != nil {
		t.Fatal(err)
	}
	if list, err := c.Volumes.List(t.Context()); err != nil || len(list) != 1 || srv.count("/v2/network-volumes") != 4 {
		t.Errorf("%d volumes, %v, after %d requests, want one after three creates and a list", len(list), err, srv.count("/v2/network-volumes"))
	}
}

func TestStreamThatBreaksOffSaysSo(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").Stream("a", "b")
	c, srv := cutting(t, s, 10, 0, false)
	j, err := c.Jobs("e").Submit(t.Context(), client.JobRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Second)
	srv.breaks.Store(1)
	_, err = first(c.Jobs("e").Stream(t.Context(), j.ID))
	if !errors.Is(err, io.ErrUnexpectedEOF) || srv.count("/v2/e/stream/"+j.ID) != 1 {
		t.Errorf("the stream = %v after %d requests, want an error after one", err, srv.count("/v2/e/stream/"+j.ID))
	}
}

func TestStreamOfAJobThatFailsEndsWithItsError(t *testing.T) {
	s := apitest.Start(t)
	s.Endpoint("e").Fail("no")
	c := newClient(t, s, nil)
	j, err := c.Jobs("e").Submit(t.Context(), client.JobRequest{})
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Second)
	_, err = first(c.Jobs("e").Stream(t.Context(), j.ID))
	var failed *client.JobError
	if !errors.As(err, &failed) || failed.Job.Error != "no" {
		t.Errorf("the stream = %v, want the error of the job", err)
	}
}

// A follower that loses its connection again and again gets every line once, in order, and
// ends when the pod is terminated.
func TestLogFollowersGoOnAfterBrokenConnections(t *testing.T) {
	s := apitest.Start(t)
	c, srv := cutting(t, s, 500, 0, false) // some lines each
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	pod, err := c.Pods.Create(ctx, newPod)
	if err != nil {
		t.Fatal(err)
	}
	s.Advance(time.Minute)
	for range 5 {
		for _, act := range []func(context.Context, string) (client.Pod, error){c.Pods.Stop, c.Pods.Start} {
			if _, err := act(ctx, pod.ID); err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Minute)
		}
	}
	var whole []string
	for range 30 { // of a second: until all lines are there, and none is new
		before := len(whole)
		if whole = follow(t, ctx, c, pod.ID, 40); before >= 15 && len(whole) == before {
			break
		}
	}
	if len(whole) < 15 {
		t.Fatalf("the log has only %d lines", len(whole))
	}
	n := 0
	srv.breaks.Store(1 << 30)
	var got []string
	for l, err := range c.Pods.Logs(ctx, pod.ID, &client.LogOptions{Tail: new(1000)}) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, l.ID)
		if n++; n == len(whole) {
			srv.breaks.Store(0)
			if err := c.Pods.Terminate(ctx, pod.ID); err != nil {
				t.Fatal(err)
			}
			s.Advance(time.Minute)
		}
	}
	if len(got) < len(whole) || !slices.Equal(got[:len(whole)], whole) {
		t.Errorf("%d lines with broken connections are not the %d without:\n%q\n%q", len(got), len(whole), got, whole)
	}
	if n := srv.count("/v2/pods/" + pod.ID + "/logs"); n < 10 {
		t.Errorf("only %d connections", n)
	}
}

// follow returns the ids of the lines that a pod has.
func follow(t *testing.T, ctx context.Context, c *client.Client, pod string, most int) (ids []string) { //nolint:revive // t first, as in other tests
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for l, err := range c.Pods.Logs(ctx, pod, &client.LogOptions{Tail: new(1000)}) {
		if err != nil {
			return ids
		}
		if ids = append(ids, l.ID); len(ids) == most {
			return ids
		}
	}
	return ids
}

func TestConnectionThatIsSilentIsMadeAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []string
		began := time.Now()
		rt := roundTrip(func(r *http.Request) (*http.Response, error) {
			at = append(at, strconv.Itoa(int(time.Since(began).Seconds()))+" "+r.Header.Get("Last-Event-ID"))
			from, to := io.Pipe()
			go func() {
				_, _ = io.WriteString(to, ": hello\n\nid: x/"+strconv.Itoa(len(at))+"\ndata: {\"line\":\"l\"}\n\n")
				<-r.Context().Done()
				to.CloseWithError(r.Context().Err())
			}()
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: from, Request: r}, nil
		})
		c, err := client.New(&client.Options{URL: "http://podyard.test", HTTP: &http.Client{Transport: rt}})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for l, err := range c.Pods.Logs(t.Context(), "p", nil) {
			if err != nil || l.Text != "l" {
				t.Fatalf("%+v, %v", l, err)
			}
			if n++; n == 3 {
				break
			}
		}
		if len(at) != 3 || at[0] != "0 " || at[1][:3] != "60 " && at[1][:3] != "61 " || at[2][len(at[2])-3:] != "x/2" {
			t.Errorf("connections at seconds, with their cursors: %q", at)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
