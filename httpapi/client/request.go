package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// maxAnswer bounds an answer that is read as a whole: a result has at most 20 MB, and a page
// of requests up to a hundred of them.
const maxAnswer = 4 << 30

// A request is one call of an operation, with its repetitions.
type request struct {
	method string
	url    *url.URL
	body   []byte // JSON; nil: none
	key    string // Idempotency-Key; empty: none
	again  repeatable
	accept string
	wrong  error     // the request is not made
	last   string    // Last-Event-ID; empty: none
	trace  [2]string // traceparent and tracestate; empty: none
}

// to returns a request to a path, which has escaped segments and may have a query.
func to(base *url.URL, method, path string, query url.Values) *request {
	u := *base
	u.RawPath = base.EscapedPath() + path
	u.Path, _ = url.PathUnescape(u.RawPath) // segments are escaped by this package
	u.RawQuery = query.Encode()
	r := &request{method: method, url: &u, accept: "application/json"}
	for segment := range strings.SplitSeq(path[1:], "/") {
		if segment == "" || segment == "." || segment == ".." { // another path than the caller means
			r.wrong = fmt.Errorf("client: %s: the id %q", method+" "+path, segment)
		}
	}
	switch method {
	case http.MethodGet, http.MethodPut, http.MethodDelete:
		r.again = always
	}
	return r
}

// with sets the body.
func (r *request) with(body any) (*request, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		return nil, r.failed(err)
	}
	r.body = bytes.TrimSpace(b.Bytes())
	return r, nil
}

// keyed gives the request an idempotency key: the caller's, or one of its own if the server
// has them.
func (c *Client) keyed(r *request, key string) {
	if key == "" && c.additions {
		key = rand.Text()
	}
	if key == "" {
		return
	}
	r.key, r.again = key, always
	if !isVisible(key) {
		r.wrong = fmt.Errorf("client: the idempotency key %q has characters that are not visible ASCII", key)
	}
}

// isVisible reports whether s can be the value of a header.
func isVisible(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return r <= ' ' || r > '~' })
}

// do makes a request, and decodes the answer into out unless it is nil. It returns the header
// of the answer.
func (c *Client) do(ctx context.Context, r *request, out any) (h http.Header, err error) {
	var body []byte
	first := true
	err = c.repeat(ctx, r, func() error {
		res, err := c.send(ctx, r)
		if err != nil {
			if !first && r.method == http.MethodDelete && StatusOf(err) == http.StatusNotFound {
				return nil // an earlier attempt has deleted it
			}
			first = false
			return err
		}
		first = false
		defer closeBody(res)
		h = res.Header
		body, err = io.ReadAll(io.LimitReader(res.Body, maxAnswer))
		return r.failed(err)
	})
	if err != nil || out == nil || len(body) == 0 {
		return h, err
	}
	return h, r.failed(json.Unmarshal(body, out))
}

// send makes one attempt. An answer that is an error is an Error.
func (c *Client) send(ctx context.Context, r *request) (*http.Response, error) {
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, r.url.String(), body)
	if err != nil {
		return nil, r.failed(err)
	}
	for name, value := range map[string]string{
		"Accept": r.accept, "User-Agent": c.agent, "Idempotency-Key": r.key, "Last-Event-ID": r.last, "Traceparent": r.trace[0], "Tracestate": r.trace[1],
	} {
		if value != "" {
			req.Header.Set(name, value)
		}
	}
	c.authorize(req.Header)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, r.failed(err)
	}
	if res.StatusCode < http.StatusBadRequest {
		return res, nil
	}
	defer closeBody(res)
	return nil, errorOf(res)
}

// open makes a request whose answer is read as it comes. The caller closes its body.
func (c *Client) open(ctx context.Context, r *request) (res *http.Response, err error) {
	err = c.repeat(ctx, r, func() (err error) {
		res, err = c.send(ctx, r) //nolint:bodyclose // the caller closes it
		return err
	})
	return res, err
}

// closeBody ends the reading of an answer.
func closeBody(res *http.Response) { _ = res.Body.Close() }

// failed adds the request to an error.
func (r *request) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("client: %s %s: %w", r.method, r.url.Path, err)
}

// get decodes the answer to a GET.
func get[T any](ctx context.Context, c *Client, path string, query url.Values) (out T, err error) {
	_, err = c.do(ctx, to(c.control, http.MethodGet, path, query), &out)
	return out, err
}

// change makes a request of the control API with a body, which may be nil, and decodes the
// answer. A POST is a create, and has an idempotency key.
func change[T any](ctx context.Context, c *Client, method, path string, body any) (out T, err error) {
	r := to(c.control, method, path, nil)
	if body != nil {
		if r, err = r.with(body); err != nil {
			return out, err
		}
	}
	if method == http.MethodPost {
		c.keyed(r, "")
	}
	_, err = c.do(ctx, r, &out)
	return out, err
}

// remove deletes a record.
func (c *Client) remove(ctx context.Context, path string) error {
	_, err := c.do(ctx, to(c.control, http.MethodDelete, path, nil), nil)
	return err
}

// join makes a path of segments, and escapes those after the first.
func join(first string, segments ...string) string {
	for _, s := range segments {
		first += "/" + url.PathEscape(s)
	}
	return first
}

// OpenAPI returns the description of the interface as the server serves it, an OpenAPI
// document (docs/decisions.md 46). It is an addition, and needs no key.
func (c *Client) OpenAPI(ctx context.Context) (json.RawMessage, error) {
	return get[json.RawMessage](ctx, c, "/v2/openapi.json", nil)
}
