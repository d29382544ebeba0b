// Package problem has the errors that clients see.
//
// A domain package returns errors that carry a [Kind]. [Of] turns any error into the
// document that a client reads (RFC 9457, with the members of docs/interface.md,
// docs/interface.md 2.9: title, status, detail, errors). An error without a kind is a fault
// of the service: its document says nothing about it, and the code that writes the document
// logs the error.
//
// [Violations] collects every fault of one request, so that a client sees all of them at
// once.
package problem

import (
	"errors"
	"fmt"
)

// A Kind is a class of failures. Each kind has one HTTP status
// (docs/interface.md 7).
type Kind uint8

const (
	// Internal is a fault of the service, or an error without a kind: 500.
	Internal Kind = iota
	// BadRequest is a request that does not parse, or breaks a rule across fields: 400.
	BadRequest
	// Unauthorized is a missing, malformed, expired or unknown key: 401.
	Unauthorized
	// Forbidden is a valid key without the permission: 403.
	Forbidden
	// NotFound is something that does not exist or belongs to another user: 404.
	NotFound
	// MethodNotAllowed is a method that the path does not have: 405.
	MethodNotAllowed
	// RequestTimeout is a request whose body did not arrive in time: 408.
	RequestTimeout
	// Conflict is a request that the current state does not allow: 409.
	Conflict
	// TooLarge is a body over its limit: 413.
	TooLarge
	// UnsupportedMediaType is a body in an unsupported format: 415.
	UnsupportedMediaType
	// Invalid is a body that parses and breaks the schema: 422.
	Invalid
	// TooManyRequests is a caller over a quota, a rate or a concurrency limit: 429.
	TooManyRequests
	// NotImplemented is a part of the interface that this program does not support: 501.
	NotImplemented
	// Unavailable is a store or an engine that cannot answer now: 503.
	Unavailable
	// BadGateway is a worker of a load-balancing endpoint that failed in the middle of a
	// request: 502.
	BadGateway
	// WorkerTimeout is such a worker that did not answer in time: 524.
	WorkerTimeout
)

var kinds = [...]struct {
	status int
	title  string
}{
	Internal:             {500, "Internal Server Error"},
	BadRequest:           {400, "Bad Request"},
	Unauthorized:         {401, "Unauthorized"},
	Forbidden:            {403, "Forbidden"},
	NotFound:             {404, "Not Found"},
	MethodNotAllowed:     {405, "Method Not Allowed"},
	RequestTimeout:       {408, "Request Timeout"},
	Conflict:             {409, "Conflict"},
	TooLarge:             {413, "Content Too Large"},
	UnsupportedMediaType: {415, "Unsupported Media Type"},
	Invalid:              {422, "Unprocessable Entity"},
	TooManyRequests:      {429, "Too Many Requests"},
	NotImplemented:       {501, "Not Implemented"},
	Unavailable:          {503, "Service Unavailable"},
	BadGateway:           {502, "Bad Gateway"},
	WorkerTimeout:        {524, "A Timeout Occurred"},
}

// Status returns the HTTP status of k.
func (k Kind) Status() int { return kinds[k].status }

// Title returns the short summary of k, the reason phrase of its status.
func (k Kind) Title() string { return kinds[k].title }

// String returns the title of k, such as "Not Found".
func (k Kind) String() string {
	if int(k) < len(kinds) {
		return kinds[k].title
	}
	return fmt.Sprintf("Kind(%d)", uint8(k))
}

// An Error is a failure with a text for the client.
//
// The client sees Detail and Errors, so they must hold no secret and no internal detail. Err
// is the cause. It is logged and matched by [errors.Is], and never shown.
type Error struct {
	Kind   Kind
	Detail string
	Errors []string // one string per failure of a request, in the order of its fields
	Err    error
	// Permanent says of a problem of kind Unavailable that waiting does not help: somebody has
	// to repair or configure something first.
	Permanent bool
}

// New returns an error to compare with [errors.Is].
func New(k Kind, detail string) *Error { return &Error{Kind: k, Detail: detail} }

// Newf is New with a formatted detail. [errors.Is] matches an error of %w in the format, and
// the text of that error becomes part of the detail, so wrap only what a client may read.
func Newf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Detail: err.Error(), Err: errors.Unwrap(err)}
}

// IsPermanent reports whether err has an Error in its chain that is Permanent.
func IsPermanent(err error) bool {
	for e := (*Error)(nil); errors.As(err, &e); err = e.Err {
		if e.Permanent {
			return true
		}
	}
	return false
}

// Error returns Detail. For Internal it adds the text of the cause.
func (e *Error) Error() string {
	if e.Err != nil && e.Err.Error() != e.Detail && e.Kind == Internal {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// A Document is the JSON body of every failed request (docs/interface.md 2.9).
type Document struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors,omitempty"`
}

// Of returns the document that a client gets for err. The outermost *Error in the chain
// decides. Without one, or with Internal, the document is a 500 that shows nothing of err. An
// Invalid error without Errors lists its detail in Errors.
func Of(err error) Document {
	var e *Error
	if !errors.As(err, &e) || e.Kind == Internal {
		return Document{Title: Internal.Title(), Status: Internal.Status(), Detail: "internal error"}
	}
	d := Document{Title: e.Kind.Title(), Status: e.Kind.Status(), Detail: e.Detail, Errors: e.Errors}
	if e.Kind == Invalid && len(d.Errors) == 0 {
		d.Errors = []string{d.Detail}
	}
	return d
}

// KindOf returns the kind of err, and Internal if it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
