package postgres

import (
	"encoding/binary"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
)

// The statements of the queue take their rows as columns. pgx encodes an array element by element, each
// through an interface, into a buffer that it does not size. encodeColumns does so in one step.

// encodeColumns has a connection encode columns as arrays in one step.
func encodeColumns(m *pgtype.Map) {
	for _, oid := range [...]uint32{pgtype.ByteaArrayOID, pgtype.Int8ArrayOID, pgtype.Int2ArrayOID, pgtype.BoolArrayOID, pgtype.TIDArrayOID} {
		if t, ok := m.TypeForOID(oid); ok {
			m.RegisterType(&pgtype.Type{Name: t.Name, OID: oid, Codec: columnCodec{t.Codec}})
		}
	}
}

// A columnCodec is the codec of arrays of a type.
type columnCodec struct{ pgtype.Codec }

// PlanEncode implements pgtype.Codec.
func (c columnCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, value any) pgtype.EncodePlan {
	if format == pgtype.BinaryFormatCode {
		switch value.(type) {
		case [][]byte:
			if oid == pgtype.ByteaArrayOID {
				return encodeColumn[[][]byte](encodeTexts)
			}
		case []int64:
			if oid == pgtype.Int8ArrayOID {
				return encodeColumn[[]int64](encodeNumbers)
			}
		case []int16:
			if oid == pgtype.Int2ArrayOID {
				return encodeColumn[[]int16](encodeSmalls)
			}
		case []bool:
			if oid == pgtype.BoolArrayOID {
				return encodeColumn[[]bool](encodeBits)
			}
		case []pgtype.TID:
			if oid == pgtype.TIDArrayOID {
				return encodeColumn[[]pgtype.TID](encodePlaces)
			}
		}
	}
	return c.Codec.PlanEncode(m, oid, format, value)
}

// encodeColumn appends a column in the binary format of arrays.
type encodeColumn[T any] func(b []byte, column T) []byte

// Encode implements pgtype.EncodePlan.
func (f encodeColumn[T]) Encode(value any, b []byte) ([]byte, error) { return f(b, value.(T)), nil } //nolint:forcetypeassert // the plan of this type

// arrayHeader appends what is before n elements of a type, with room for so many bytes of them.
func arrayHeader(b []byte, oid uint32, n, size int, nulls bool) []byte {
	const length = 20
	if cap(b)-len(b) < length+size {
		b = slices.Grow(b, len(b)+length+size) // at least twice as much: other columns follow
	}
	b = binary.BigEndian.AppendUint32(b, 1) // dimension
	b = binary.BigEndian.AppendUint32(b, uint32(bit(nulls)))
	b = binary.BigEndian.AppendUint32(b, oid)
	b = binary.BigEndian.AppendUint32(b, uint32(n))
	return binary.BigEndian.AppendUint32(b, 1) // the first index
}

func encodeTexts(b []byte, column [][]byte) []byte {
	size, nulls := 0, false
	for _, v := range column {
		size += 4 + len(v)
		nulls = nulls || v == nil
	}
	b = arrayHeader(b, pgtype.ByteaOID, len(column), size, nulls)
	for _, v := range column {
		b = copyBytes(b, v)
	}
	return b
}

func encodeNumbers(b []byte, column []int64) []byte {
	return copyNumbers(arrayHeader(b, pgtype.Int8OID, len(column), 12*len(column), false), column...)
}

func encodeSmalls(b []byte, column []int16) []byte {
	b = arrayHeader(b, pgtype.Int2OID, len(column), 6*len(column), false)
	for _, v := range column {
		b = copySmall(b, v)
	}
	return b
}

func encodeBits(b []byte, column []bool) []byte {
	b = arrayHeader(b, pgtype.BoolOID, len(column), 5*len(column), false)
	for _, v := range column {
		b = copyBit(b, v)
	}
	return b
}

func encodePlaces(b []byte, column []pgtype.TID) []byte {
	b = arrayHeader(b, pgtype.TIDOID, len(column), 10*len(column), true)
	for _, v := range column {
		if !v.Valid {
			b = copyLen(b, -1)
			continue
		}
		b = binary.BigEndian.AppendUint32(copyLen(b, 6), v.BlockNumber)
		b = binary.BigEndian.AppendUint16(b, v.OffsetNumber)
	}
	return b
}

// manyBytes are more than the buffer for messages of a connection has at first.
const manyBytes = 4096

// makeSpace has a connection send a batch from a buffer of its size. pgx makes the buffer larger by a
// quarter again and again while it adds columns, and copies what is there each time.
func makeSpace(c *pgx.Conn, b *pgx.Batch) {
	if n := spaceOf(b); n > manyBytes {
		c.PgConn().Frontend().Send(n)
	}
}

// A space is no message: it makes room for so many bytes of those after it.
type space int

var _ pgproto3.FrontendMessage = space(0)

// Encode implements pgproto3.FrontendMessage.
func (n space) Encode(b []byte) ([]byte, error) { return slices.Grow(b, int(n)), nil }

// Decode implements pgproto3.FrontendMessage.
func (space) Decode([]byte) error { return nil }

// Frontend implements pgproto3.FrontendMessage.
func (space) Frontend() {}

// spaceOf is about what the statements of a batch take, and not less.
func spaceOf(b *pgx.Batch) (n space) {
	for _, q := range b.QueuedQueries {
		n += 256
		for _, arg := range q.Arguments {
			n += 32 + space(columnBytes(arg))
		}
	}
	return n
}

func columnBytes(column any) (n int) {
	switch c := column.(type) {
	case [][]byte:
		for _, v := range c {
			n += 4 + len(v)
		}
	case []int64:
		n = 12 * len(c)
	case []int16:
		n = 6 * len(c)
	case []bool:
		n = 5 * len(c)
	case []pgtype.TID:
		n = 10 * len(c)
	}
	return n
}
