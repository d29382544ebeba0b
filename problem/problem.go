// Package problem is how podyard says no.
//
// A domain package returns errors that carry a [Kind]; [Of] turns any error into
// the document a client reads (RFC 9457, with the members of section 2.9 of the
// interface: title, status, detail, errors). An error without a kind is a fault of
// ours: its document says nothing about it, and whoever writes the document logs
// the chain.
//
// [Violations] collects every fault of one request, so that a caller learns all of
// them at once.
package problem

import (
	"errors"
	"fmt"
)

// A Kind is a class of failure; each has one HTTP status (section 7 of the interface).
type Kind uint8

const (
	// Internal is a fault of ours, or an error nobody classified: 500.
	Internal Kind = iota
	// Malformed is a request that does not parse, or breaks a rule across fields: 400.
	Malformed
	// Unauthorized is a missing, malformed, expired or unknown key: 401.
	Unauthorized
	// Forbidden is a valid key without the permission: 403.
	Forbidden
	// NotFound is something that is not there, or belongs to somebody else: 404.
	NotFound
	// NotAllowed is a path that exists, asked with another method: 405.
	NotAllowed
	// Late is a request whose body did not arrive in time: 408.
	Late
	// Conflict is a request that the present state does not allow: 409.
	Conflict
	// TooLarge is a body over its limit: 413.
	TooLarge
	// MediaType is a body in a format that is not read here: 415.
	MediaType
	// Invalid is a body that parses and breaks the schema: 422.
	Invalid
	// Limited is a caller over a quota, a rate or a concurrency limit: 429.
	Limited
	// NotBuilt is a part of the interface that this program does not offer: 501.
	NotBuilt
	// Unavailable is a store or an engine that cannot answer now: 503.
	Unavailable
)

var kinds = [...]struct {
	status int
	title  string
}{
	Internal:     {500, "Internal Server Error"},
	Malformed:    {400, "Bad Request"},
	Unauthorized: {401, "Unauthorized"},
	Forbidden:    {403, "Forbidden"},
	NotFound:     {404, "Not Found"},
	NotAllowed:   {405, "Method Not Allowed"},
	Late:         {408, "Request Timeout"},
	Conflict:     {409, "Conflict"},
	TooLarge:     {413, "Content Too Large"},
	MediaType:    {415, "Unsupported Media Type"},
	Invalid:      {422, "Unprocessable Content"},
	Limited:      {429, "Too Many Requests"},
	NotBuilt:     {501, "Not Implemented"},
	Unavailable:  {503, "Service Unavailable"},
}

// Status is the HTTP status of k.
func (k Kind) Status() int { return kinds[k].status }

// Title is the short summary of k, the reason phrase of its status.
func (k Kind) Title() string { return kinds[k].title }

// An Error is a failure with a text for the client.
//
// Detail and Errors are shown to whoever asked, so they hold no secret and nothing
// of the inside. Err is the cause: it is logged and matched by [errors.Is], never shown.
type Error struct {
	Kind   Kind
	Detail string
	Errors []string // one string per failure of a request, in the order of its fields
	Err    error
}

// New returns a sentinel: compare it with [errors.Is].
func New(k Kind, detail string) *Error { return &Error{Kind: k, Detail: detail} }

// Newf is New with a formatted detail. A %w in the format is matched by [errors.Is]
// and its text becomes part of the detail: wrap only what a client may read.
func Newf(k Kind, format string, args ...any) *Error {
	err := fmt.Errorf(format, args...)
	return &Error{Kind: k, Detail: err.Error(), Err: errors.Unwrap(err)}
}

func (e *Error) Error() string {
	if e.Err != nil && e.Err.Error() != e.Detail && e.Kind == Internal {
		return e.Detail + ": " + e.Err.Error()
	}
	return e.Detail
}

func (e *Error) Unwrap() error { return e.Err }

// A Document is the JSON body of every failed request (section 2.9 of the interface).
type Document struct {
	Title  string   `json:"title"`
	Status int      `json:"status"`
	Detail string   `json:"detail"`
	Errors []string `json:"errors,omitempty"`
}

// Of is what a client is told about err. The outermost *Error in the chain decides;
// without one the answer is a 500 that shows nothing of err. A failure of validation is
// listed in Errors also when it stands alone (section 7 of the interface).
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

// KindOf is the kind of err; Internal when it has none.
func KindOf(err error) Kind {
	var e *Error
	if errors.As(err, &e) {
		return e.Kind
	}
	return Internal
}
