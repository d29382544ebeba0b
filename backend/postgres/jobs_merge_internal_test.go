package postgres

import (
	"fmt"
	"testing"
)

func TestAStatementForOneRowHasItsColumnsAsParameters(t *testing.T) {
	t.Parallel()
	var texts mergedTexts
	sql := "INSERT INTO t SELECT u.a, $2 FROM unnest($1::bytea[],\n\t$3::int8[]) WITH ORDINALITY u(a, b, n) WHERE b = ANY($4::int8[])"
	list := merged{{sql, []any{[][]byte{[]byte("x")}, 7, []int64{3}, []int64{1, 2}}}}
	one := texts.oneRow(list)
	want := "INSERT INTO t SELECT u.a, $2 FROM (SELECT $1::bytea,\n\t$3::int8, 1::int8) u(a, b, n) WHERE b = ANY($4::int8[])"
	if got := fmt.Sprint(one[0].args); one[0].sql != want || got != "[[120] 7 3 [1 2]]" {
		t.Errorf("the statement is\n%s\nwith %s, want\n%s", one[0].sql, got, want)
	}
	list[0].args[0] = [][]byte{[]byte("x"), []byte("y")}
	list[0].args[2] = []int64{3, 4}
	if got := texts.oneRow(list); got[0].sql != sql {
		t.Errorf("the statement for two rows is\n%s", got[0].sql)
	}
}
