package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// An Error is an answer that is an error (docs/interface.md 2.9).
type Error struct {
	Method, Path string // of the request, without its query
	Status       int
	Title        string
	Detail       string
	Errors       []string // one for each fault of the request
	// RequestID is the header X-Request-Id, which proxies and the hosted service send.
	RequestID string
	// RetryAfter is how long the server asks to wait; 0 if it does not say.
	RetryAfter time.Duration
}

// Error has the request, the status and what is wrong.
func (e *Error) Error() string {
	text := e.Detail
	if len(e.Errors) > 0 {
		text = strings.Join(e.Errors, "; ")
	}
	s := fmt.Sprintf("client: %s %s: %d %s", e.Method, e.Path, e.Status, e.Title)
	if text != "" {
		s += ": " + text
	}
	return s
}

// StatusOf returns the status of the Error in the chain of err, or 0.
func StatusOf(err error) int {
	var e *Error
	if errors.As(err, &e) {
		return e.Status
	}
	return 0
}

const maxErrorBody = 1 << 20

// errorOf reads an answer that is an error.
func errorOf(res *http.Response) *Error {
	e := &Error{
		Method: res.Request.Method, Path: res.Request.URL.Path, Status: res.StatusCode, Title: http.StatusText(res.StatusCode),
		RequestID: res.Header.Get("X-Request-Id"), RetryAfter: retryAfter(res.Header.Get("Retry-After"), res.Header.Get("Date")),
	}
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // the status says enough
	var doc struct {
		Title  string
		Detail string
		Errors []string
		Error  json.RawMessage // a text, or OpenAI's object
	}
	if json.Unmarshal(body, &doc) != nil {
		return e
	}
	if doc.Title != "" {
		e.Title = doc.Title
	}
	e.Detail, e.Errors = doc.Detail, doc.Errors
	if e.Detail == "" {
		var inner struct{ Message string }
		if json.Unmarshal(doc.Error, &e.Detail) != nil && json.Unmarshal(doc.Error, &inner) == nil {
			e.Detail = inner.Message
		}
	}
	return e
}

// retryAfter reads both forms of the header: seconds, and a date, which counts from the
// date of the answer.
func retryAfter(value, date string) time.Duration {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return time.Duration(max(0, min(n, 1<<31))) * time.Second
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0
	}
	now, err := http.ParseTime(date)
	if err != nil {
		now = time.Now()
	}
	return max(0, at.Sub(now))
}
