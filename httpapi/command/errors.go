package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"

	"github.com/podyard/podyard/httpapi/client"
)

// Exit codes of a program with commands. Scripts may rely on them.
const (
	ExitFailed      = 1   // the server refused it, or what was waited for has failed
	ExitUsage       = 2   // the command line is wrong
	ExitNotFound    = 3   // there is no such record, or it is somebody else's
	ExitUnreachable = 4   // no server answers, or it takes no work now
	ExitDenied      = 5   // the key is unknown, or has not the scope
	ExitInterrupted = 130 // Ctrl-C
)

// An Error is an error with an exit code.
type Error struct {
	Code int
	Err  error
}

// Error returns the text of Err without what could move the cursor of a terminal: it may be
// that of a worker or of another user.
func (e *Error) Error() string { return cleanLines(e.Err.Error()) }

// Unwrap returns Err.
func (e *Error) Unwrap() error { return e.Err }

// Code returns the exit code for an error of Program.Run: 0 for nil, and ExitFailed for an
// error without another code.
func Code(err error) int {
	var e *Error
	switch {
	case err == nil:
		return 0
	case errors.As(err, &e):
		return e.Code
	}
	return ExitFailed
}

// usagef returns an error of the command line.
func usagef(format string, a ...any) error { return &Error{ExitUsage, fmt.Errorf(format, a...)} }

// inWords returns the error of a command with its exit code, in words for its user.
func inWords(ctx context.Context, name string, c *Call, err error) error {
	var own *Error
	var answer *client.Error
	var job *client.JobError
	var broken *url.Error
	code, say := ExitFailed, err
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		code, say = own.Code, own.Err
	case ctx.Err() != nil:
		code, say = ExitInterrupted, errors.New("interrupted")
	case errors.As(err, &answer):
		code, say = refusal(answer)
	case errors.As(err, &job):
		say = errors.New(strings.TrimPrefix(job.Error(), "client: "))
	case errors.As(err, &broken):
		code, say = ExitUnreachable, c.unreachable(broken)
	}
	if record := (*recordError)(nil); errors.As(err, &record) && (answer != nil || job != nil) {
		name += ": " + record.id
	}
	return &Error{code, fmt.Errorf("%s: %w", name, say)}
}

// A recordError is an error about one of the records that a command line names.
type recordError struct {
	id string
	error
}

func (e *recordError) Unwrap() error { return e.error }

// about returns err with the record that it is about; nil for nil.
func about(id string, err error) error {
	if err == nil {
		return nil
	}
	return &recordError{id, err}
}

// refusal says what an answer that is an error means.
func refusal(e *client.Error) (code int, say error) {
	text := e.Detail
	if len(e.Errors) > 0 {
		text = strings.Join(e.Errors, "; ")
	}
	if text == "" {
		text = strings.ToLower(e.Title)
	}
	switch e.Status {
	case http.StatusUnauthorized:
		return ExitDenied, fmt.Errorf("the server does not know the key (%s): set PODYARD_API_KEY or -key", text)
	case http.StatusForbidden:
		return ExitDenied, fmt.Errorf("the key may not do this (%s)", text)
	case http.StatusNotFound:
		return ExitNotFound, errors.New(text)
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout:
		code = ExitUnreachable
	default:
		code = ExitFailed
	}
	say = fmt.Errorf("the server answers %d: %s", e.Status, text)
	if e.RetryAfter > 0 {
		say = fmt.Errorf("%w: try again in %v", say, e.RetryAfter)
	}
	return code, say
}

// unreachable says that no server answers, and what that may mean.
func (c *Call) unreachable(err *url.Error) error {
	where := "the server"
	if c.server != nil {
		where = c.server.url
	}
	return noAnswer(where, err)
}

func noAnswer(where string, err error) error {
	var op *net.OpError
	var broken *url.Error
	switch {
	case errors.As(err, &op) && op.Op == "dial":
		return fmt.Errorf("no server answers at %s (%w): is it running? PODYARD_URL or -url says where", where, op.Err)
	case errors.As(err, &broken):
		err = broken.Err
	}
	return fmt.Errorf("%s does not answer: %w", where, err)
}
