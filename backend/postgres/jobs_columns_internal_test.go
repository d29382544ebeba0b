package postgres

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

func TestColumnsAreEncodedAsArraysAre(t *testing.T) {
	t.Parallel()
	plain, ours := pgtype.NewMap(), pgtype.NewMap()
	encodeColumns(ours)
	large := make([]byte, 100_000)
	for i, c := range []struct {
		oid   uint32
		value any
	}{
		{pgtype.ByteaArrayOID, [][]byte{[]byte("a"), {}, large, []byte("\x00b")}},
		{pgtype.ByteaArrayOID, [][]byte{nil, []byte("a"), nil}},
		{pgtype.ByteaArrayOID, [][]byte{}},
		{pgtype.ByteaArrayOID, [][]byte(nil)},
		{pgtype.Int8ArrayOID, []int64{1, -2, 1 << 60}},
		{pgtype.Int8ArrayOID, []int64{}},
		{pgtype.Int8ArrayOID, []int32{1, 2}},
		{pgtype.Int2ArrayOID, []int16{1, -2}},
		{pgtype.BoolArrayOID, []bool{true, false}},
		{pgtype.TIDArrayOID, []pgtype.TID{{BlockNumber: 1 << 31, OffsetNumber: 7, Valid: true}, {}}},
		{pgtype.TextArrayOID, []string{"a", ""}},
	} {
		before := []byte("x")
		want, err := plain.Encode(c.oid, pgtype.BinaryFormatCode, c.value, before)
		must(t, err)
		got, err := ours.Encode(c.oid, pgtype.BinaryFormatCode, c.value, before)
		if err != nil || !bytes.Equal(got, want) || (got == nil) != (want == nil) {
			t.Errorf("%d: %v: %.40s, want %.40s", i, err, fmt.Sprint(got), fmt.Sprint(want))
		}
	}
}

func TestSpaceForABatchIsEnough(t *testing.T) {
	t.Parallel()
	m := pgtype.NewMap()
	encodeColumns(m)
	b := &pgx.Batch{}
	args := map[uint32]any{
		pgtype.ByteaArrayOID: [][]byte{nil, make([]byte, 10_000), {}},
		pgtype.Int8ArrayOID:  []int64{1, 2, 3},
		pgtype.Int2ArrayOID:  []int16{1, 2, 3},
		pgtype.BoolArrayOID:  []bool{true},
		pgtype.TIDArrayOID:   []pgtype.TID{{Valid: true}, {}},
	}
	var sent []byte
	for oid, arg := range args {
		b.Queue("", arg)
		var err error
		sent, err = m.Encode(oid, pgtype.BinaryFormatCode, arg, sent)
		must(t, err)
	}
	buf, err := spaceOf(b).Encode([]byte("x"))
	must(t, err)
	if len(buf) != 1 || cap(buf) < len(sent) || cap(buf) > len(sent)+4096 {
		t.Errorf("the buffer has %d bytes of %d, for a batch of %d", len(buf), cap(buf), len(sent))
	}
}
