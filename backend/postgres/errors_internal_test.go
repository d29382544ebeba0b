package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// The database ends connections with an error that has a code, also after a commit. The calls of such
// a transaction must not be made again one by one: they may have been made.
func TestAnErrorAfterACommitIsNotThatOfOneCall(t *testing.T) {
	ended := &pgconn.PgError{Code: "57P01"}
	s := &Store{closing: make(chan struct{})}
	if mayBeOfOne(s.failure(&cut{ended})) {
		t.Error("the end of a connection after a commit may be the fault of one call, want not")
	}
	if !mayBeOfOne(s.failure(&unchanged{&pgconn.PgError{Code: codeUnique}})) {
		t.Error("a refusal of the database may not be the fault of one call, want that it may")
	}
	if mayBeOfOne(nil) {
		t.Error("no error may be the fault of one call")
	}
}
