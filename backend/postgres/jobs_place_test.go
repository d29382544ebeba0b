package postgres_test

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/podyard/podyard/backend/postgres"
)

func TestARowThatIsNotAtItsPlaceIsFoundByItsIndex(t *testing.T) {
	url := postgresql.Database(t)
	openURL(t, url)
	fillJobs(t, url, 0, 5)
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	defer func() { _ = conn.Close(t.Context()) }()
	text := func(list ...string) (column [][]byte) {
		for _, s := range list {
			column = append(column, []byte(s))
		}
		return column
	}
	// Those of another job, of no row, of a page that is not there, none, and the right one.
	places := []pgtype.TID{
		{BlockNumber: 0, OffsetNumber: 4, Valid: true}, {BlockNumber: 0, OffsetNumber: 200, Valid: true},
		{BlockNumber: 1 << 30, OffsetNumber: 1, Valid: true}, {}, {BlockNumber: 0, OffsetNumber: 5, Valid: true},
	}
	ep, id, nums := text("e", "e", "e", "e", "e"), text("1", "2", "3", "4", "5"), []int64{1, 2, 3, 4, 5}
	tag, err := conn.Exec(t.Context(), postgres.SQLUpdate, ep, id, nums, nums, nums, []int16{1, 1, 1, 1, 1}, id, make([][]byte, 5), nums, places)
	if err != nil || tag.RowsAffected() != 5 {
		t.Errorf("%d rows are changed, %v, want 5", tag.RowsAffected(), err)
	}
	var wrong int
	must(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM podyard.jobs WHERE state <> id").Scan(&wrong))
	if wrong != 0 {
		t.Errorf("%d jobs have the state of another one", wrong)
	}
	tag, err = conn.Exec(t.Context(), postgres.SQLUnready, ep, text("o", "o", "o", "o", "o"), []int16{5, 5, 5, 5, 5}, text("", "", "", "", ""), nums, places)
	if err != nil || tag.RowsAffected() != 5 {
		t.Errorf("%d rows are deleted, %v, want 5", tag.RowsAffected(), err)
	}
}
