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
	if mayBeOfOne(s.failure(t.Context(), &cut{ended})) {
		t.Error("the end of a connection after a commit may be the fault of one call, want not")
	}
	if !mayBeOfOne(s.failure(t.Context(), &unchanged{&pgconn.PgError{Code: codeUnique}})) {
		t.Error("a refusal of the database may not be the fault of one call, want that it may")
	}
	if mayBeOfOne(nil) {
		t.Error("no error may be the fault of one call")
	}
}

func TestServersThatCannotBeUsedAreNamed(t *testing.T) {
	for _, c := range []struct {
		number, version   string
		standby, readOnly bool
		want              string
	}{
		{"150018", "15.18", false, false, ""},
		{"180004", "18.4 (Debian)", false, false, ""},
		{"140022", "14.22", false, false, "it is PostgreSQL 14.22, and version 15 or newer is needed"},
		{"90624", "9.6.24", false, false, "it is PostgreSQL 9.6.24, and version 15 or newer is needed"},
		{"150018", "15.18", true, true, whatStandby},
		{"150018", "15.18", false, true, whatReadOnly},
	} {
		got := ""
		if err := checkServer(c.number, c.version, c.standby, c.readOnly); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("a server that answers %+v is refused with %q, want %q", c, got, c.want)
		}
	}
}
