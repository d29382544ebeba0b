package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"

	"github.com/podyard/podyard/problem"
	"github.com/podyard/podyard/ratelimit"
)

// An errorForm is the form of errors on the wire.
type errorForm uint8

const (
	problemForm errorForm = iota // problem documents
	sdkForm                      // problem documents with a member error, which the SDKs read
	openAIForm                   // OpenAI's
)

// WriteProblem answers a request with problem.Of(err), so that a program's own middleware
// can answer errors as the handlers do. It does not log.
func WriteProblem(w http.ResponseWriter, err error) {
	d := problem.Of(err)
	setRetryAfter(w.Header(), d.Status, err)
	writeProblem(w, d.Status, d)
}

// unavailableTime is how many seconds a client should wait if a store or an engine is not
// available: the server tries both again every few seconds.
const unavailableTime = "5"

// setRetryAfter sets Retry-After if a retry can help and the header is not set.
func setRetryAfter(h http.Header, status int, err error) {
	var full interface {
		error
		RetryAfter() int // of budget.Error and budget.CostError
	}
	if errors.As(err, &full) && full.RetryAfter() > 0 {
		h.Set("Retry-After", strconv.Itoa(full.RetryAfter()))
		return
	}
	if status == http.StatusServiceUnavailable && h.Get("Retry-After") == "" && !problem.IsPermanent(err) {
		h.Set("Retry-After", unavailableTime)
	}
}

// write answers an error in the router's form.
func (x *router) write(w http.ResponseWriter, err error) {
	d := problem.Of(err)
	setRetryAfter(w.Header(), d.Status, err)
	switch x.form {
	case openAIForm:
		writeBody(w, d.Status, "application/json", openaiError(d.Status, inOneText(&d)))
	case sdkForm:
		writeProblem(w, d.Status, struct {
			problem.Document
			Error string `json:"error"`
		}{d, inOneText(&d)})
	default:
		writeProblem(w, d.Status, d)
	}
}

// inOneText returns all that is wrong, for clients that show one text and not the list.
func inOneText(d *problem.Document) string {
	if len(d.Errors) > 0 {
		return strings.Join(d.Errors, "; ")
	}
	return d.Detail
}

func writeProblem(w http.ResponseWriter, status int, doc any) {
	b, err := json.Marshal(doc)
	if err != nil {
		b = nil // impossible: it has strings and a number
	}
	writeBody(w, status, "application/problem+json", b)
}

// writeJSON answers 200, or another success.
func writeJSON(w http.ResponseWriter, status int, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	writeBody(w, status, "application/json", b)
	return nil
}

// writeRecord answers 200 with the body of a record, or returns err.
func writeRecord[T, B any](c *call, record T, err error, body func(T) B) error {
	if err != nil {
		return err
	}
	return writeJSON(c.w, http.StatusOK, body(record))
}

// writeMade answers 201 with the body of a record that the request has made, or returns err.
func writeMade[T, B any](c *call, record T, id string, err error, body func(T) B) error {
	if err != nil {
		return err
	}
	c.made = id
	return writeJSON(c.w, http.StatusCreated, body(record))
}

// noContent answers 204, or returns err.
func (c *call) noContent(err error) error {
	if err == nil {
		c.w.WriteHeader(http.StatusNoContent)
	}
	return err
}

func writeBody(w http.ResponseWriter, status int, mediaType string, b []byte) {
	writeHeaders(w, status, mediaType, len(b))
	_, _ = w.Write(b) // if this fails, the client is gone
}

// writeHeaders begins an answer of n bytes.
func writeHeaders(w http.ResponseWriter, status int, mediaType string, n int) {
	h, v := w.Header(), [...]string{mediaType, strconv.Itoa(n), "no-store", "nosniff"}
	// Set would allocate for each.
	h["Content-Type"], h["Content-Length"] = v[0:1:1], v[1:2:2]
	h["Cache-Control"], h["X-Content-Type-Options"] = v[2:3:3], v[3:4:4]
	w.WriteHeader(status)
}

// setJSON writes the headers of a JSON document whose length is not known yet.
func setJSON(h http.Header) {
	h.Set("Content-Type", "application/json")
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
}

// setEventStream writes the headers of server-sent events, which no proxy should buffer.
func setEventStream(h http.Header) {
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-cache")
	h.Set("X-Accel-Buffering", "no")
}

// setLimits writes the headers of quotas and rates (docs/interface.md 7).
func setLimits(h http.Header, d ratelimit.Decision) {
	if len(d.States) > 0 {
		h.Set("RateLimit", d.RateLimit())
		h.Set("RateLimit-Policy", d.RateLimitPolicy())
	}
	if !d.OK {
		h.Set("Retry-After", strconv.Itoa(d.RetryAfter))
	}
}

func limited(d ratelimit.Decision) error {
	return problem.New(problem.TooManyRequests, d.Detail)
}
