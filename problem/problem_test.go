package problem_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podyard/podyard/problem"
)

func TestEveryKindHasTheStatusOfTheInterfaceAndItsTitle(t *testing.T) {
	statuses := map[problem.Kind]int{
		problem.Internal: 500, problem.BadRequest: 400, problem.Unauthorized: 401, problem.Forbidden: 403,
		problem.NotFound: 404, problem.MethodNotAllowed: 405, problem.RequestTimeout: 408, problem.Conflict: 409, problem.TooLarge: 413,
		problem.UnsupportedMediaType: 415, problem.Invalid: 422, problem.TooManyRequests: 429, problem.NotImplemented: 501,
		problem.Unavailable: 503,
	}
	// The titles that net/http has not followed RFC 9110 in.
	titles := map[int]string{413: "Content Too Large"}
	for kind, status := range statuses {
		if kind.Status() != status {
			t.Errorf("kind %d: status %d, want %d", kind, kind.Status(), status)
		}
		want := titles[status]
		if want == "" {
			want = http.StatusText(status)
		}
		if kind.Title() != want {
			t.Errorf("status %d: title %q, want %q", status, kind.Title(), want)
		}
	}
}

var errCause = errors.New("dial 10.0.0.7: password=hunter2")

func TestOfShowsWhatTheOutermostErrorSays(t *testing.T) {
	sentinel := problem.New(problem.NotFound, "pod not found")
	for _, row := range []struct {
		name string
		err  error
		want problem.Document
	}{
		{"a sentinel", sentinel, problem.Document{Title: "Not Found", Status: 404, Detail: "pod not found"}},
		{
			"one wrapped on its way up", fmt.Errorf("pods: get %q: %w", "abc", sentinel),
			problem.Document{Title: "Not Found", Status: 404, Detail: "pod not found"},
		},
		{
			"one around another", &problem.Error{Kind: problem.BadRequest, Detail: "no such registry", Err: sentinel},
			problem.Document{Title: "Bad Request", Status: 400, Detail: "no such registry"},
		},
		{
			"one with a cause from inside", &problem.Error{Kind: problem.Unavailable, Detail: "the store is down", Err: errCause},
			problem.Document{Title: "Service Unavailable", Status: 503, Detail: "the store is down"},
		},
		{
			"one fault of validation", problem.New(problem.Invalid, "wait must be an integer"),
			problem.Document{Title: "Unprocessable Entity", Status: 422, Detail: "wait must be an integer", Errors: []string{"wait must be an integer"}},
		},
		{
			"one that lists faults", &problem.Error{Kind: problem.Invalid, Detail: "no", Errors: []string{"/a: b"}},
			problem.Document{Title: "Unprocessable Entity", Status: 422, Detail: "no", Errors: []string{"/a: b"}},
		},
	} {
		if diff := cmp.Diff(row.want, problem.Of(row.err)); diff != "" {
			t.Errorf("Of %s (-want +got):\n%s", row.name, diff)
		}
	}
}

func TestOfHidesInternalErrors(t *testing.T) {
	want := problem.Document{Title: "Internal Server Error", Status: 500, Detail: "internal error"}
	for name, err := range map[string]error{
		"an error nobody classified":   errCause,
		"one that was wrapped":         fmt.Errorf("store: %w", errCause),
		"one classified as internal":   &problem.Error{Kind: problem.Internal, Detail: "state of job 7 is torn", Err: errCause},
		"one of kind zero with errors": &problem.Error{Errors: []string{"secret"}},
		"an internal one around one that can be shown": &problem.Error{
			Detail: "registry of the pod is gone", Err: problem.New(problem.NotFound, "registry not found"),
		},
		"no error": nil,
	} {
		if diff := cmp.Diff(want, problem.Of(err)); diff != "" {
			t.Errorf("Of %s (-want +got):\n%s", name, diff)
		}
	}
}

func TestKindOfIsThatOfTheOutermostError(t *testing.T) {
	limited := problem.New(problem.TooManyRequests, "slow down")
	for err, want := range map[error]problem.Kind{
		limited:                            problem.TooManyRequests,
		fmt.Errorf("httpapi: %w", limited): problem.TooManyRequests,
		io.EOF:                             problem.Internal,
	} {
		if got := problem.KindOf(err); got != want {
			t.Errorf("KindOf(%v) = %d, want %d", err, got, want)
		}
	}
}

func TestNewfShowsAndMatchesWhatItWraps(t *testing.T) {
	sentinel := problem.New(problem.NotFound, "volume not found")
	err := problem.Newf(problem.BadRequest, "mount %q: %w", "/data", sentinel)
	if got, want := problem.Of(err).Detail, `mount "/data": volume not found`; got != want {
		t.Errorf("detail = %q, want %q", got, want)
	}
	if !errors.Is(err, sentinel) {
		t.Error("errors.Is does not find the wrapped sentinel")
	}
	if err.Error() != `mount "/data": volume not found` {
		t.Errorf("Error = %q: the cause is in the detail already", err)
	}
}

func TestErrorTextOfAnInternalErrorHasItsCause(t *testing.T) {
	err := &problem.Error{Kind: problem.Internal, Detail: "claim", Err: errCause}
	if got, want := err.Error(), "claim: "+errCause.Error(); got != want {
		t.Errorf("Error = %q, want %q", got, want)
	}
}

func TestDocumentIsTheErrorResponseOfTheInterface(t *testing.T) {
	for _, row := range []struct {
		doc  problem.Document
		want string
	}{
		{
			problem.Document{Title: "Not Found", Status: 404, Detail: "resource not found"},
			`{"title":"Not Found","status":404,"detail":"resource not found"}`,
		},
		{
			problem.Document{Title: "T", Status: 422, Errors: []string{"/a: b"}},
			`{"title":"T","status":422,"detail":"","errors":["/a: b"]}`,
		},
	} {
		b, err := json.Marshal(row.doc)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(b); got != row.want {
			t.Errorf("document = %s\nwant       %s", got, row.want)
		}
	}
	if strings.Contains(fmt.Sprint(problem.Of(errCause)), "hunter2") {
		t.Error("the document of an unclassified error shows its text")
	}
}

func TestKindsPrintAsTheirTitles(t *testing.T) {
	for kind, want := range map[problem.Kind]string{problem.Internal: "Internal Server Error", problem.WorkerTimeout: "A Timeout Occurred", problem.WorkerTimeout + 1: "Kind(16)"} {
		if got := kind.String(); got != want {
			t.Errorf("kind %d is %q, want %q", uint8(kind), got, want)
		}
	}
}
