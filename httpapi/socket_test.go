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
	"strings"
	"testing"
	"time"

	"github.com/podyard/podyard/internal/suite"
)

// serve serves a testAPI on a socket.
func serve(t *testing.T) (*testAPI, *httptest.Server) {
	t.Helper()
	w := newTestAPI(t, nil)
	s := httptest.NewServer(w.handler)
	t.Cleanup(s.Close)
	return w, s
}

// sized lists the operations with a body and their size limits.
var sized = []struct {
	path  string
	limit int
	small string // a valid body, or one with an error other than its size
	want  int
}{
	{"/v2/registries", 64 << 10, `{"name":"n","username":"u","password":"p"}`, 201},
	{"/v2/templates", 1 << 20, `{"name":"n","image":"i"}`, 201},
	{"/v2/pods", 102_400, `{}`, 422},
	{"/v2/idle/run", 10 << 20, `{"input":{}}`, 200},
	{"/v2/echo/runsync", 20 << 20, `{"input":{}}`, 200},
}

// padded returns body with white space up to n bytes.
func padded(body string, n int) []byte {
	return append(bytes.Repeat([]byte(" "), n-len(body)), body...)
}

func post(t *testing.T, url string, body io.Reader) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+aliceFree)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatalf("POST %s: %v", url, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("POST %s: read the answer: %v", url, err)
	}
	return res.StatusCode, string(b)
}

func TestBodyOfTheLimitIsTakenAndOneByteMoreIsNot(t *testing.T) {
	w, s := serve(t)
	for _, op := range sized {
		if got, body := post(t, s.URL+op.path, bytes.NewReader(padded(op.small, op.limit))); got != op.want {
			t.Errorf("POST %s of the limit = %d %s, want %d", op.path, got, body, op.want)
		}
		before := w.call("GET", "/v2/idle/health", "").body
		want := fmt.Sprintf("the body is larger than %d bytes (", op.limit)
		for how, body := range map[string]io.Reader{
			"with its length": bytes.NewReader(padded(op.small, op.limit+1)),
			"in chunks":       io.MultiReader(bytes.NewReader(padded(op.small, op.limit+1))), // without a Content-Length
		} {
			if got, answer := post(t, s.URL+op.path, body); got != 413 || !strings.Contains(answer, want) {
				t.Errorf("POST %s %s = %d %s, want 413 %s", op.path, how, got, answer, want)
			}
		}
		if after := w.call("GET", "/v2/idle/health", "").body; after != before {
			t.Errorf("POST %s of too much changed %s to %s", op.path, before, after)
		}
	}
}

// A rawConn is a client that writes the whole request before it reads. The client of
// net/http does both at once, and many clients do not.
type rawConn struct {
	net.Conn
	*bufio.Reader
}

func dial(t *testing.T, s *httptest.Server) rawConn {
	t.Helper()
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return rawConn{c, bufio.NewReader(c)}
}

func (c rawConn) send(t testing.TB, s string) {
	t.Helper()
	if _, err := io.WriteString(c.Conn, s); err != nil {
		t.Fatalf("the client sees %v while it writes", err)
	}
}

func (c rawConn) answer(t testing.TB) (*http.Response, string) {
	t.Helper()
	res, err := http.ReadResponse(c.Reader, nil)
	if err != nil {
		t.Fatalf("the client sees %v instead of an answer", err)
	}
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatalf("the client sees %v in the answer", err)
	}
	return res, string(b)
}

const rawHead = "POST /v2/registries HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + aliceFree + "\r\n"

func TestClientThatWritesFirstReadsTheAnswerToABodyThatIsTooLarge(t *testing.T) {
	_, s := serve(t)
	const size = 40<<20 - 1 // more than socket buffers hold
	body := strings.Repeat(" ", size)
	head := strings.Replace(rawHead, "/v2/registries", "/v2/echo/runsync", 1)
	for how, request := range map[string]string{
		"with its length": fmt.Sprintf("Content-Length: %d\r\n\r\n%s", size, body),
		"in one chunk":    fmt.Sprintf("Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", size, body),
	} {
		c := dial(t, s)
		c.send(t, head+request)
		res, answer := c.answer(t)
		if res.StatusCode != http.StatusRequestEntityTooLarge || !res.Close || !strings.Contains(answer, `"status":413`) {
			t.Errorf("%s: %d, close %v, %s", how, res.StatusCode, res.Close, answer)
		}
		if _, err := c.ReadByte(); err != io.EOF {
			t.Errorf("%s: after the answer comes %v, want EOF", how, err)
		}
	}
}

func TestClientThatAsksFirstIsToldWithoutSending(t *testing.T) {
	_, s := serve(t)
	c := dial(t, s)
	c.send(t, rawHead+"Content-Length: 1048577\r\nExpect: 100-continue\r\n\r\n")
	if res, body := c.answer(t); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("too much, asked first = %d %s, want 413", res.StatusCode, body)
	}
	for why, head := range map[string]string{
		"a wrong media type": rawHead + "Content-Type: text/plain\r\n",
		"an unknown key":     strings.Replace(rawHead, aliceFree, "nobody", 1),
		"no such path":       strings.Replace(rawHead, "/v2/registries", "/v2/nothing/of/this", 1),
	} {
		c := dial(t, s)
		c.send(t, head+"Content-Length: 42\r\nExpect: 100-continue\r\n\r\n")
		if res, body := c.answer(t); res.StatusCode < 400 {
			t.Errorf("%s, asked first = %d %s", why, res.StatusCode, body)
		}
	}
	c = dial(t, s)
	c.send(t, rawHead+"Content-Length: 42\r\nExpect: 100-continue\r\n\r\n")
	if res, _ := c.answer(t); res.StatusCode != http.StatusContinue {
		t.Fatalf("what is fine, asked first = %d, want 100", res.StatusCode)
	}
	c.send(t, `{"name":"n","username":"u","password":"p"}`)
	if res, body := c.answer(t); res.StatusCode != http.StatusCreated {
		t.Errorf("and then = %d %s, want 201", res.StatusCode, body)
	}
}

func TestClientThatWasToldToSendReadsTheAnswerToABodyThatIsTooLarge(t *testing.T) {
	_, s := serve(t)
	c := dial(t, s)
	c.send(t, rawHead+"Transfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n")
	if res, _ := c.answer(t); res.StatusCode != http.StatusContinue {
		t.Fatalf("a body of unknown length, asked first = %d, want 100", res.StatusCode)
	}
	const size = 2<<20 - 1
	c.send(t, fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", size, strings.Repeat(" ", size)))
	if res, body := c.answer(t); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("the answer = %d %s, want 413", res.StatusCode, body)
	}
}

func TestClientThatStallsInABodyThatIsTooLargeIsAnswered(t *testing.T) {
	suite.SkipUnlessLong(t)
	_, s := serve(t)
	c := dial(t, s)
	c.send(t, rawHead+"Content-Length: 1048577\r\n\r\n{")
	if res, body := c.answer(t); res.StatusCode != http.StatusRequestEntityTooLarge {
		t.Errorf("the answer = %d %s, want 413", res.StatusCode, body)
	}
}

func TestBodyThatEndsEarlyIsRefused(t *testing.T) {
	_, s := serve(t)
	for why, request := range map[string]string{
		"shorter than it said":        "Content-Length: 50\r\n\r\n{\"name\":\"n\"",
		"no last chunk":               "Transfer-Encoding: chunked\r\n\r\n5\r\n{\"nam\r\n",
		"a chunk that is no chunk":    "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
		"a chunk that is not as long": "Transfer-Encoding: chunked\r\n\r\n2\r\n{}{}\r\n0\r\n\r\n",
	} {
		c := dial(t, s)
		c.send(t, rawHead+request)
		if err := c.Conn.(*net.TCPConn).CloseWrite(); err != nil {
			t.Fatal(err)
		}
		if res, body := c.answer(t); res.StatusCode != http.StatusBadRequest || !strings.Contains(body, "the body ended early") {
			t.Errorf("%s = %d %s, want 400", why, res.StatusCode, body)
		}
	}
	if got, body := post(t, s.URL+"/v2/registries", nil); got != 400 {
		t.Errorf("no body = %d %s, want 400", got, body)
	}
}

func TestConnectionServesMoreThanOneRequest(t *testing.T) {
	_, s := serve(t)
	c := dial(t, s)
	get := "GET /v2/registries HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + aliceFree + "\r\n\r\n"
	refused := rawHead + "Content-Length: 2\r\n\r\n{}"
	c.send(t, get+refused+strings.Replace(get, "GET", "HEAD", 1)+get)
	for i, want := range []int{200, 422} {
		if res, body := c.answer(t); res.StatusCode != want || res.Close {
			t.Errorf("answer %d = %d %s, close %v, want %d", i, res.StatusCode, body, res.Close, want)
		}
	}
	res, err := http.ReadResponse(c.Reader, &http.Request{Method: http.MethodHead})
	if err != nil || res.StatusCode != http.StatusOK || res.ContentLength != int64(len(`{"registries":[]}`)) {
		t.Fatalf("HEAD = %v, %v", res, err)
	}
	if res, body := c.answer(t); res.StatusCode != http.StatusOK || body != `{"registries":[]}` {
		t.Errorf("after HEAD = %d %s", res.StatusCode, body)
	}
}

func TestPathsAreNeverRedirected(t *testing.T) {
	_, s := serve(t)
	for _, path := range []string{"//v2/pods", "/v2//pods", "/v2/pods/", "/v2/./pods", "/v2/x/../pods", "/v2/pods/..", "/v2/%2e%2e/v2/pods", "*", "/v2/pods/%2F", "//", "/v2/echo/health/"} {
		c := dial(t, s)
		c.send(t, "GET "+path+" HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer "+aliceFree+"\r\n\r\n")
		if res, body := c.answer(t); res.StatusCode != http.StatusNotFound {
			t.Errorf("GET %s = %d %s, want 404", path, res.StatusCode, body)
		}
	}
}

func TestLogIsSentLineByLineWhileItGrows(t *testing.T) {
	w, s := serve(t)
	id := w.want(201, "POST", "/v2/pods", gpuPod).field("id")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/v2/pods/"+id+"/logs?source=container", nil)
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+aliceFree)
	res, err := http.DefaultTransport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() && !strings.Contains(lines.Text(), `"line":"ready"`) {
	}
	if err := lines.Err(); err != nil {
		t.Fatalf("the line of a pod that comes up was not sent: %v", err)
	}
	w.want(204, "DELETE", "/v2/pods/"+id, "")
	for lines.Scan() {
	}
	if err := lines.Err(); err != nil {
		t.Errorf("the stream of a pod that was terminated ends with %v", err)
	}
}
