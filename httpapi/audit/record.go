package audit

import (
	"context"
	"encoding/json"
	"strings"
	"time"

	"github.com/podyard/podyard/internal/terminal"
)

// A Kind says why there is a record.
type Kind string

// The kinds.
const (
	Change  Kind = "change"  // something was changed, or may have been: its status is 2xx or 5xx
	Refusal Kind = "refusal" // 401, 403 or 429
	Dropped Kind = "dropped" // records that were not kept: Dropped of them
)

// A Record is one line. It has no secret and no body. Texts are cut at MaxText bytes.
type Record struct {
	// Time is that of the request. A log makes it later by nanoseconds where two records
	// would have the same.
	Time      time.Time `json:"time"`
	Kind      Kind      `json:"kind"`
	User      string    `json:"user,omitempty"`
	Key       string    `json:"key,omitempty"` // id of the key, or the first 8 digits of its digest
	Operation string    `json:"operation,omitempty"`
	Path      string    `json:"path,omitempty"`    // without the query
	Record    string    `json:"record,omitempty"`  // the id of what was made or named
	Owner     string    `json:"owner,omitempty"`   // for whom an operator acted; "*": for all
	Source    string    `json:"source,omitempty"`  // address
	Agent     string    `json:"agent,omitempty"`   // header User-Agent
	Request   string    `json:"request,omitempty"` // the id of the request, as the log of the server has it
	Status    int       `json:"status,omitempty"`
	Dropped   int       `json:"dropped,omitempty"`
}

// MaxText is the most bytes that are kept of a text.
const MaxText = 500

// A Query selects records.
type Query struct {
	Limit     int       // at most so many; at least 1
	Before    time.Time // only earlier ones; zero: all
	Since     time.Time // only those of then or later; zero: all
	Kind      Kind      // only of this kind; empty: of all
	User      string    // of this user; empty: of all
	Operation string    // of this operation; empty: of all
}

func (q *Query) matches(r *Record) bool {
	return (q.Before.IsZero() || r.Time.Before(q.Before)) && !r.Time.Before(q.Since) && (q.Kind == "" || r.Kind == q.Kind) &&
		(q.User == "" || r.User == q.User) && (q.Operation == "" || r.Operation == q.Operation)
}

// setBack is by how much a clock may have been set back: so long before Query.Since there may still
// be later records.
const setBack = 24 * time.Hour

// isPast reports whether no record before r is selected.
func (q *Query) isPast(r *Record) bool {
	return !q.Since.IsZero() && r.Time.Before(q.Since.Add(-setBack))
}

// A Trail is a Log or a Memory.
type Trail interface {
	// Record keeps a record. It does not fail, and returns soon.
	Record(r Record)
	// Read returns the newest records that q selects, newest first.
	Read(ctx context.Context, q Query) ([]Record, error)
}

// line is r as it is kept: one JSON object and a newline, without what acts on a terminal.
func line(r *Record) []byte {
	for _, s := range []*string{&r.User, &r.Key, &r.Operation, &r.Path, &r.Record, &r.Owner, &r.Source, &r.Agent} {
		*s = cut(*s)
	}
	if r.Time = r.Time.UTC(); r.Time.Year() < 0 || r.Time.Year() > 9999 {
		r.Time = time.Time{} // JSON has no other years
	}
	b, err := json.Marshal(r)
	if err != nil {
		b = []byte("{}") // texts, numbers and a time of these years: this cannot be
	}
	return append(terminal.EscapeJSON(b), '\n')
}

// cut is a valid text of at most MaxText bytes.
func cut(s string) string {
	if len(s) > MaxText {
		s = s[:MaxText]
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}
